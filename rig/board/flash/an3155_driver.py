"""Moves the bytes of AN3155 between a serial port and the state machine, and builds flashing from its commands.

The speed comes from asking the port for exactly the bytes that are due and for no fixed wait; the protocol allows one
step in flight, so a block costs three round trips. Waits end by the caller's deadline, or when the ROM is silent for
longer than a step can take, or when one block makes no progress for NO_PROGRESS_S.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rig.bench.model import Flash
from rig.board.events import printable
from rig.board.flash import an3155
from rig.board.flash.an3155 import BLOCK, Command, Done, Garbled, Noise, Refused, Synced
from rig.board.flash.flasher import Meter, Programmed, ProgressSink, Region
from rig.board.flash.sectors import FlashMap, Sector, flash_map
from rig.board.serial_port import BoardLostError, Parity
from rig.deadline import Deadline
from rig.errors import BoardError

SYNC_S = 5.0
"""Longest synchronisation; a ROM is up within tens of ms of its reset."""
SYNC_REPLY_S = 0.1
"""Wait for the answer to one 0x7F."""
FILL_AFTER = 3
"""Unanswered 0x7F after which a half-sent step is assumed and filled up."""
CHATTER_S = 1.0
"""Longest wait for the line to fall silent before the first 0x7F."""
STALL_S = 2.0
"""Silence, beyond the time on the wire, after which a step is given up."""
ERASE_S = 2.0
ERASE_S_PER_KIB = 1 / 32
"""Silence that erasing takes at worst: an STM32F7 needs up to 8 s for 256 KiB at 8-bit parallelism."""
MASS_ERASE_S = 40.0
NO_PROGRESS_S = 10.0
BLOCK_TRIES = 4
HEARD_KEPT = 200
"""Bytes of what came instead of an answer that a message shows."""
PAD = 32
"""Blocks are filled up with 0xFF to this many bytes: the widest flash word of the family (STM32H7)."""

_log = logging.getLogger(__name__)


class ByteLink(Protocol):
    """The part of SerialPort that is used. `read` waits a short while for up to `size` bytes."""

    def read(self, size: int) -> bytes: ...

    def write(self, data: bytes) -> None: ...

    def configure(self, baud: int, parity: Parity) -> None: ...


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
        self._link, self._config, self._console_bytes = link, config, console_bytes
        self._rom = an3155.Bootloader()
        # 300 bytes of 11 bits: a start bit, eight data bits, parity and a stop bit.
        self._stall_s = STALL_S + 300 * 11 / config.baud
        self._heard = b""
        self.retries = 0
        self.device: Device | None = None

    # --- connection --------------------------------------------------------------------------------------------------

    def connect(self, deadline: Deadline) -> None:
        """Synchronise, ask Get and Get ID, compare the product id with the bench file's."""
        self._link.configure(self._config.baud, self._config.parity)
        self._drain(deadline, CHATTER_S)
        self._synchronise(deadline)
        answer = self._ask(an3155.get(), deadline)
        product = int.from_bytes(self._ask(an3155.get_id(), deadline), "big")
        wanted = self._config.product_id
        if wanted is not None and product != wanted:
            raise BoardError(
                f"the board's product id is 0x{product:03x}, the bench file says 0x{wanted:03x}; nothing was erased",
                hint="wrong board on this port, or wrong `flash: {product_id: …}` in the bench file",
            )
        self.device = Device(answer[0], frozenset(answer[1:]), product, flash_map(product))

    def _drain(self, deadline: Deadline, longest_s: float) -> None:
        """Read until the line is silent; text of an application goes to the console's log."""
        until = deadline.at_most(longest_s)
        while (data := self._link.read(4096)) and not until.expired():
            self._heard = (self._heard + data)[:HEARD_KEPT]
            self._console_bytes(data)

    def _synchronise(self, deadline: Deadline) -> None:
        until = deadline.at_most(SYNC_S)
        attempt = 0
        while not until.expired():
            attempt += 1
            self._link.write(self._rom.probe(fill=attempt % (FILL_AFTER + 1) == 0))
            if self._synced(until.at_most(SYNC_REPLY_S)):
                if attempt > 1:
                    self._drain(until, CHATTER_S)
                return
        settings = f"{self._config.baud} baud, parity {self._config.parity}"
        raise BoardError(
            f"the boot ROM did not answer 0x7F within {until.budget_s:g} s ({attempt} tries at {settings})",
            seen=printable(self._heard.strip()) if self._heard else "not one byte on the serial line",
            hint="is the board in its boot ROM? Check the boot and reset lines in the bench file, power, TX and RX; "
            "AN3155 on hardware needs parity even",
        )

    def _synced(self, until: Deadline) -> bool:
        while True:
            data = self._link.read(1)
            _, events = self._rom.receive(data)
            for event in events:
                if isinstance(event, Synced):
                    _log.debug("synchronised, %s", "already in the command loop" if event.already else "fresh")
                    return True
                if isinstance(event, Noise):
                    self._heard = (self._heard + event.data)[:HEARD_KEPT]
                    self._console_bytes(event.data)
            if until.expired():
                return False

    # --- one command -------------------------------------------------------------------------------------------------

    def _execute(self, command: Command, deadline: Deadline, silence_s: float = 0.0) -> Done | Refused | Garbled:
        """One attempt. `silence_s`: extra silence that is normal for this command."""
        rom, link = self._rom, self._link
        link.write(rom.send(command))
        allowed_ns = int((self._stall_s + silence_s) * 1e9)
        heard_ns = time.monotonic_ns()
        while True:
            if data := link.read(rom.wanted):
                out, events = rom.receive(data)
                if out:
                    link.write(out)
                if events:
                    event = events[-1]
                    _log.debug("%s: %s", command, type(event).__name__)
                    assert isinstance(event, Done | Refused | Garbled)
                    return event
                heard_ns = time.monotonic_ns()
            elif time.monotonic_ns() - heard_ns > allowed_ns or deadline.expired():
                lost = rom.lost()
                assert lost is not None
                _log.debug("%s: silence at step `%s`", command, lost.stage)
                return lost

    def _attempts(self, command: Command, deadline: Deadline, silence_s: float = 0.0) -> Iterator[Done]:
        """Yields each success; asking again means that its data was not good enough. Ends in BoardError."""
        until = deadline.at_most(NO_PROGRESS_S + silence_s)
        event: Done | Refused | Garbled | None = None
        tries = 0
        while tries < BLOCK_TRIES and not (tries and until.expired()):
            if tries:
                self.retries += 1
                if not isinstance(event, Done):
                    self._recover(command, until)
            event = self._execute(command, until, silence_s)
            tries += 1
            if isinstance(event, Done):
                yield event
            elif isinstance(event, Refused) and event.stage == "command" and tries == 2:
                break
        raise self._failed(command, event, tries, until)

    def _recover(self, command: Command, deadline: Deadline) -> None:
        """Back to a command boundary after `command` went wrong."""
        self._drain(deadline, CHATTER_S)
        self._rom = an3155.Bootloader()
        try:
            self._synchronise(deadline)
        except BoardLostError:
            raise
        except BoardError as error:
            raise BoardError(
                f"the boot ROM stopped answering in {command}: no progress for {deadline.budget_s:g} s",
                seen=error.what,
                hint="power, cable, or a weak supply while flash is written; try a lower `flash: {baud: …}`",
            ) from error

    def _ask(self, command: Command, deadline: Deadline) -> bytes:
        return next(self._attempts(command, deadline)).data

    def _failed(self, command: Command, event: object, tries: int, until: Deadline) -> BoardError:
        times = f"after {tries} tr{'y' if tries == 1 else 'ies'}"
        if isinstance(event, Refused):
            return BoardError(
                f"the boot ROM refused {command} {times}",
                seen=f"NACK at step `{event.stage}`",
                hint=_REFUSALS.get(event.stage, "see the board's reference manual"),
            )
        if isinstance(event, Garbled) and event.byte is None:
            late = f"no progress for {until.budget_s:g} s" if until.expired() else times
            return BoardError(
                f"the boot ROM stopped answering in {command}: {late}",
                seen=f"silence at step `{event.stage}`",
                hint="power, cable, or a weak supply while flash is written; try a lower `flash: {baud: …}`",
            )
        byte = f"0x{event.byte:02x} at step `{event.stage}`" if isinstance(event, Garbled) else "changing data"
        return BoardError(
            f"the boot ROM's answers to {command} make no sense {times}",
            seen=byte,
            hint="noise on the line, wrong parity or speed, or another program reading the same port",
        )

    # --- flashing ----------------------------------------------------------------------------------------------------

    def read(self, address: int, size: int, deadline: Deadline) -> bytes:
        """Memory content, any size."""
        return b"".join(
            self._ask(an3155.read_memory(at, min(BLOCK, address + size - at)), deadline)
            for at in range(address, address + size, BLOCK)
        )

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
        before = self.retries
        try:
            written, erased = self._program_once(regions, keep, progress, deadline)
        except _SpoiltError as spoilt:
            # Only an erase sets bits again: start over, once.
            _log.debug("starting over: %s", spoilt.what)
            self.retries += 1
            written, erased = self._program_once(regions, keep, progress, deadline)
        return Programmed(written, erased, self.retries - before, True)

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
            next(self._attempts(build(None), deadline, MASS_ERASE_S))
            return "whole flash (sectors of this product are not known here)"
        sectors = sectors_for(device.layout, regions, keep)
        meter = Meter("erase", len(sectors), progress)
        # One sector per command: each has its own progress, and a refusal names the sector.
        for count, sector in enumerate(sectors, 1):
            silence_s = ERASE_S + ERASE_S_PER_KIB * (sector.size >> 10)
            next(self._attempts(build([sector.number]), deadline, silence_s))
            meter.at(count)
        return f"sectors {', '.join(str(sector.number) for sector in sectors)}"

    def _write_block(self, address: int, data: bytes, deadline: Deadline) -> None:
        command = an3155.write_memory(address, data)
        until = deadline.at_most(NO_PROGRESS_S)
        event = self._execute(command, until)
        tries = 1
        while not isinstance(event, Done):
            forbidden = isinstance(event, Refused) and event.stage == "command" and tries >= 2
            if tries >= BLOCK_TRIES or until.expired() or forbidden:
                raise self._failed(command, event, tries, until)
            self.retries += 1
            self._recover(command, until)
            # The block may be in although its ACK was lost; flash with ECC refuses a second write of the same words.
            # It may also be in wrongly: a lost 0x7F is made up for by the synchronising one, shifted, checksum intact.
            # Then `_verify` finds it.
            asked = not (isinstance(event, Refused) and event.stage == "command")
            if asked and self.read(address, len(data), until) == data:
                return
            event = self._execute(command, until)
            tries += 1

    def _verify(self, blocks: Iterable[tuple[int, bytes]], progress: ProgressSink, deadline: Deadline) -> None:
        blocks = list(blocks)
        meter, done = Meter("verify", sum(len(data) for _, data in blocks), progress), 0
        for address, data in blocks:
            # Read Memory carries no checksum: a difference is believed when a second read shows it again.
            previous: bytes | None = None
            for event in self._attempts(an3155.read_memory(address, len(data)), deadline):
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
        self._ask(an3155.go(address), deadline)
        return True


_REFUSALS = {
    "command": "read protection (RDP) is set, or this ROM lacks the command; a mass erase by a debug probe lifts it",
    "address": "the address is not in this chip's flash or RAM",
    "data": "the block did not reach the ROM intact, or the flash word could not be programmed",
    "pages": "a sector that the chip does not have, or write protection",
    "number of bytes": "the request did not reach the ROM intact",
}


def sectors_for(layout: FlashMap, regions: Sequence[Region], keep: Sequence[Region]) -> list[Sector]:
    """The sectors to erase, in order. Raises BoardError for bytes outside of the flash or a sector that must stay."""
    needed: dict[int, Sector] = {}
    for region in regions:
        if region.address < layout.start or region.end > layout.end:
            raise BoardError(
                f"the {region.name} region 0x{region.address:08x} to 0x{region.end - 1:08x} does not fit the flash of "
                f"{layout.name}, 0x{layout.start:08x} to 0x{layout.end - 1:08x}",
                hint="wrong image for this board, or a wrong address in the bench file",
            )
        for sector in layout.covering(region.address, len(region.data)):
            needed[sector.number] = sector
            for kept in keep:
                if kept.name != region.name and sector.address <= kept.address < sector.end:
                    raise BoardError(
                        f"the {region.name} region reaches into sector {sector.number} (0x{sector.address:08x}), "
                        f"which holds the {kept.name} region",
                        hint=f"make it smaller, or move `{kept.name}_address` in the bench file (null: none)",
                    )
    return [needed[number] for number in sorted(needed)]


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
