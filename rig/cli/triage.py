"""`rig triage`: the cause of a red run, or of what a capture shows."""

from __future__ import annotations

import argparse
from pathlib import Path

from rig.cli.commands import Commands, bench_option, bench_path
from rig.cli.exit_codes import OK, exit_code
from rig.cli.judge import named_plan


def add_to(commands: Commands) -> None:
    command = commands.add(
        "triage",
        _triage,
        "find the cause of a red run, or of what a capture shows",
        "  rig triage captures/SET/001-zero-copy-latency\n"
        "  rig triage field.pcapng\n"
        "  rig triage field.pcapng --plan testplans/zero-copy-latency.plan.yaml\n"
        "  rig triage captures/SET/002-copy --against captures/LAST_NIGHT/002-copy",
    )
    command.add_argument("path", type=Path, metavar="RECORD|CAPTURE", help="run folder, or pcap/pcapng file")
    command.add_argument("--plan", type=Path, metavar="PLAN", help="judge by this plan; a record has its own")
    command.add_argument("--point", metavar="NAME", help="captures: the point of the plan's matrix")
    command.add_argument("--against", type=Path, metavar="GOOD", help="a good run or capture to compare with")
    command.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for the files (Default: <run>.triage beside the record)"
    )
    bench_option(command)


def _triage(arguments: argparse.Namespace) -> int:
    from rig.bench.load import load_bench
    from rig.timing.expectation import outcome
    from rig.triage.command import triage

    plan_file = named_plan(arguments)
    bench = load_bench(bench_path(arguments)) if plan_file is not None and not arguments.path.is_dir() else None
    done = triage(
        arguments.path,
        plan_file,
        bench=bench,
        point=arguments.point,
        against=arguments.against,
        out=arguments.out,
    )
    result, point = done.case.result, done.case.point
    if result is None:
        return OK
    return exit_code([outcome(result, point.plan.expect if point is not None else None).verdict])
