"""Firmware of somebody else: identified or refused, never configured, its flash left alone beyond the image."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_board import FakeBoard

from rig.board.board import Board
from rig.board.image import Image, load_image
from rig.deadline import Deadline
from rig.errors import BoardError

FLASH = 0x0800_0000
BLIND = {"driver": "command", "command": {"command": [sys.executable, "-c", "", "{image}"]}}
"""A programmer that the rig cannot look behind."""

Open = Callable[..., Board]


@pytest.fixture
def foreign(fake: FakeBoard, tmp_path: Path) -> Image:
    fake.banner, fake.after_boot = "MyOS v3.1.0-cafe starting", []
    (tmp_path / "my-os.bin").write_bytes(b"MyOS %s starting\0 v3.1.0-cafe\0" + bytes(600))
    return load_image(tmp_path / "my-os.bin", FLASH)


def soon() -> Deadline:
    return Deadline.after(30)


def test_build_in_its_banner_identifies_it_even_behind_a_blind_programmer(open_board: Open, foreign: Image) -> None:
    board = open_board(banner=r"MyOS (?P<build>\S+)", flash=BLIND)
    assert not board.flash(foreign, "always", soon()).verified
    assert board.reset_and_boot(soon()).build == "v3.1.0-cafe"
    assert board.prove_identity(foreign) == "build v3.1.0-cafe in its banner"
    assert board.flash(foreign, "if-changed", soon()).skipped, "the running board shows that it is there"


def test_another_build_behind_a_blind_programmer_is_an_error(fake: FakeBoard, open_board: Open, foreign: Image) -> None:
    fake.banner = "MyOS v3.0.9-beef starting"
    board = open_board(banner=r"MyOS (?P<build>\S+)", flash=BLIND)
    assert not board.flash(foreign, "if-changed", soon()).skipped
    board.reset_and_boot(soon())
    with pytest.raises(BoardError, match=r"my-os\.bin cannot be identified .* its banner shows build v3\.0\.9-beef"):
        board.prove_identity(foreign)


def test_banner_without_a_build_needs_a_flash_that_is_read_back(open_board: Open, foreign: Image) -> None:
    board = open_board(banner="MyOS", flash=BLIND)
    board.flash(foreign, "always", soon())
    board.reset_and_boot(soon())
    with pytest.raises(BoardError, match=r"no banner shows its build, and the flash was not read back") as caught:
        board.prove_identity(foreign)
    assert caught.value.seen == "MyOS v3.1.0-cafe starting"
    assert "(?P<build>" in (caught.value.hint or "")


def test_read_back_identifies_it_with_any_banner_and_without_one(open_board: Open, foreign: Image) -> None:
    for banner in ("MyOS", None):
        board = open_board(banner=banner)
        board.flash(foreign, "if-changed", soon())
        board.reset_and_boot(soon())
        assert board.prove_identity(foreign) == "flash read back"
        board.close()


def test_image_that_is_not_flashed_and_shows_no_build_cannot_be_identified(open_board: Open, foreign: Image) -> None:
    board = open_board(banner="MyOS")
    board.flash(foreign, "never", soon())
    board.reset_and_boot(soon())
    with pytest.raises(BoardError, match="cannot be identified"):
        board.prove_identity(foreign)


def test_identity_block_is_not_written_under_an_image_that_would_not_read_it(
    fake: FakeBoard, open_board: Open, foreign: Image, tmp_path: Path
) -> None:
    kept = fake.flash_at(0x0802_0000, 64)
    board = open_board()
    board.flash(foreign, "always", soon())
    assert not board.ensure_identity(soon())
    assert fake.flash_at(0x0802_0000, 64) == kept
    assert 4 not in fake.rom.erased
    assert "identity block left alone" in (tmp_path / "board.log").read_text()


def test_identity_block_is_written_for_foreign_firmware_whose_bench_file_names_its_place(
    fake: FakeBoard, open_board: Open, foreign: Image
) -> None:
    board = open_board(banner="MyOS", flash={"parity": "none", "identity_address": 0x0802_0000})
    board.flash(foreign, "always", soon())
    assert board.ensure_identity(soon())
    assert fake.flash_at(0x0802_0000, 4) == b"RGID"


def test_who_has_our_console_is_known(open_board: Open, foreign: Image, image: Image) -> None:
    board = open_board()
    assert board.is_ours
    board.flash(foreign, "never", soon())
    assert not board.is_ours, "it does not announce itself"
    board.flash(image, "never", soon())
    assert board.is_ours
    board.close()
    assert not open_board(banner="MyOS").is_ours
