"""AN3155 commands over a serial port: moves the bytes between it and the state machine, once or until they are good.

The speed comes from asking the port for exactly the bytes that are due and for no fixed wait; the protocol allows one
step in flight, so a block costs three round trips. Waits end by the caller's deadline, or when the ROM is silent for
longer than a step can take, or when one block makes no progress for NO_PROGRESS_S.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from rig.bench.model import Flash
from rig.board.events import printable
from rig.board.flash import an3155
from rig.board.flash.an3155 import BLOCK, Command, Done, Garbled, Noise, Refused, Synced
from rig.board.report import BoardSilentError
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
NO_PROGRESS_S = 10.0
BLOCK_TRIES = 4
HEARD_KEPT = 200
"""Bytes of what came instead of an answer that a message shows."""

_log = logging.getLogger(__name__)


class ByteLink(Protocol):
    """The part of SerialPort that is used. `read` waits a short while for up to `size` bytes."""

    def read(self, size: int) -> bytes: ...

    def write(self, data: bytes) -> None: ...

    def configure(self, baud: int, parity: Parity) -> None: ...


class Exchange:
    """The command loop of one boot ROM. console_bytes: takes text of an application that is still on the line."""

    def __init__(self, link: ByteLink, config: Flash, console_bytes: Callable[[bytes], None]) -> None:
        self._link, self._config, self._console_bytes = link, config, console_bytes
        self._rom = an3155.Bootloader()
        # 300 bytes of 11 bits: a start bit, eight data bits, parity and a stop bit.
        self._stall_s = STALL_S + 300 * 11 / config.baud
        self._heard = b""
        self.retries = 0
        """Steps and blocks that had to be sent or read again."""

    def open(self, deadline: Deadline) -> None:
        """Set speed and parity, let the line fall silent, synchronise. Raises BoardSilentError without an answer."""
        self._link.configure(self._config.baud, self._config.parity)
        self._drain(deadline, CHATTER_S)
        self._synchronise(deadline)

    def _drain(self, deadline: Deadline, longest_s: float) -> None:
        """Read until the line is silent; text of an application goes to the console's log."""
        until = deadline.at_most(longest_s)
        while not until.expired() and (data := self._link.read(4096)):
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
        raise BoardSilentError(
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

    def execute(self, command: Command, deadline: Deadline, silence_s: float = 0.0) -> Done | Refused | Garbled:
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

    def attempts(self, command: Command, deadline: Deadline, silence_s: float = 0.0) -> Iterator[Done]:
        """Yields each success; asking again means that its data was not good enough. Ends in BoardError."""
        until = deadline.at_most(NO_PROGRESS_S + silence_s)
        event: Done | Refused | Garbled | None = None
        tries = 0
        while tries < BLOCK_TRIES and not (tries and until.expired()):
            if tries:
                self.retries += 1
                if not isinstance(event, Done):
                    self.recover(command, until)
            event = self.execute(command, until, silence_s)
            tries += 1
            if isinstance(event, Done):
                yield event
            elif isinstance(event, Refused) and event.stage == "command" and tries == 2:
                break
        raise self.failed(command, event, tries, until)

    def recover(self, command: Command, deadline: Deadline) -> None:
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

    def ask(self, command: Command, deadline: Deadline) -> bytes:
        return next(self.attempts(command, deadline)).data

    def failed(self, command: Command, event: object, tries: int, until: Deadline) -> BoardError:
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

    def read(self, address: int, size: int, deadline: Deadline) -> bytes:
        """Memory content, any size."""
        return b"".join(
            self.ask(an3155.read_memory(at, min(BLOCK, address + size - at)), deadline)
            for at in range(address, address + size, BLOCK)
        )


_REFUSALS = {
    "command": "read protection (RDP) is set, or this ROM lacks the command; a mass erase by a debug probe lifts it",
    "address": "the address is not in this chip's flash or RAM",
    "data": "the block did not reach the ROM intact, or the flash word could not be programmed",
    "pages": "a sector that the chip does not have, or write protection",
    "number of bytes": "the request did not reach the ROM intact",
}
