"""`rig judge`: verdicts about run records and captures, without a bench."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rig.cli.commands import Commands, bench_option, bench_path
from rig.cli.exit_codes import exit_code
from rig.errors import PlanError, UsageError
from rig.terminal import printable

if TYPE_CHECKING:
    from rig.plan.load import PlanFile, Point
    from rig.timing.verdict import PointResult, Verdict

    _Judged: TypeAlias = tuple[Path, PointResult, Point | None]


def add_to(commands: Commands) -> None:
    command = commands.add(
        "judge",
        _judge,
        "judge run records, or any capture, offline",
        "  rig judge captures/20260131T120000Z-a1b2c3\n"
        "  rig judge captures/SET/001-zero-copy-latency --plan stricter.plan.yaml\n"
        "  rig judge field.pcapng --plan testplans/zero-copy-latency.plan.yaml --json",
    )
    command.add_argument(
        "paths", nargs="+", type=Path, metavar="RECORD|SET|CAPTURE", help="run folder, set folder, or pcap/pcapng file"
    )
    command.add_argument("--plan", type=Path, metavar="PLAN", help="judge by this plan instead of the record's own")
    command.add_argument("--point", metavar="NAME", help="captures: only this point of the plan's matrix")
    command.add_argument("--json", action="store_true", help="print verdicts as JSON, the bytes of verdicts.json")
    bench_option(command)


def _judge(arguments: argparse.Namespace) -> int:
    from rig.judging import comparisons_by_plan

    plan_file = named_plan(arguments)
    verdicts: list[Verdict] = []
    comparisons: list[tuple[PlanFile, PointResult]] = []
    for path in arguments.paths:
        judged = _records_in(path, plan_file) if path.is_dir() else _capture(path, plan_file, arguments)
        known: list[tuple[Path, PointResult]] = []
        for run, result, point in judged:
            verdicts.append(_tell(run, result, point, arguments.json))
            if point is not None and (run / "plan.yaml").is_file():
                known.append((run, result))
        comparisons += comparisons_by_plan(known, plan_file)
    for compared_plan, compared in comparisons:
        verdicts += _tell_comparison(compared_plan, compared, arguments.json)
    return exit_code(verdicts)


def named_plan(arguments: argparse.Namespace) -> PlanFile | None:
    """The plan of `--plan`, its display filters and fields checked with tshark. PlanError with all its faults."""
    from rig.judging import check_wireshark
    from rig.plan.load import load_plan

    if arguments.plan is None:
        return None
    plan_file = load_plan(arguments.plan)
    check_wireshark(plan_file)
    return plan_file


def _records_in(folder: Path, plan_file: PlanFile | None) -> Iterator[_Judged]:
    """Each run of a folder, judged when it is asked for. One that cannot be judged is an ERROR and hinders no other."""
    from rig.judging import Capture, judge_record
    from rig.progress import reading_progress
    from rig.record import runs_of
    from rig.stored import UNREADABLE, point_of, unjudgeable

    runs = runs_of(folder)
    if not runs:
        raise UsageError(f"{folder} holds no run record", hint="name captures/<set>, or one run inside it")
    for run in runs:
        try:
            capture = Capture(run / "capture.pcapng", reading_progress(run, sys.stderr))
            result, point = judge_record(run, plan_file, capture)
        except UNREADABLE as error:
            if plan_file is not None and isinstance(error, PlanError):
                raise  # the plan that was named does not fit
            known = point_of(run, plan_file)
            yield run, unjudgeable(run, error, known), known
        else:
            yield run, result, point


def _capture(path: Path, plan_file: PlanFile | None, arguments: argparse.Namespace) -> Iterator[_Judged]:
    from rig.bench.load import load_bench
    from rig.judging import Capture, judge_capture
    from rig.progress import reading_progress

    if not path.exists():
        raise UsageError(
            f"{path} does not exist", hint="name captures/<set>, a run inside it, or a pcap or pcapng file"
        )
    if plan_file is None:
        raise UsageError(f"{path} is a capture, so a plan must say what to judge", hint=f"rig judge {path} --plan PLAN")
    bench = load_bench(bench_path(arguments))
    points = [plan_file.point(arguments.point)] if arguments.point is not None else plan_file.points
    capture = Capture(path, reading_progress(path, sys.stderr))
    for point in points:
        yield path, judge_capture(capture, plan_file, point, bench), point


def _tell(path: Path, result: PointResult, point: Point | None, as_json: bool) -> Verdict:
    """Print what was found of one run; its verdict."""
    from rig.timing.expectation import outcome
    from rig.timing.rendering import render_check
    from rig.timing.verdict import Verdict

    settled = outcome(result, point.plan.expect if point is not None else None)
    if as_json:
        sys.stdout.write(result.to_json())
    else:
        print(printable(f"{path}: {result.plan}" + (f"[{result.point}]" if result.point else "")))
        for note in result.notes:
            print(printable(f"note: {note}"))
        # A run that gave nothing says the same of every check.
        alike = settled.verdict is Verdict.ERROR and len({check.reason for check in result.checks}) == 1
        for check in result.checks[: 1 if alike else None]:
            print(render_check(check))
        print(printable(settled.sentence))
    return settled.verdict


def _tell_comparison(plan_file: PlanFile, compared: PointResult, as_json: bool) -> list[Verdict]:
    """Print a plan's comparisons; the verdicts of those that were made."""
    from rig.timing.expectation import outcome_of_comparison
    from rig.timing.rendering import render_check
    from rig.timing.verdict import Verdict

    expect = plan_file.plan.expect
    agreed = [(check, outcome_of_comparison(check, expect)) for check in compared.checks]
    if as_json:
        sys.stdout.write(compared.to_json())
    else:
        print(printable(f"{compared.plan}: comparisons"))
        for check, one in agreed:
            print(render_check(check))
            if expect is not None and check.check in expect.fail:
                print(printable(one.sentence))
    return [one.verdict for check, one in agreed if check.verdict is not Verdict.SKIP]
