"""The USART protocol of the STM32 boot ROM as a state machine: bytes in, events and bytes out, no port inside.

Reference: STMicroelectronics AN3155 "USART protocol used in the STM32 bootloader"; section titles are quoted where a
command is built. Boot patterns and product ids: AN2606.

Theory of operation. The ROM first waits for 0x7F, measures its bit time, answers ACK and enters its command loop. A
command is a code and its complement; what follows is sent in steps, each ended by a checksum and answered by ACK or
NACK, so at most one step is ever in flight. After a NACK the ROM is back in its command loop.

    UNSYNCED --0x7F / ACK or NACK--> READY --command--> BUSY --last reply--> READY
                                       BUSY --NACK--> READY (Refused)
                                       BUSY --other byte, or the driver's lost()--> UNSYNCED (Garbled)

In the command loop a lone 0x7F is the first half of a command; a second one makes a wrong complement and is answered
NACK. So NACK to 0x7F means "already synchronised", and after more than one 0x7F an ACK alone does not prove that the
ROM stands at a command boundary: only the NACK does. When bytes were lost in the middle of a step, further 0x7F fill
it up, its checksum fails, and the same NACK comes.
"""

from __future__ import annotations

import enum
import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

INIT = 0x7F
ACK = 0x79
NACK = 0x1F

BLOCK = 256
"""Most bytes that one Read Memory or Write Memory moves."""
FILL = bytes([INIT]) * (BLOCK + 2)
"""Ends any step that waits for more bytes (the longest is Write Memory's N, 256 data bytes and checksum)."""

GET, GET_VERSION, GET_ID, READ_MEMORY, GO, WRITE_MEMORY, ERASE, EXTENDED_ERASE = (
    0x00, 0x01, 0x02, 0x11, 0x21, 0x31, 0x43, 0x44,
)  # fmt: skip


class State(enum.Enum):
    UNSYNCED = "unsynced"
    READY = "ready"
    BUSY = "busy"


class LocalError(Exception):
    """The caller broke the protocol's rules (a command while another is under way, a block too long)."""


# --- what is sent -----------------------------------------------------------------------------------------------------


class _Reply(enum.Enum):
    ACK = "ACK"
    COUNTED = "N and N + 1 bytes"


@dataclass(frozen=True)
class Step:
    """Bytes that go out together, and what answers them: ACK, a counted list, or a known number of bytes."""

    stage: str
    send: bytes
    replies: tuple[_Reply | int, ...] = (_Reply.ACK,)


@dataclass(frozen=True)
class Command:
    """A command as its steps. `name` is the note's own; `detail` says on what (an address, a number of pages)."""

    name: str
    steps: tuple[Step, ...]
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.detail}".rstrip()


def checksum(data: bytes) -> int:
    """XOR of all bytes."""
    return functools.reduce(operator.xor, data, 0)


def get() -> Command:
    """Get command: version, then the codes of the supported commands."""
    return Command("Get", (_opcode(GET, _Reply.ACK, _Reply.COUNTED, _Reply.ACK),))


def get_version() -> Command:
    """Get Version command: version and two option bytes (kept for compatibility, 0x00)."""
    return Command("Get Version", (_opcode(GET_VERSION, _Reply.ACK, 3, _Reply.ACK),))


def get_id() -> Command:
    """Get ID command: the product id, two bytes, most significant first."""
    return Command("Get ID", (_opcode(GET_ID, _Reply.ACK, _Reply.COUNTED, _Reply.ACK),))


def read_memory(address: int, size: int) -> Command:
    """Read Memory command: 1 to 256 bytes."""
    _check_size(size)
    count = size - 1
    steps = (
        _opcode(READ_MEMORY),
        _address(address),
        Step("number of bytes", bytes([count, count ^ 0xFF]), (_Reply.ACK, size)),
    )
    return Command("Read Memory", steps, f"of {size} bytes at 0x{address:08x}")


def write_memory(address: int, data: bytes) -> Command:
    """Write Memory command: 1 to 256 bytes, a multiple of 4 at an address that is a multiple of 4."""
    _check_size(len(data))
    if len(data) % 4 or address % 4:
        raise LocalError(f"Write Memory of {len(data)} bytes at 0x{address:08x} is not a whole number of words")
    body = bytes([len(data) - 1]) + data
    steps = (_opcode(WRITE_MEMORY), _address(address), Step("data", body + bytes([checksum(body)])))
    return Command("Write Memory", steps, f"of {len(data)} bytes at 0x{address:08x}")


def erase(pages: Sequence[int] | None) -> Command:
    """Erase Memory command (older ROMs): page codes of one byte, or None for a global erase."""
    if pages is None:
        return Command("Erase Memory", (_opcode(ERASE), Step("pages", b"\xff\x00")), "of all pages")
    if not 1 <= len(pages) <= 255 or not all(0 <= page <= 0xFF for page in pages):
        raise LocalError(f"Erase Memory takes 1 to 255 pages with codes up to 255, not {len(pages)}")
    body = bytes([len(pages) - 1, *pages])
    return Command("Erase Memory", (_opcode(ERASE), Step("pages", body + bytes([checksum(body)]))), _pages(pages))


def extended_erase(pages: Sequence[int] | None) -> Command:
    """Extended Erase Memory command: page codes of two bytes, or None for a mass erase (code 0xFFFF)."""
    if pages is None:
        return Command(
            "Extended Erase", (_opcode(EXTENDED_ERASE), Step("pages", b"\xff\xff\x00")), "of the whole flash"
        )
    if not 1 <= len(pages) <= 0xFFF0 or not all(0 <= page <= 0xFFFF for page in pages):
        raise LocalError(f"Extended Erase takes 1 to 65520 pages with codes up to 65535, not {len(pages)}")
    body = b"".join(number.to_bytes(2, "big") for number in (len(pages) - 1, *pages))
    steps = (_opcode(EXTENDED_ERASE), Step("pages", body + bytes([checksum(body)])))
    return Command("Extended Erase", steps, _pages(pages))


def go(address: int) -> Command:
    """Go command: jump to the vector table at `address`."""
    return Command("Go", (_opcode(GO), _address(address)), f"to 0x{address:08x}")


def _opcode(code: int, *replies: _Reply | int) -> Step:
    return Step("command", bytes([code, code ^ 0xFF]), replies or (_Reply.ACK,))


def _address(address: int) -> Step:
    if not 0 <= address <= 0xFFFF_FFFF:
        raise LocalError(f"address {address:#x} does not fit 32 bits")
    raw = address.to_bytes(4, "big")
    return Step("address", raw + bytes([checksum(raw)]))


def _check_size(size: int) -> None:
    if not 1 <= size <= BLOCK:
        raise LocalError(f"a block has 1 to {BLOCK} bytes, not {size}")


def _pages(pages: Sequence[int]) -> str:
    return f"of {len(pages)} page{'s' if len(pages) > 1 else ''} ({pages[0]} to {pages[-1]})"


# --- what comes back --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Synced:
    """The ROM answers. already: it was in its command loop before."""

    already: bool


@dataclass(frozen=True)
class Noise:
    """Bytes that are no answer to 0x7F: text of the application, line noise."""

    data: bytes


@dataclass(frozen=True)
class Done:
    """A command ended well. data: what it returned, without ACKs and counts."""

    command: Command
    data: bytes


@dataclass(frozen=True)
class Refused:
    """NACK. stage: the step that was refused."""

    command: Command
    stage: str


@dataclass(frozen=True)
class Garbled:
    """Neither ACK nor NACK where one was due, or nothing at all (byte is None): synchronise again."""

    command: Command
    stage: str
    byte: int | None


Event = Synced | Noise | Done | Refused | Garbled


class Bootloader:
    """The host's side of one connection."""

    def __init__(self) -> None:
        self.state = State.UNSYNCED
        self._probes = 0
        self._need_nack = False
        self._command: Command | None = None
        self._step = 0
        self._reply = 0
        self._count: int | None = None
        self._raw = bytearray()
        self._data = bytearray()

    @property
    def wanted(self) -> int:
        """How many bytes to read next: never more than are due, so a blocking read does not wait for nothing."""
        if self.state is not State.BUSY or self._command is None:
            return 1
        reply = self._command.steps[self._step].replies[self._reply]
        if isinstance(reply, int):
            return reply - len(self._raw)
        if reply is _Reply.COUNTED and self._count is not None:
            return self._count - len(self._raw)
        return 1

    # --- out ---

    def probe(self, fill: bool = False) -> bytes:
        """The next 0x7F of a synchronisation; `fill` sends enough of them to end any half-sent step."""
        if self.state is State.BUSY:
            raise LocalError(f"0x7F while {self._command} is under way")
        data = FILL if fill else bytes([INIT])
        self.state = State.UNSYNCED
        self._probes += len(data)
        return data

    def send(self, command: Command) -> bytes:
        """Begin a command; the bytes of its first step."""
        if self.state is not State.READY:
            raise LocalError(f"{command} in state {self.state.value}")
        self.state = State.BUSY
        self._command, self._step, self._reply, self._count = command, 0, 0, None
        self._raw.clear()
        self._data.clear()
        return command.steps[0].send

    # --- in ---

    def lost(self) -> Garbled | None:
        """The driver waited long enough: give up the command under way (None if there is none)."""
        if self.state is not State.BUSY or self._command is None:
            return None
        return self._garbled(None)

    def receive(self, data: bytes) -> tuple[bytes, list[Event]]:
        """Take received bytes; returns bytes to send now and events, in order.

        Bytes that come when nothing is due are dropped in state READY and are Noise in state UNSYNCED.
        """
        out = b""
        events: list[Event] = []
        for byte in data:
            if self.state is State.UNSYNCED:
                self._sync(byte, events)
            elif self.state is State.BUSY:
                out += self._take(byte, events)
        return out, events

    def _sync(self, byte: int, events: list[Event]) -> None:
        if byte == NACK and self._probes:
            events.append(Synced(already=True))
        elif byte == ACK and self._probes == 1 and not self._need_nack:
            events.append(Synced(already=False))
        elif byte == ACK and self._probes:
            self._need_nack = True
            return
        elif events and isinstance(events[-1], Noise):
            events[-1] = Noise(events[-1].data + bytes([byte]))
            return
        else:
            events.append(Noise(bytes([byte])))
            return
        self.state, self._probes, self._need_nack = State.READY, 0, False

    def _take(self, byte: int, events: list[Event]) -> bytes:
        command = self._command
        assert command is not None
        step = command.steps[self._step]
        reply = step.replies[self._reply]
        if reply is _Reply.ACK:
            if byte == NACK:
                self.state = State.READY
                events.append(Refused(command, step.stage))
                return b""
            if byte != ACK:
                events.append(self._garbled(byte))
                return b""
        elif reply is _Reply.COUNTED and self._count is None:
            self._count = byte + 1
            return b""
        else:
            self._raw.append(byte)
            if len(self._raw) < (reply if isinstance(reply, int) else self._count or 0):
                return b""
            self._data += self._raw
            self._raw.clear()
        return self._advance(command, step, events)

    def _advance(self, command: Command, step: Step, events: list[Event]) -> bytes:
        self._count = None
        self._reply += 1
        if self._reply < len(step.replies):
            return b""
        self._reply = 0
        self._step += 1
        if self._step < len(command.steps):
            return command.steps[self._step].send
        self.state = State.READY
        events.append(Done(command, bytes(self._data)))
        return b""

    def _garbled(self, byte: int | None) -> Garbled:
        assert self._command is not None
        self.state, self._probes, self._need_nack = State.UNSYNCED, 0, False
        return Garbled(self._command, self._command.steps[self._step].stage, byte)
