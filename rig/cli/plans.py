"""`rig check` and `rig run`: what starts with plan files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rig.cli.commands import Commands, bench_option, bench_path, plan_paths, plans_argument, records, records_option
from rig.cli.exit_codes import OK, USAGE, exit_code
from rig.errors import PlanError

if TYPE_CHECKING:
    from rig.campaign import Compared, Judged
    from rig.plan.load import Point


def add_to(commands: Commands) -> None:
    command = commands.add(
        "check", _check, "check plan files without a bench", "  rig check testplans/\n  rig check my.plan.yaml"
    )
    plans_argument(command)

    command = commands.add(
        "run",
        _run,
        "run plans on a bench and judge them",
        "  rig run testplans/zero-copy-latency.plan.yaml\n"
        "  rig run testplans/ --firmware build/my-app.elf\n"
        "  rig run testplans/copy-vs-zero-copy.plan.yaml --point variant-copy",
        keeps_records=True,
    )
    plans_argument(command)
    command.add_argument("--firmware", type=Path, metavar="IMAGE", help="flash this .elf, .hex or .bin instead")
    command.add_argument("--point", metavar="NAME", help="only this point of each plan's matrix")
    records_option(command)
    bench_option(command)


def _check(arguments: argparse.Namespace) -> int:
    from rig.judging import check_wireshark
    from rig.plan.load import load_plan
    from rig.plan.together import PlanNames

    faulty = 0
    names = PlanNames()
    for path in plan_paths(arguments.plans):
        try:
            plan_file = load_plan(path)
            names.take(plan_file)
            check_wireshark(plan_file)
        except PlanError as error:
            print(error)
            faulty += 1
            continue
        checks = len(plan_file.plan.checks)
        print(f"ok  {path}  {_count(len(plan_file.points), 'point')}, {_count(checks, 'check')} each")
    return USAGE if faulty else OK


def _run(arguments: argparse.Namespace) -> int:
    from rig.board.image import image_file
    from rig.campaign import Campaign, PlanRuns
    from rig.plan.together import load_plans
    from rig.progress import TextProgress
    from rig.record import from_here
    from rig.summary import summary_lines
    from rig.timing.rendering import render_check

    plans = load_plans(plan_paths(arguments.plans))
    # All that the command line names is looked up before a bench is opened.
    named = arguments.point
    chosen = [(plan, plan.points if named is None else [plan.point(named)]) for plan in plans]
    firmware = None if arguments.firmware is None else image_file(arguments.firmware)
    done: list[Judged | Compared] = []
    with Campaign(
        bench_path(arguments),
        records(arguments),
        ["rig", *sys.argv[1:]],
        TextProgress(sys.stdout),
        firmware=firmware,
    ) as campaign:
        for plan_file, points in chosen:
            runs = PlanRuns(campaign, plan_file, points)
            for point, judged in runs:
                done.append(judged)
                _print_trouble(point, judged)
            for compared in runs.compared():
                done.append(compared)
                if not compared.outcome.green:
                    print(render_check(compared.result))
                    print(f"{compared.title}: {compared.outcome.sentence}")
        print()
        for line in summary_lines(done, sys.stdout.isatty()):
            print(line)
        if campaign.directory is not None:
            print(f"records: {from_here(campaign.directory)}")
        return exit_code(one.verdict for one in done)


def _print_trouble(point: Point, judged: Judged) -> None:
    """The checks of a run that are not as expected."""
    from rig.timing.expectation import outcome_of_check
    from rig.timing.rendering import render_check
    from rig.timing.verdict import Verdict

    # Without a run every check says the same.
    ran = judged.record is not None and judged.verdict is not Verdict.ERROR
    for check in judged.result.checks if ran else judged.result.checks[:1]:
        if not outcome_of_check(check, point.plan.expect).green:
            print(render_check(check))
    if not judged.outcome.green:
        print(judged.outcome.sentence)


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
