"""`rig flash`: an image onto the board, without a plan."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rig.cli.commands import Commands, bench_option, bench_path
from rig.cli.exit_codes import FAILED, OK

if TYPE_CHECKING:
    from rig.board.board import Board
    from rig.board.image import Image
    from rig.board.report import FlashMode
    from rig.progress import Progress


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
    from rig.bench.lease import state_folder
    from rig.board.image import IMAGES, image_file, load_image
    from rig.board.report import BootFailure
    from rig.errors import RigError
    from rig.progress import TextProgress
    from rig.run import find_image
    from rig.session import Rig

    named = Path(arguments.image)
    path = image_file(named) if named.suffix.lower() in IMAGES else find_image(arguments.image)
    with Rig.of(bench_path(arguments)) as rig:
        image = load_image(path, rig.bench.board.flash.image_address)
        log = state_folder(rig.name) / "board.log"
        log.unlink(missing_ok=True)
        try:
            with rig.board(log, time.monotonic_ns()) as board:
                _write_and_boot(board, image, arguments.mode, TextProgress(sys.stdout))
        except BootFailure as failure:
            print(f"FAIL: {failure}\n  next step: see what it said in {log}", file=sys.stderr)
            return FAILED
        except RigError:
            print(f"board.log: {log}", file=sys.stderr)
            raise
    return OK


def _write_and_boot(board: Board, image: Image, mode: FlashMode, progress: Progress) -> None:
    from rig.board.escalation import boot_bound_s, flash_programs_bound_s
    from rig.deadline import Deadline
    from rig.run import FLASH_S, IDENTITY_S, flash_progress

    with _phase(progress, "flash") as notes:
        deadline = Deadline.after(FLASH_S + flash_programs_bound_s(board.config, len(image.segments) + 1))
        report = board.flash(image, mode, deadline, lambda step: progress.update(flash_progress(step)))
        board.ensure_identity(deadline)
        notes.append("unchanged" if report.skipped else f"{report.written / 1024:.1f} KiB written")
        notes.append((", verified" if report.verified else "") + board.escalation())
    with _phase(progress, "boot") as notes:
        boot = board.reset_and_boot(Deadline.after(boot_bound_s(board.config) + IDENTITY_S), progress.update)
        board.prove_identity(image)
        notes.append(boot.line.text + board.escalation())


@contextlib.contextmanager
def _phase(progress: Progress, name: str) -> Iterator[list[str]]:
    """The line of a phase, however it ends; its note is what the block appends."""
    began, outcome = time.monotonic(), "failed"
    notes: list[str] = []
    progress.phase_begins(name)
    try:
        yield notes
        outcome = "ok"
    finally:
        progress.phase_ends(name, time.monotonic() - began, outcome, "".join(notes))
