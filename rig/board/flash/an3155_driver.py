"""Flashing built from AN3155 commands: compare, erase what is needed, write, read everything back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rig.bench.model import Flash
from rig.board.flash import an3155
from rig.board.flash.an3155 import BLOCK, Done, Refused
from rig.board.flash.an3155_exchange import BLOCK_TRIES, NO_PROGRESS_S, ByteLink, Exchange
from rig.board.flash.flasher import Meter, Programmed, ProgressSink, Region
from rig.board.flash.sectors import FlashMap, flash_map, sectors_for
from rig.deadline import Deadline
from rig.errors import BoardError

ERASE_S = 2.0
ERASE_S_PER_KIB = 1 / 32
"""Silence that erasing takes at worst: an STM32F7 needs up to 8 s for 256 KiB at 8-bit parallelism."""
MASS_ERASE_S = 40.0
PAD = 32
"""Blocks are filled up with 0xFF to this many bytes: the widest flash word of the family (STM32H7)."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Device:
    """What the ROM says of itself. commands: codes it supports; layout: None when the product is not in our table."""

    version: int
    commands: frozenset[int]
    product_id: int
    layout: FlashMap | None


class _SpoiltError(BoardError):
    """Flash holds zeros where ones belong."""


class An3155Flasher:
    """One boot ROM behind one port. `device` is known after `connect`."""

    def __init__(self, link: ByteLink, config: Flash, console_bytes: Callable[[bytes], None]) -> None:
        self._config = config
        self._rom = Exchange(link, config, console_bytes)
        self.device: Device | None = None

    @property
    def retries(self) -> int:
        """Steps and blocks that had to be sent or read again so far."""
        return self._rom.retries

    def connect(self, deadline: Deadline) -> None:
        """Synchronise, ask Get and Get ID, compare the product id with the bench file's."""
        self._rom.open(deadline)
        answer = self._rom.ask(an3155.get(), deadline)
        product = int.from_bytes(self._rom.ask(an3155.get_id(), deadline), "big")
        wanted = self._config.product_id
        if wanted is not None and product != wanted:
            raise BoardError(
                f"the board's product id is 0x{product:03x}, the bench file says 0x{wanted:03x}; nothing was erased",
                hint="wrong board on this port, or wrong `flash: {product_id: …}` in the bench file",
            )
        self.device = Device(answer[0], frozenset(answer[1:]), product, flash_map(product))

    def read(self, address: int, size: int, deadline: Deadline) -> bytes:
        """Memory content, any size."""
        return self._rom.read(address, size, deadline)

    def matches(self, regions: Sequence[Region], first: int | None, progress: ProgressSink, deadline: Deadline) -> bool:
        blocks = [block for region in regions for block in _blocks(region)]
        if self.device is not None and self.device.layout is not None:
            sectors_for(self.device.layout, regions, ())
        blocks.sort(key=lambda block: first is None or not block[0] <= first < block[0] + len(block[1]))
        total, done = sum(len(data) for _, data in blocks), 0
        meter = Meter("compare", total, progress)
        for address, data in blocks:
            if self.read(address, len(data), deadline) != data:
                return False
            done += len(data)
            meter.at(done)
        return True

    def program(
        self, regions: Sequence[Region], keep: Sequence[Region], progress: ProgressSink, deadline: Deadline
    ) -> Programmed:
        assert self.device is not None, "connect first"
        before = self._rom.retries
        try:
            written, erased = self._program_once(regions, keep, progress, deadline)
        except _SpoiltError as spoilt:
            # Only an erase sets bits again: start over, once.
            _log.debug("starting over: %s", spoilt.what)
            self._rom.retries += 1
            written, erased = self._program_once(regions, keep, progress, deadline)
        return Programmed(written, erased, self._rom.retries - before, True)

    def _program_once(
        self, regions: Sequence[Region], keep: Sequence[Region], progress: ProgressSink, deadline: Deadline
    ) -> tuple[int, str]:
        blocks = [block for region in regions for block in _blocks(region)]
        erased = self._erase(regions, keep, progress, deadline)
        blank = [data.count(0xFF) == len(data) for _, data in blocks]
        total = sum(len(data) for (_, data), empty in zip(blocks, blank, strict=True) if not empty)
        meter, done = Meter("write", total, progress), 0
        for (address, data), empty in zip(blocks, blank, strict=True):
            if not empty:
                self._write_block(address, data, deadline)
                done += len(data)
                meter.at(done)
        self._verify(blocks, progress, deadline)
        return total, erased

    def _erase(
        self, regions: Sequence[Region], keep: Sequence[Region], progress: ProgressSink, deadline: Deadline
    ) -> str:
        device = self.device
        assert device is not None
        extended = an3155.EXTENDED_ERASE in device.commands
        build = an3155.extended_erase if extended else an3155.erase
        if device.layout is None:
            if keep:
                raise BoardError(
                    f"the sectors of product 0x{device.product_id:03x} are not known here, and erasing everything "
                    f"would take the {keep[0].name} region along",
                    hint="set `identity_address: null` and `weights_address: null`, or flash with `driver: command`",
                )
            next(self._rom.attempts(build(None), deadline, MASS_ERASE_S))
            return "whole flash (sectors of this product are not known here)"
        sectors = sectors_for(device.layout, regions, keep)
        meter = Meter("erase", len(sectors), progress)
        # One sector per command: each has its own progress, and a refusal names the sector.
        for count, sector in enumerate(sectors, 1):
            silence_s = ERASE_S + ERASE_S_PER_KIB * (sector.size >> 10)
            next(self._rom.attempts(build([sector.number]), deadline, silence_s))
            meter.at(count)
        return f"sectors {', '.join(str(sector.number) for sector in sectors)}"

    def _write_block(self, address: int, data: bytes, deadline: Deadline) -> None:
        command = an3155.write_memory(address, data)
        until = deadline.at_most(NO_PROGRESS_S)
        event = self._rom.execute(command, until)
        tries = 1
        while not isinstance(event, Done):
            forbidden = isinstance(event, Refused) and event.stage == "command" and tries >= 2
            if tries >= BLOCK_TRIES or until.expired() or forbidden:
                raise self._rom.failed(command, event, tries, until)
            self._rom.retries += 1
            self._rom.recover(command, until)
            # The block may be in although its ACK was lost; flash with ECC refuses a second write of the same words.
            # It may also be in wrongly: a lost 0x7F is made up for by the synchronising one, shifted, checksum intact.
            # Then `_verify` finds it.
            asked = not (isinstance(event, Refused) and event.stage == "command")
            if asked and self.read(address, len(data), until) == data:
                return
            event = self._rom.execute(command, until)
            tries += 1

    def _verify(self, blocks: Iterable[tuple[int, bytes]], progress: ProgressSink, deadline: Deadline) -> None:
        blocks = list(blocks)
        meter, done = Meter("verify", sum(len(data) for _, data in blocks), progress), 0
        for address, data in blocks:
            # Read Memory carries no checksum: a difference is believed when a second read shows it again.
            previous: bytes | None = None
            for event in self._rom.attempts(an3155.read_memory(address, len(data)), deadline):
                if event.data == data:
                    break
                if event.data == previous:
                    at = next(i for i in range(len(data)) if data[i] != previous[i])
                    raise _SpoiltError(
                        f"verify failed: 0x{address + at:08x} holds 0x{previous[at]:02x}, 0x{data[at]:02x} was written",
                        hint="flash again; if the same address fails, the sector is worn or write-protected",
                    )
                previous = event.data
            done += len(data)
            meter.at(done)

    def go(self, address: int, deadline: Deadline) -> bool:
        self._rom.ask(an3155.go(address), deadline)
        return True


def _blocks(region: Region) -> Iterator[tuple[int, bytes]]:
    """A region as blocks of at most 256 bytes on 256-byte boundaries, filled up with 0xFF to whole flash words."""
    lead = region.address % PAD
    start = region.address - lead
    data = b"\xff" * lead + region.data
    data += b"\xff" * (-len(data) % PAD)
    at = 0
    while at < len(data):
        size = BLOCK - (start + at) % BLOCK
        yield start + at, data[at : at + size]
        at += size
