"""The command line as a whole: which commands there are, in the order of `rig --help`."""

from __future__ import annotations

import argparse

from rig.cli import bench, doctor, flash, judge, overnight, plans, triage
from rig.cli.commands import Commands
from rig.cli.exit_codes import HELP


def make_parser() -> argparse.ArgumentParser:
    """The parser of `rig`; what it returns has the command's function as `command`."""
    parser = argparse.ArgumentParser(
        prog="rig",
        description="Controls a hardware-in-the-loop bench and judges packet timing against test plans.",
        epilog="`pytest testplans/` runs plans too, one item per check.\n\n" + HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = Commands(parser)
    for group in (plans, judge, triage, flash, doctor, overnight, bench):
        group.add_to(commands)
    return parser
