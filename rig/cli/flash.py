"""`rig flash`: an image onto the board, without a plan."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rig.cli.commands import Commands, bench_option, bench_path
from rig.cli.exit_codes import OK


def add_to(commands: Commands) -> None:
    command = commands.add(
        "flash",
        _flash,
        "flash the board, boot it and prove what runs",
        "  rig flash zero_copy\n  rig flash build/my-app.elf --mode always",
    )
    command.add_argument("image", metavar="IMAGE", help="a variant of this project, or an .elf, .hex or .bin file")
    command.add_argument("--mode", choices=["always", "if-changed"], default="if-changed", help="Default: if-changed")
    bench_option(command)


def _flash(arguments: argparse.Namespace) -> int:
    from rig.board.image import load_image
    from rig.deadline import Deadline
    from rig.progress import TextProgress
    from rig.run import FLASH_S, find_image, flash_progress
    from rig.session import Rig

    named = Path(arguments.image)
    progress = TextProgress(sys.stdout)
    with Rig.of(bench_path(arguments)) as rig:
        path = named if named.suffix in (".elf", ".hex", ".bin") else find_image(arguments.image)
        image = load_image(path, rig.bench.board.flash.image_address)
        log = Path(os.devnull)
        deadline = Deadline.after(FLASH_S)
        with rig.board(log, 0) as board:
            progress.phase_begins("flash")
            report = board.flash(image, arguments.mode, deadline, lambda step: progress.update(flash_progress(step)))
            board.ensure_identity(deadline)
            note = "unchanged" if report.skipped else f"{report.written / 1024:.1f} KiB written"
            note += (", verified" if report.verified else "") + board.escalation()
            progress.phase_ends("flash", report.seconds, "ok", note)
            progress.phase_begins("boot")
            boot = board.reset_and_boot(deadline)
            board.prove_identity(image)
            progress.phase_ends("boot", 0.0, "ok", boot.line.text + board.escalation())
    return OK
