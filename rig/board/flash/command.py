"""Flashing through a vendor's own programmer: its argument list stands in the bench file.

`{image}` is a file, `{address}` its address as 0x…, `{port}` the serial port. The rig cannot read the flash back this
way, so it reports `verified: False` and proves the image by the banner's build id alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from rig.bench.model import Flash
from rig.board.command import run_command
from rig.board.flash.flasher import FlashLink, Meter, Programmed, ProgressSink, Region
from rig.deadline import Deadline
from rig.errors import BoardError


class CommandFlasher:
    """One call of the programmer per region."""

    def __init__(self, config: Flash, link: FlashLink) -> None:
        if config.command is None:
            raise BoardError(
                "the flash driver is `command`, but the bench file gives no `flash: {command: …}`",
                hint="give the programmer's argument list; {image}, {address} and {port} are replaced",
            )
        self._command, self._link = config.command, link

    def connect(self, deadline: Deadline) -> None:
        """Nothing to reach: the programmer does it."""

    def matches(self, regions: Sequence[Region], first: int | None, progress: ProgressSink, deadline: Deadline) -> bool:
        return False

    def program(
        self, regions: Sequence[Region], keep: Sequence[Region], progress: ProgressSink, deadline: Deadline
    ) -> Programmed:
        total = sum(len(region.data) for region in regions)
        meter = Meter("write", total, progress)
        done = 0
        takes_address = any("{address}" in argument for argument in self._command.command)
        if not takes_address and any(region.name != "image" for region in regions):
            raise BoardError(
                f"the programmer's command has no {{address}}, so it cannot write the {regions[0].name} region",
                hint="add {address} to `flash: {command: …}`, or set `identity_address: null` and keep the board's own",
            )
        with tempfile.TemporaryDirectory(prefix="rig-flash-") as directory:
            for region in regions:
                path = region.path
                # A file that carries its own addresses goes to the programmer untouched, once.
                if path is None or path.suffix.lower() not in (".elf", ".hex"):
                    path = Path(directory) / f"{region.name}-{region.address:08x}.bin"
                    path.write_bytes(region.data)
                elif region is not next(other for other in regions if other.path == path):
                    done += len(region.data)
                    continue
                values = {"image": str(path), "port": self._link.port_name, "address": f"0x{region.address:08x}"}
                run_command(self._command, values, deadline, self._link.note)
                done += len(region.data)
                meter.at(done)
        return Programmed(total, "by the programmer", 0, False)

    def go(self, address: int, deadline: Deadline) -> bool:
        return False
