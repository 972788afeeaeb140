"""Flashing through a vendor's own programmer: its argument lists stand in the bench file.

`{image}` is a file, `{address}` (0x…) and `{size}` (bytes) are where its bytes belong, `{port}` is the serial port. A
programmer that takes no address gets Intel HEX, which carries its own (unless the image is an ELF). Without a `read`
program the rig cannot look into the flash: it reports `verified: False`, and the banner alone proves the image.

Reference: Intel Hexadecimal Object File Format rev. A.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rig.bench.model import Command, Flash
from rig.board.command import run_command
from rig.board.flash.flasher import FlashLink, Meter, Programmed, ProgressSink, Region
from rig.deadline import Deadline
from rig.errors import BoardError

_OWN_ADDRESSES = (".elf", ".hex")


class CommandFlasher:
    """One call of the programmer per region, the serial port lent to it for each."""

    def __init__(self, config: Flash, link: FlashLink) -> None:
        if config.command is None:
            raise BoardError(
                "the flash driver is `command`, but the bench file gives no `flash: {command: …}`",
                hint="give the programmer's argument list; {image}, {address} and {port} are replaced",
            )
        self._command, self._read, self._link = config.command, config.read, link
        self._takes_address = any("{address}" in argument for argument in self._command.command)

    def connect(self, deadline: Deadline) -> None:
        """Nothing to reach: the programmer does it."""

    def matches(self, regions: Sequence[Region], first: int | None, progress: ProgressSink, deadline: Deadline) -> bool:
        if self._read is None:
            return False
        meter, done = Meter("compare", sum(len(region.data) for region in regions), progress), 0
        for region in regions:
            try:
                found = self.read(region.address, len(region.data), deadline)
            except BoardError as error:
                # Flash with ECC cannot be read while it is erased; if nothing can be read, verifying will say so.
                self._link.note(f"cannot compare, so it is written: {error.what}")
                return False
            if found != region.data:
                return False
            done += len(region.data)
            meter.at(done)
        return True

    def program(
        self, regions: Sequence[Region], keep: Sequence[Region], progress: ProgressSink, deadline: Deadline
    ) -> Programmed:
        total = sum(len(region.data) for region in regions)
        meter, done = Meter("write", total, progress), 0
        with tempfile.TemporaryDirectory(prefix="rig-flash-") as folder:
            for index, region in enumerate(regions):
                # A file that carries its own addresses holds all regions: it goes to the programmer once.
                if region.path not in [other.path for other in regions[:index]] or not _has_addresses(region.path):
                    self._write(region, Path(folder), deadline)
                done += len(region.data)
                meter.at(done)
        if self._read is None:
            return Programmed(total, "by the programmer", 0, False)
        self._verify(regions, progress, deadline)
        return Programmed(total, "by the programmer", 0, True)

    def _write(self, region: Region, folder: Path, deadline: Deadline) -> None:
        path = region.path
        if path is None or not _has_addresses(path):
            path = folder / f"{region.name}-{region.address:08x}.{'bin' if self._takes_address else 'hex'}"
            path.write_bytes(region.data if self._takes_address else intel_hex(region.address, region.data))
        with self._link.lend(deadline, True):
            self._run(self._command, path, region.address, len(region.data), deadline)

    def _verify(self, regions: Sequence[Region], progress: ProgressSink, deadline: Deadline) -> None:
        meter, done = Meter("verify", sum(len(region.data) for region in regions), progress), 0
        for region in regions:
            found = self.read(region.address, len(region.data), deadline)
            if found != region.data:
                at = next(i for i in range(len(found)) if found[i] != region.data[i])
                raise BoardError(
                    f"verify failed: 0x{region.address + at:08x} holds 0x{found[at]:02x}, 0x{region.data[at]:02x} was "
                    f"to be written, although `{self._command.command[0]}` reported success",
                    hint="run the programmer by hand; compare its address with `image_address` in the bench file",
                )
            done += len(region.data)
            meter.at(done)

    def read(self, address: int, size: int, deadline: Deadline) -> bytes:
        if self._read is None:
            raise BoardError(
                "the flash of this board cannot be read", hint="give `flash: {read: …}` in the bench file a program"
            )
        with tempfile.TemporaryDirectory(prefix="rig-flash-") as folder:
            path = Path(folder) / "read.bin"
            with self._link.lend(deadline, False):
                self._run(self._read, path, address, size, deadline)
            found = path.read_bytes() if path.is_file() else b""
        if len(found) < size:
            raise BoardError(
                f"`{self._read.command[0]}` was to read {size} bytes at 0x{address:08x} and left {len(found)}",
                hint="its file must be raw binary; the program's output is in board.log",
            )
        return found[:size]

    def _run(self, command: Command, path: Path, address: int, size: int, deadline: Deadline) -> None:
        values = {"image": str(path), "port": self._link.port_name, "address": f"0x{address:08x}", "size": str(size)}
        run_command(command, values, deadline, self._link.note)

    def go(self, address: int, deadline: Deadline) -> bool:
        return False


def _has_addresses(path: Path | None) -> bool:
    return path is not None and path.suffix.lower() in _OWN_ADDRESSES


def intel_hex(address: int, data: bytes) -> bytes:
    """`data` as an Intel HEX file of 16-byte records."""
    return b"".join(
        b":" + (body + bytes([-sum(body) & 0xFF])).hex().upper().encode() + b"\n" for body in _records(address, data)
    )


def _records(address: int, data: bytes) -> Iterator[bytes]:
    upper = -1
    at = 0
    while at < len(data):
        place = address + at
        if place >> 16 != upper:
            upper = place >> 16
            yield b"\x02\x00\x00\x04" + upper.to_bytes(2, "big")
        size = min(16, len(data) - at, 0x1_0000 - (place & 0xFFFF))
        yield bytes([size]) + (place & 0xFFFF).to_bytes(2, "big") + b"\x00" + data[at : at + size]
        at += size
    yield b"\x00\x00\x00\x01"
