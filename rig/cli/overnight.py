"""`rig nightly` and `rig history`: all plans while nobody looks, and what became of every check since."""

from __future__ import annotations

import argparse

from rig.cli.commands import Commands, plan_paths, records
from rig.cli.exit_codes import OK
from rig.history import command as history
from rig.nightly import options as nightly


def add_to(commands: Commands) -> None:
    command = commands.add(
        "nightly",
        _nightly,
        "run all plans unattended and write the morning page",
        nightly.EXAMPLES,
        keeps_records=True,
    )
    nightly.add_arguments(command)
    command = commands.add(
        "history", _history, "say since when, on which bench and after what a check fails", history.EXAMPLES
    )
    history.add_arguments(command)


def _nightly(arguments: argparse.Namespace) -> int:
    from rig.nightly.command import run

    return run(arguments, records(arguments), plan_paths)


def _history(arguments: argparse.Namespace) -> int:
    history.run(arguments, records(arguments))
    return OK
