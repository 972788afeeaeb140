"""The identity block, byte by byte, and the comparison of a banner with the bench file."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.bench.model import Identity
from rig.board.events import Boot, Line
from rig.board.identity import IdentityBlock, IdentityError
from rig.board.image import Image, Segment
from rig.board.proof import announces_itself, identity_faults, image_faults

IDENTITY = Identity(name="board-1", mac="02:52:49:47:00:10", address="10.77.0.10", gateway="10.77.0.1")

# Written out by hand from the layout in docs/architecture.md.
BY_HAND = bytes.fromhex(
    "52474944 0100 4000 025249470010 8d13 0a4d000a ffffff00 0a4d0001 0a4d0014"
    "626f6172642d31000000000000000000 000000000000000000000000"
)


def test_block_is_the_documented_64_bytes() -> None:
    raw = IdentityBlock.of(IDENTITY, "10.77.0.20").pack()
    assert len(raw) == 64
    assert raw[:60] == BY_HAND
    assert raw[60:] == zlib.crc32(BY_HAND).to_bytes(4, "little")


def test_block_round_trip_and_no_gateway() -> None:
    block = IdentityBlock.of(IDENTITY.model_copy(update={"gateway": None}), "10.77.0.20")
    assert block.pack()[24:28] == bytes(4)
    assert IdentityBlock.parse(block.pack()) == block


@given(st.integers(0, 63), st.integers(1, 255))
def test_any_changed_byte_is_noticed(at: int, mask: int) -> None:
    raw = bytearray(IdentityBlock.of(IDENTITY, "10.77.0.20").pack())
    raw[at] ^= mask
    with pytest.raises(IdentityError):
        IdentityBlock.parse(bytes(raw))


@pytest.mark.parametrize(("raw", "why"), [(b"\xff" * 64, "erased"), (b"", "0 bytes"), (bytes(64), "magic")])
def test_what_is_no_block_says_why(raw: bytes, why: str) -> None:
    with pytest.raises(IdentityError, match=why):
        IdentityBlock.parse(raw)


def boot(**fields: str) -> Boot:
    return Boot(Line(0, 0, 0, "banner"), fields)


def test_banner_of_the_right_board_has_no_faults() -> None:
    fields = {"identity": "ok", "name": "board-1", "mac": "02:52:49:47:00:10", "ip": "10.77.0.10", "port": "5005"}
    assert identity_faults(boot(**fields), IDENTITY) == []
    assert identity_faults(boot(), IDENTITY) == [], "a foreign banner shows nothing to compare"


def test_every_difference_is_named() -> None:
    faults = identity_faults(boot(identity="ok", name="board-2", mac="02:52:49:47:00:11", ip="10.0.0.1"), IDENTITY)
    assert faults == [
        "its name is board-2, the bench file says board-1",
        "its mac is 02:52:49:47:00:11, the bench file says 02:52:49:47:00:10",
        "its ip is 10.0.0.1, the bench file says 10.77.0.10",
    ]
    assert identity_faults(boot(identity="corrupt"), IDENTITY) == ["its identity block is corrupt"]


def test_build_id_proves_or_disproves_the_image() -> None:
    image = Image(Path("app.bin"), (Segment(0, b"rig-fw variant="),), "aa")
    assert image_faults(boot(build="aa"), image) == []
    assert image_faults(boot(build="bb"), image) == ["it runs build bb, the image app.bin is build aa"]
    assert image_faults(boot(), image) == []
    assert announces_itself(image)
    assert not announces_itself(Image(Path("x.bin"), (Segment(0, b"other"),), None))
