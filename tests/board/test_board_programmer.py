"""Programs that flash: regions as files, reading back, the boot ROM selected for them, Intel HEX without an address."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_board import BUILD, FakeBoard

from rig.bench import model
from rig.board.board import Board
from rig.board.flash.command import CommandFlasher, intel_hex
from rig.board.flash.flasher import FlashLink, Region
from rig.board.identity import IdentityBlock
from rig.board.image import Image, load_image
from rig.board.report import BootFailure
from rig.deadline import Deadline
from rig.errors import BoardError

FLASH = 0x0800_0000

WRITE = """
import sys, pathlib
chip, image, address = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3], 16) - 0x08000000
flash = bytearray(chip.read_bytes()) if chip.exists() else bytearray(b"\\xff" * 0x40000)
data = image.read_bytes()
flash[address:address + len(data)] = data
chip.write_bytes(flash)
"""
READ = """
import sys, pathlib
chip, image, address = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3], 16) - 0x08000000
print("reading", sys.argv[4])
image.write_bytes(chip.read_bytes()[address:address + int(sys.argv[4])])
"""
"""A chip in a file: what a debug probe reaches while the serial port carries only the console."""

Open = Callable[..., Board]


def probe(chip: Path, read: bool = True, write: str = WRITE) -> dict[str, object]:
    common = [sys.executable, "-c"]
    commands: dict[str, object] = {"command": {"command": [*common, write, str(chip), "{image}", "{address}"]}}
    if read:
        commands["read"] = {"command": [*common, READ, str(chip), "{image}", "{address}", "{size}"]}
    return {"driver": "command", **commands}


@pytest.fixture
def open_board(open_board: Open) -> Open:
    """Boards without a boot line: a debug probe needs none."""
    return lambda **settings: open_board(**{"boot": {"driver": "none"}, **settings})


def soon() -> Deadline:
    return Deadline.after(30)


# --- with and without reading back ------------------------------------------------------------------------------------


def test_programmer_that_reads_verifies_skips_and_writes_the_identity(
    open_board: Open, image: Image, tmp_path: Path
) -> None:
    chip = tmp_path / "chip"
    board = open_board(flash=probe(chip))
    report = board.flash(image, "if-changed", soon())
    assert (report.skipped, report.verified, report.written) == (False, True, image.size)
    assert "cannot compare, so it is written" in (tmp_path / "board.log").read_text(), "a blank chip refuses to be read"
    assert board.ensure_identity(soon())
    assert chip.read_bytes()[: image.size] == image.flat
    block = IdentityBlock.parse(chip.read_bytes()[0x2_0000 : 0x2_0000 + 64])
    assert (block.name, block.peer) == ("board-1", "10.77.0.20")
    assert board.read_identity(soon()) == block
    again = board.flash(image, "if-changed", soon())
    assert (again.skipped, again.verified) == (True, True)
    assert not board.ensure_identity(soon())
    assert f"# rig: | reading {image.size}" in (tmp_path / "board.log").read_text()


def test_image_that_was_read_back_and_does_not_boot_is_the_products(
    fake: FakeBoard, open_board: Open, image: Image, tmp_path: Path
) -> None:
    fake.banner, fake.after_boot = "", []
    board = open_board(flash=probe(tmp_path / "chip"), boot_budget="50 ms")
    board.flash(image, "always", soon())
    with pytest.raises(BootFailure):
        board.reset_and_boot(soon())


def test_programmer_that_lies_about_its_success_is_found_out(open_board: Open, image: Image, tmp_path: Path) -> None:
    lying = WRITE.replace("= data\n", "= data[:100] + b'?' + data[101:]\n")
    board = open_board(flash=probe(tmp_path / "chip", write=lying))
    expected = (
        rf"verify failed: 0x08000064 holds 0x3f, 0x{image.flat[100]:02x} was to be written, although `.*` reported"
    )
    with pytest.raises(BoardError, match=expected):
        board.flash(image, "always", soon())


def test_read_program_that_leaves_too_little_is_told(tmp_path: Path) -> None:
    (tmp_path / "chip").touch()
    config = model.Flash.model_validate(probe(tmp_path / "chip"))
    with pytest.raises(BoardError, match=r"was to read 64 bytes at 0x08000000 and left 0"):
        CommandFlasher(config, link()).read(FLASH, 64, soon())


def test_flash_that_nobody_can_read_says_so(open_board: Open, tmp_path: Path) -> None:
    board = open_board(flash=probe(tmp_path / "chip", read=False))
    assert board.read_identity(soon()) == "the identity block cannot be read on this bench"


# --- the boot ROM for a program ---------------------------------------------------------------------------------------


def test_boot_rom_is_selected_anew_for_each_call_and_released_for_the_application(
    fake: FakeBoard, open_board: Open, image: Image, tmp_path: Path
) -> None:
    board = open_board(flash=probe(tmp_path / "chip"), boot={"driver": "emulated"})
    board.flash(image, "always", soon())
    assert fake.resets == ["rom", "rom"], "one for writing, one for reading back"
    assert board.reset_and_boot(soon()).build == BUILD
    assert (fake.resets[-1], fake.boot) == ("application", False)


def test_without_a_boot_line_the_board_is_left_as_it_is(
    fake: FakeBoard, open_board: Open, image: Image, tmp_path: Path
) -> None:
    open_board(flash=probe(tmp_path / "chip")).flash(image, "always", soon())
    assert fake.resets == []


def test_boot_line_is_released_when_the_programmer_fails(
    fake: FakeBoard, open_board: Open, image: Image, tmp_path: Path
) -> None:
    board = open_board(
        flash=probe(tmp_path / "chip", write="raise SystemExit('no target')"), boot={"driver": "emulated"}
    )
    with pytest.raises(BoardError, match="failed with exit status 1") as caught:
        board.flash(image, "always", soon())
    assert caught.value.seen == "no target"
    assert not fake.boot


def test_port_is_lent_for_each_call_and_which_of_them_write_is_told(tmp_path: Path) -> None:
    lent: list[bool] = []

    @contextlib.contextmanager
    def lend(deadline: Deadline, writing: bool) -> Iterator[None]:
        lent.append(writing)
        yield

    flasher = CommandFlasher(model.Flash.model_validate(probe(tmp_path / "chip")), link(lend=lend))
    flasher.program([Region("image", FLASH, b"abcd"), Region("image", FLASH + 0x1000, b"efgh")], [], print, soon())
    assert lent == [True, True, False, False]


# --- files ------------------------------------------------------------------------------------------------------------


def link(notes: list[str] | None = None, **more: object) -> FlashLink:
    return FlashLink(None, "/dev/ttyX", (notes if notes is not None else []).append, lambda data: None, **more)  # type: ignore[arg-type]


def test_programmer_without_an_address_gets_intel_hex(tmp_path: Path) -> None:
    copy = "import sys, shutil; shutil.copy(sys.argv[1], sys.argv[2])"
    argv = [sys.executable, "-c", copy, "{image}", str(tmp_path / "got.hex")]
    flasher = CommandFlasher(model.Flash.model_validate({"driver": "command", "command": {"command": argv}}), link())
    flasher.program([Region("identity", 0x0802_0000, b"RGID" * 16)], [], lambda step: None, soon())
    got = load_image(tmp_path / "got.hex", 0)
    assert (got.address, got.flat) == (0x0802_0000, b"RGID" * 16)


@pytest.mark.parametrize("address", [0, 0x0800_0000, 0x0801_FFF8, 0xFFFF_FF00])
@pytest.mark.parametrize("size", [1, 16, 17, 250])
def test_intel_hex_is_read_back_by_an_independent_reader(address: int, size: int, tmp_path: Path) -> None:
    intelhex = pytest.importorskip("intelhex")
    data = random.Random(size).randbytes(size)
    (tmp_path / "x.hex").write_bytes(intel_hex(address, data))
    read = intelhex.IntelHex(str(tmp_path / "x.hex"))
    assert (read.minaddr(), read.maxaddr()) == (address, address + size - 1)
    assert read.tobinstr() == data
