"""Which image runs: by its banner's build, else by the flash that was read back, else nobody can say."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rig.board.events import Boot, Line
from rig.board.image import Image, load_image
from rig.board.proof import image_proof, shows_build

BUILD = "5d1d01af3cc5f3ed04fedcf63bb61110a7087c2b"
NOTE = struct.pack("<III", 4, 20, 3) + b"GNU\0" + bytes.fromhex(BUILD)


def boot(**fields: str) -> Boot:
    return Boot(Line(0, 0, 0, "banner"), fields)


def image(tmp_path: Path, content: bytes) -> Image:
    path = tmp_path / "app.bin"
    path.write_bytes(content)
    return load_image(path, 0x0800_0000)


@pytest.mark.parametrize(
    ("shown", "belongs"),
    [
        (BUILD, True),
        (BUILD[:7], True),
        (BUILD[:7].upper(), True),
        (BUILD[:6], False),  # too short to stand for the whole
        (BUILD[1:], False),
        ("ab" * 20, False),
        ("v3.1.0-cafe", True),  # a text of the image
        ("v3.1.1-cafe", False),
        ("v3.", False),  # in the image, and in many another
        ("", False),
    ],
)
def test_shown_build_belongs_to_the_image(tmp_path: Path, shown: str, belongs: bool) -> None:
    assert shows_build(shown, image(tmp_path, b"code MyOS v3.1.0-cafe\0" + NOTE)) is belongs


def test_image_without_build_id_is_known_by_its_text_only(tmp_path: Path) -> None:
    plain = image(tmp_path, b"MyOS v3.1.0")
    assert shows_build("v3.1.0", plain)
    assert not shows_build(BUILD, plain)


def test_proof_names_what_it_rests_on(tmp_path: Path) -> None:
    foreign = image(tmp_path, b"MyOS v3.1.0")
    assert image_proof(boot(build="v3.1.0"), foreign, read_back=False) == "build v3.1.0 in its banner"
    assert image_proof(boot(build="v3.1.0"), foreign, read_back=True) == "build v3.1.0 in its banner"
    assert image_proof(boot(), foreign, read_back=True) == "flash read back"
    doubtful = image_proof(boot(build="v9.9.9"), foreign, read_back=True)
    assert doubtful == "flash read back (the banner's build v9.9.9 stands nowhere in the image)"
    assert image_proof(boot(), foreign, read_back=False) is None
    assert image_proof(boot(build="v9.9.9"), foreign, read_back=False) is None
