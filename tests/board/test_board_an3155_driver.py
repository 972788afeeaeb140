"""The AN3155 flasher against an independently written boot ROM, healthy and faulty."""

from __future__ import annotations

import random

import pytest
from rom_peer import FLASH, LineClock, LoopLink, RomPeer

from rig.bench.model import Flash
from rig.board.flash.an3155_driver import An3155Flasher
from rig.board.flash.flasher import Programmed, Progress, Region
from rig.deadline import Deadline
from rig.errors import BoardError

IDENTITY = Region("identity", 0x0802_0000, b"")


CLOCK = LineClock()


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("rig.deadline", "rig.board.flash.an3155_exchange"):
        monkeypatch.setattr(f"{module}.time", CLOCK)


def image(size: int = 3000, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def flasher(
    peer: RomPeer, chunk: int = 1 << 16, pending: bytes = b"", noise: list[bytes] | None = None, **settings: object
) -> An3155Flasher:
    config = Flash.model_validate({"baud": 2_000_000, **settings})
    return An3155Flasher(LoopLink(peer, CLOCK, chunk, pending), config, (noise if noise is not None else []).append)


def program(
    peer: RomPeer, data: bytes, address: int = FLASH, steps: list[Progress] | None = None, **how: object
) -> Programmed:
    driver = flasher(peer, **how)  # type: ignore[arg-type]
    driver.connect(Deadline.after(10))
    sink = steps.append if steps is not None else lambda step: None
    return driver.program([Region("image", address, data)], [IDENTITY], sink, Deadline.after(10))


def held(peer: RomPeer, size: int, address: int = FLASH) -> bytes:
    return bytes(peer.flash[address - FLASH : address - FLASH + size])


# --- healthy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 4, 255, 256, 257, 511, 32 << 10, (32 << 10) + 1])
def test_image_of_any_size_is_written_and_only_its_sectors_are_erased(size: int) -> None:
    peer = RomPeer()
    done = program(peer, image(size))
    assert held(peer, size) == image(size)
    assert peer.erased == ([0] if size <= 32 << 10 else [0, 1])
    assert done.verified
    assert done.retries == 0
    # The rest of the flash is as it was.
    assert set(peer.flash[len(peer.erased) * (32 << 10) :]) == {0}


def test_blocks_of_0xff_are_not_written_but_verified() -> None:
    peer = RomPeer()
    data = image(256) + b"\xff" * 1024 + image(256, 2)
    done = program(peer, data)
    assert [address - FLASH for address, _ in peer.writes] == [0, 1280]
    assert done.written == 512
    assert held(peer, len(data)) == data

    peer = RomPeer()
    peer.flip_read_once = {FLASH + 300: 0x10}
    assert program(peer, data).retries == 1


def test_region_at_odd_address_keeps_blocks_aligned_and_bytes_exact() -> None:
    peer = RomPeer()
    program(peer, image(600), FLASH + 0x105)
    assert held(peer, 600, FLASH + 0x105) == image(600)
    for address, size in peer.writes:
        assert address % 4 == size % 4 == 0
        assert address // 256 == (address + size - 1) // 256


def test_transport_of_one_byte_a_read() -> None:
    peer = RomPeer()
    program(peer, image(), chunk=1)
    assert held(peer, 3000) == image()


def test_progress_reaches_its_total_in_each_phase() -> None:
    steps: list[Progress] = []
    program(RomPeer(), image(1024), steps=steps)
    assert [step.phase for step in steps] == ["erase", *["write"] * 4, *["verify"] * 4]
    for phase, total in (("erase", 1), ("write", 1024), ("verify", 1024)):
        mine = [step for step in steps if step.phase == phase]
        assert [step.total for step in mine] == [total] * len(mine)
        assert mine[-1].done == total
        assert mine[-1].left_s == 0
        assert mine[-1].rate > 0


def test_hardware_settings_are_8e1_at_the_bench_files_speed() -> None:
    link = LoopLink(RomPeer(), CLOCK)
    An3155Flasher(link, Flash(baud=57_600), lambda data: None).connect(Deadline.after(10))
    assert link.settings == (57_600, "even")


def test_matches_reads_the_block_with_the_build_id_first() -> None:
    peer = RomPeer()
    program(peer, image())
    driver = flasher(peer)
    driver.connect(Deadline.after(10))
    region = Region("image", FLASH, image())
    assert driver.matches([region], None, lambda step: None, Deadline.after(10))
    peer.flash[2700] ^= 1
    before = peer.received
    assert not driver.matches([region], FLASH + 2650, lambda step: None, Deadline.after(10))
    assert peer.received - before == 2 + 5 + 2, "one block is enough to see the difference"
    assert not driver.matches([region], None, lambda step: None, Deadline.after(10))


def test_go_jumps() -> None:
    peer = RomPeer()
    driver = flasher(peer)
    driver.connect(Deadline.after(10))
    assert driver.go(FLASH, Deadline.after(10))
    assert peer.jumped == FLASH


def test_older_rom_with_one_byte_erase() -> None:
    peer = RomPeer()
    peer.commands[-1] = 0x43
    program(peer, image())
    assert held(peer, 3000) == image()
    assert peer.erased == [0]


def test_unknown_product_is_erased_as_a_whole_unless_something_must_stay() -> None:
    peer = RomPeer(product=0x7FF)
    with pytest.raises(BoardError, match="erasing everything would take the identity region along"):
        program(peer, image(), product_id=None)
    assert peer.erased == []
    driver = flasher(peer, product_id=None)
    driver.connect(Deadline.after(10))
    done = driver.program([Region("image", FLASH, image())], [], lambda step: None, Deadline.after(10))
    assert peer.erased == list(range(8))
    assert "whole flash" in done.erased


# --- synchronisation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nack_first", [False, True])
def test_rom_that_is_synchronised_already(nack_first: bool) -> None:
    peer = RomPeer(synced=True)
    peer.nack_first_init = nack_first
    program(peer, image())
    assert held(peer, 3000) == image()


@pytest.mark.parametrize("cut", [1, 3, 9, 100, 263, 264])
def test_rom_left_in_the_middle_of_a_write_block(cut: int) -> None:
    peer = RomPeer(synced=True)
    body = bytes([255]) + image(256)
    stream = b"\x31\xce" + b"\x08\x00\x00\x00\x08" + body
    peer.feed(stream[:cut])
    program(peer, image())
    assert held(peer, 3000) == image()


def test_boot_text_before_sync_is_no_answer_and_goes_to_the_console() -> None:
    noise: list[bytes] = []
    text = b"yyy ready\x79\x1f\r\n"
    program(RomPeer(), image(), pending=text, noise=noise)
    assert b"".join(noise) == text


@pytest.mark.parametrize("lost", [{0}, {0, 1}, {0, 1, 2, 3, 4}])
def test_lost_sync_bytes(lost: set[int]) -> None:
    peer = RomPeer()
    peer.drop_rx = lost
    program(peer, image())
    assert held(peer, 3000) == image()


def test_text_that_holds_an_ack_during_sync_does_not_fool_it() -> None:
    class Chatty(RomPeer):
        """An application that answers the first bytes with text, until it is reset into the boot ROM."""

        def feed(self, data: bytes) -> bytes:
            out = super().feed(data)
            return b"hello yes\r\n" if self.received < 3 else out

    peer = Chatty()
    program(peer, image())
    assert held(peer, 3000) == image()


def test_silent_board_is_named_with_what_was_heard() -> None:
    peer = RomPeer()
    peer.dead_after = 0
    with pytest.raises(BoardError, match="did not answer 0x7F") as caught:
        flasher(peer).connect(Deadline.after(10))
    assert caught.value.seen == "not one byte on the serial line"
    with pytest.raises(BoardError) as caught:
        flasher(peer, pending=b"login: ").connect(Deadline.after(10))
    assert "login:" in (caught.value.seen or "")


def test_wrong_product_is_refused_before_anything_is_erased() -> None:
    peer = RomPeer(product=0x413)
    with pytest.raises(BoardError, match="0x413, the bench file says 0x449; nothing was erased"):
        program(peer, image())
    assert peer.erased == []


# --- faults on the line -----------------------------------------------------------------------------------------------

# A healthy session to know the byte indexes of: sync, Get, Get ID, erase (2 + 5), then blocks of 2 + 5 + 258 bytes.
_FIRST_BLOCK = 1 + 2 + 2 + 2 + 5


@pytest.mark.parametrize("offset", range(0, 265, 7))
def test_lost_byte_anywhere_in_a_block(offset: int) -> None:
    peer = RomPeer()
    peer.drop_rx = {_FIRST_BLOCK + 265 + offset}
    done = program(peer, image(1024))
    assert held(peer, 1024) == image(1024)
    assert done.retries >= 1


@pytest.mark.parametrize("offset", range(0, 265, 7))
def test_flipped_bit_anywhere_in_a_block(offset: int) -> None:
    peer = RomPeer()
    peer.flip_rx = {_FIRST_BLOCK + 265 + offset: 0x04}
    done = program(peer, image(1024))
    assert held(peer, 1024) == image(1024)
    assert done.retries >= 1


def test_lost_byte_that_the_sync_byte_makes_up_for() -> None:
    """A lost 0x7F: the next 0x7F becomes a right checksum over shifted data, and the ROM programs that."""
    peer = RomPeer()
    data = bytearray(b"\x11" * 512)
    data[300] = 0x7F
    data[310] = 0x00
    peer.drop_rx = {_FIRST_BLOCK + 265 + 2 + 5 + 1 + (300 - 256)}
    done = program(peer, bytes(data))
    assert held(peer, 512) == data
    assert peer.erased == [0, 0]
    assert done.verified


def test_block_whose_ack_got_lost_is_not_written_twice() -> None:
    peer = RomPeer()
    peer.lose_ack_of_write = {1}
    done = program(peer, image(1024))
    assert held(peer, 1024) == image(1024)
    assert len(peer.writes) == 4
    assert done.retries == 1


def test_lost_byte_in_the_erase_command() -> None:
    peer = RomPeer()
    peer.drop_rx = {_FIRST_BLOCK - 2}
    program(peer, image())
    assert held(peer, 3000) == image()


def test_block_that_cannot_be_programmed_is_named_after_bounded_tries() -> None:
    peer = RomPeer()
    peer.nack_write_at = {FLASH + 512}
    with pytest.raises(BoardError, match=r"refused Write Memory of 256 bytes at 0x08000200 after 4 tries") as caught:
        program(peer, image(1024))
    assert caught.value.seen == "NACK at step `data`"


def test_read_protection_is_named() -> None:
    peer = RomPeer()
    peer.read_protected = True
    with pytest.raises(BoardError, match="refused Write Memory") as caught:
        program(peer, image())
    assert "read protection" in (caught.value.hint or "")


def test_board_that_dies_in_mid_flash_ends_with_the_place() -> None:
    peer = RomPeer()
    peer.dead_after = _FIRST_BLOCK + 265 + 100
    with pytest.raises(BoardError, match=r"stopped answering in Write Memory of 256 bytes at 0x08000100: no progress"):
        program(peer, image(1024))


def test_the_phases_deadline_ends_a_stuck_rom() -> None:
    peer = RomPeer()
    driver = flasher(peer)
    driver.connect(Deadline.after(10))
    peer.dead_after = 0
    with pytest.raises(BoardError, match="stopped answering"):
        driver.program([Region("image", FLASH, image())], [], lambda step: None, Deadline.after(0.05))


def test_flash_that_keeps_a_bit_fails_verify_at_its_address() -> None:
    peer = RomPeer()
    data = bytearray(image(1024))
    data[700] = 0x00
    peer.stuck_bits = {FLASH + 700: 0x20}
    with pytest.raises(BoardError, match=r"verify failed: 0x080002bc holds 0x20, 0x00 was written"):
        program(peer, bytes(data))


def test_bit_flipped_in_a_read_back_is_read_again() -> None:
    peer = RomPeer()
    peer.flip_read_once = {FLASH + 700: 0x01}
    done = program(peer, image(1024))
    assert done.verified
    assert done.retries == 1


# --- places -----------------------------------------------------------------------------------------------------------


def test_image_may_not_reach_into_the_identity_sector() -> None:
    peer = RomPeer()
    with pytest.raises(BoardError, match="reaches into sector 4"):
        program(peer, b"\x01" * ((128 << 10) + 1))
    assert peer.erased == []


@pytest.mark.parametrize("address", [0x0800_0000 - 4, 0x0810_0000 - 4, 0x2000_0000])
def test_image_outside_of_the_flash_is_refused(address: int) -> None:
    with pytest.raises(BoardError, match="does not fit the flash of STM32F74x/75x"):
        program(RomPeer(), b"12345678", address)
