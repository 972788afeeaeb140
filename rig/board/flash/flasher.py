"""What every way of flashing offers: regions in, progress and proof out. A driver is one file and a line of DRIVERS."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from rig.bench.model import Flash
from rig.board.serial_port import SerialPort
from rig.deadline import Deadline
from rig.errors import BoardError


@dataclass(frozen=True)
class Region:
    """Bytes that belong at an address. name: `image`, `identity` or `weights`; path: the file as the user named it."""

    name: str
    address: int
    data: bytes
    path: Path | None = None

    @property
    def end(self) -> int:
        """First address after it."""
        return self.address + len(self.data)


@dataclass(frozen=True)
class Progress:
    """One step. done and total in bytes (erase: in sectors); rate in bytes/s and left_s are 0 until known."""

    phase: Literal["compare", "erase", "write", "verify"]
    done: int
    total: int
    rate: float
    left_s: float


ProgressSink = Callable[[Progress], None]


@dataclass(frozen=True)
class Programmed:
    """What a driver did. written: bytes sent, blocks of 0xFF left out; erased: in words; retries: blocks sent or read
    again; verified: read back by the rig and equal."""

    written: int
    erased: str
    retries: int
    verified: bool


class Flasher(Protocol):
    """One connection to whatever writes the flash. `regions` never share a sector."""

    def connect(self, deadline: Deadline) -> None:
        """Reach the boot ROM or the programmer. Raises BoardError when it does not answer or is another chip."""

    def matches(self, regions: Sequence[Region], first: int | None, progress: ProgressSink, deadline: Deadline) -> bool:
        """True when the flash provably holds these bytes; the block around address `first` is looked at first."""

    def program(
        self, regions: Sequence[Region], keep: Sequence[Region], progress: ProgressSink, deadline: Deadline
    ) -> Programmed:
        """Erase, write and verify. Refuses to erase a sector that a region of `keep` begins in."""

    def read(self, address: int, size: int, deadline: Deadline) -> bytes:
        """`size` bytes of flash. Raises BoardError where it cannot be read."""

    def go(self, address: int, deadline: Deadline) -> bool:
        """Start the program at `address` without a reset line; False where the driver cannot."""


class Lend(Protocol):
    """Hands the port to a program for the time of a `with`; writing: it may restart the board when it is done."""

    def __call__(self, deadline: Deadline, writing: bool) -> contextlib.AbstractContextManager[None]: ...


@dataclass(frozen=True)
class FlashLink:
    """What drivers may use: the port, its name, the board's log, and a way to give the port to somebody else."""

    port: SerialPort | None
    port_name: str
    note: Callable[[str], None]
    console_bytes: Callable[[bytes], None]
    lend: Lend = lambda deadline, writing: contextlib.nullcontext()


class Meter:
    """Rate and time left of one phase."""

    def __init__(self, phase: Literal["compare", "erase", "write", "verify"], total: int, sink: ProgressSink) -> None:
        self._phase, self._total, self._sink = phase, total, sink
        self._start_ns = time.monotonic_ns()

    def at(self, done: int) -> None:
        seconds = (time.monotonic_ns() - self._start_ns) / 1e9
        rate = done / seconds if seconds > 0 else 0.0
        self._sink(Progress(self._phase, done, self._total, rate, (self._total - done) / rate if rate else 0.0))


def make_flasher(config: Flash, link: FlashLink) -> Flasher:
    """The driver that the bench file names."""
    return DRIVERS[config.driver](config, link)


def _an3155(config: Flash, link: FlashLink) -> Flasher:
    from rig.board.flash.an3155_driver import An3155Flasher

    if link.port is None:
        raise BoardError("the AN3155 flasher needs the board's serial port open")
    return An3155Flasher(link.port, config, link.console_bytes)


def _command(config: Flash, link: FlashLink) -> Flasher:
    from rig.board.flash.command import CommandFlasher

    return CommandFlasher(config, link)


DRIVERS: dict[str, Callable[[Flash, FlashLink], Flasher]] = {
    "an3155": _an3155,
    "command": _command,
}

OWNS_PORT = frozenset({"command"})
"""Drivers whose program opens the serial port itself, so that the rig must have closed it."""


def can_read(config: Flash) -> bool:
    """True where the flash can be read back: then an image is compared, not only trusted."""
    return config.driver not in OWNS_PORT or config.read is not None
