"""How a command is described to argparse, and the options that several of them share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rig.cli.exit_codes import HELP
from rig.errors import InternalError
from rig.project import DEFAULT_BENCH, ROOT


class Commands:
    """The commands below a parser, each with examples in its help."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._group = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")

    def add(
        self,
        name: str,
        function: Callable[[argparse.Namespace], int],
        summary: str,
        examples: str,
        *,
        keeps_records: bool = False,
    ) -> argparse.ArgumentParser:
        """A command that `function` carries out, which returns the exit code. examples: indented lines.

        keeps_records: what it finds is on disk, and its output only shows it.
        """
        command = self._group.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=f"examples:\n{examples}\n\n{HELP}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(command=function, keeps_records=keeps_records)
        return command

    def group(self, name: str, summary: str) -> Commands:
        """A command that has commands of its own."""
        return Commands(self._group.add_parser(name, help=summary))


def bench_option(command: argparse.ArgumentParser) -> None:
    command.add_argument("--bench", metavar="FILE", help="bench file (Env: RIG_BENCH, Default: benches/emulated.yaml)")


def records_option(command: argparse.ArgumentParser) -> None:
    command.add_argument("--record-dir", metavar="DIR", help="folder for run records (Default: captures)")


def plans_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument("plans", nargs="+", type=Path, metavar="PLAN", help="plan file, or a folder of them")


def bench_path(arguments: argparse.Namespace) -> Path:
    """The bench file of `--bench`, of the environment, or of the emulated bench."""
    named = arguments.bench or os.environ.get("RIG_BENCH")
    return Path(named) if named else DEFAULT_BENCH


def records(arguments: argparse.Namespace) -> Path:
    """The folder of `--record-dir`, or `captures/` of the project."""
    return Path(arguments.record_dir) if arguments.record_dir else ROOT / "captures"


def plan_paths(given: Sequence[Path]) -> Iterator[Path]:
    """The plan files that were named, and those in the folders that were. InternalError for a folder without any."""
    for path in given:
        if path.is_dir():
            found = sorted(path.glob("*.plan.yaml"))
            if not found:
                raise InternalError(f"{path} holds no *.plan.yaml", hint="name a plan file or a folder with some")
            yield from found
        else:
            yield path
