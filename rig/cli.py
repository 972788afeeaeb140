"""`rig`: check plans, run them, judge records and captures, flash a board, keep an emulated bench up.

Exit codes: 0 everything passed, 1 a check FAILs, 2 the command line, a plan or a bench file is wrong, 3 ERROR,
4 INCONCLUSIVE, 5 nothing but skips, 130 interrupted. The first of FAIL, ERROR, INCONCLUSIVE that occurs decides.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rig.errors import BenchError, Fault, InternalError, PlanError, RigError

if TYPE_CHECKING:
    from rig.plan.load import PlanFile
    from rig.timing.verdict import Verdict

OK, FAILED, USAGE, ERROR, INCONCLUSIVE, NOTHING, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

_EXIT = """exit codes:
  0 all passed  1 FAIL  2 wrong command line, plan or bench file  3 ERROR (rig or bench)  4 INCONCLUSIVE
  5 nothing but skips  130 interrupted;  the first of FAIL, ERROR, INCONCLUSIVE that occurs decides
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        return int(arguments.command(arguments))
    except (PlanError, BenchError) as error:
        print(error, file=sys.stderr)
        return USAGE if error.faults else ERROR
    except RigError as error:
        print(error, file=sys.stderr)
        return ERROR
    except KeyboardInterrupt:
        print("interrupted; the bench is released and the record so far can be read", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `rig … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(signum).name)


# --- commands ---------------------------------------------------------------------------------------------------------


def _check(arguments: argparse.Namespace) -> int:
    from rig.plan.load import load_plan

    faulty = 0
    for path in _plan_paths(arguments.plans):
        try:
            plan_file = load_plan(path)
        except PlanError as error:
            print(error)
            faulty += 1
            continue
        checks = len(plan_file.plan.checks)
        print(f"ok  {path}  {_count(len(plan_file.points), 'point')}, {_count(checks, 'check')} each")
    return USAGE if faulty else OK


def _run(arguments: argparse.Namespace) -> int:
    from rig.campaign import Campaign
    from rig.plan.load import load_plan
    from rig.progress import TextProgress
    from rig.summary import summary_lines
    from rig.timing.expectation import outcome_of_check
    from rig.timing.rendering import render_check

    plans = _load_all(load_plan, _plan_paths(arguments.plans))
    with Campaign(
        _bench_path(arguments),
        _records(arguments),
        ["rig", *sys.argv[1:]],
        TextProgress(sys.stdout),
        firmware=arguments.firmware,
    ) as campaign:
        for plan_file in plans:
            points = [plan_file.point(arguments.point)] if arguments.point is not None else plan_file.points
            for point in points:
                judged = campaign.run(plan_file, point)
                # Without a run every check says the same.
                shown = judged.result.checks if judged.record is not None else judged.result.checks[:1]
                for check in shown:
                    if not outcome_of_check(check, point.plan.expect).green:
                        print(render_check(check))
                if not judged.outcome.green:
                    print(judged.outcome.sentence)
        print()
        for line in summary_lines(campaign.done, sys.stdout.isatty()):
            print(line)
        if campaign.directory is not None:
            print(f"records: {os.path.relpath(campaign.directory)}")
        return exit_code(_effective(judged.verdict, judged.outcome.green) for judged in campaign.done)


def _judge(arguments: argparse.Namespace) -> int:
    from rig.bench.load import load_bench
    from rig.judging import judge_capture, judge_record
    from rig.plan.load import load_plan
    from rig.record import runs_of
    from rig.timing.expectation import outcome
    from rig.timing.rendering import render_check
    from rig.timing.verdict import Verdict

    plan_file = load_plan(arguments.plan) if arguments.plan else None
    results = []
    for path in arguments.paths:
        if path.is_dir():
            runs = runs_of(path)
            if not runs:
                raise InternalError(f"{path} holds no run record", hint="name captures/<set>, or one run inside it")
            for run in runs:
                result, point = judge_record(run, plan_file)
                results.append((run, result, point.plan.expect))
        elif plan_file is None:
            raise InternalError(
                f"{path} is a capture, so a plan must say what to judge", hint=f"rig judge {path} --plan PLAN"
            )
        else:
            bench = load_bench(_bench_path(arguments))
            points = [plan_file.point(arguments.point)] if arguments.point is not None else plan_file.points
            for point in points:
                results.append((path, judge_capture(path, plan_file, point, bench), point.plan.expect))
    verdicts: list[Verdict] = []
    for path, result, expect in results:
        settled = outcome(result, expect)
        verdicts.append(Verdict.PASS if settled.green else _effective(result.verdict, settled.green))
        if arguments.json:
            sys.stdout.write(result.to_json())
            continue
        print(f"{path}: {result.plan}" + (f"[{result.point}]" if result.point else ""))
        for check in result.checks:
            print(render_check(check))
        print(settled.sentence)
    return exit_code(verdicts)


def _flash(arguments: argparse.Namespace) -> int:
    from rig.board.image import load_image
    from rig.deadline import Deadline
    from rig.progress import TextProgress
    from rig.run import FLASH_S, find_image, flash_progress
    from rig.session import Rig

    named = Path(arguments.image)
    progress = TextProgress(sys.stdout)
    with Rig.of(_bench_path(arguments)) as rig:
        path = named if named.suffix in (".elf", ".hex", ".bin") else find_image(arguments.image)
        image = load_image(path, rig.bench.board.flash.image_address)
        log = Path(os.devnull)
        deadline = Deadline.after(FLASH_S)
        with rig.board(log, 0) as board:
            progress.phase_begins("flash")
            report = board.flash(image, arguments.mode, deadline, lambda step: progress.update(flash_progress(step)))
            board.ensure_identity(deadline)
            note = "unchanged" if report.skipped else f"{report.written / 1024:.1f} KiB written"
            progress.phase_ends("flash", report.seconds, "ok", f"{note}{', verified' if report.verified else ''}")
            progress.phase_begins("boot")
            boot = board.reset_and_boot(deadline)
            board.prove_identity(image)
            progress.phase_ends("boot", 0.0, "ok", boot.line.text)
    return OK


def _bench_up(arguments: argparse.Namespace) -> int:
    from rig.bench.load import load_bench
    from rig.emulation.bench import EmulatedBench, serve

    def ready(bench: EmulatedBench) -> None:
        resolved = bench.bench
        print(f"bench {resolved.bench!r} is up; other commands join it; Ctrl-C ends it")
        print(f"  serial console   {resolved.board.serial.port}")
        print(f"  board            {resolved.board.identity.address}")
        print(f"  Jetson           {resolved.jetson.user}@{resolved.jetson.host}:{resolved.jetson.port}")
        print(f"  capture          {resolved.capture.point} on {resolved.capture.interface}", flush=True)

    serve(load_bench(_bench_path(arguments)), on_ready=ready)
    return OK


def _bench_status(arguments: argparse.Namespace) -> int:
    from rig.bench.load import load_bench
    from rig.emulation.bench import status

    found = status(load_bench(_bench_path(arguments)))
    print(f"bench {found.name!r} is {found.state}" + (f", {found.holder}" if found.holder else ""))
    for name, value in _flat(found.details):
        print(f"  {name:<26} {value}")
    return OK if found.state != "down" else NOTHING


# --- what the commands share ------------------------------------------------------------------------------------------


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """The exit code of several verdicts, by the order in which they are summed up."""
    from rig.timing.verdict import Verdict, worst

    codes = {
        Verdict.FAIL: FAILED,
        Verdict.ERROR: ERROR,
        Verdict.INCONCLUSIVE: INCONCLUSIVE,
        Verdict.PASS: OK,
        Verdict.SKIP: NOTHING,
    }
    return codes[worst(verdicts)]


def _effective(verdict: Verdict, green: bool) -> Verdict:
    """A run that is red although nothing is worse than PASS missed its expectation: that is a FAIL."""
    from rig.timing.verdict import Verdict

    return Verdict.FAIL if not green and verdict is Verdict.PASS else verdict


def _plan_paths(given: Sequence[Path]) -> Iterator[Path]:
    for path in given:
        if path.is_dir():
            found = sorted(path.glob("*.plan.yaml"))
            if not found:
                raise InternalError(f"{path} holds no *.plan.yaml", hint="name a plan file or a folder with some")
            yield from found
        else:
            yield path


def _load_all(load, paths: Iterable[Path]) -> list[PlanFile]:  # type: ignore[no-untyped-def]
    """All plans, or one PlanError with the faults of every file."""
    plans: list[PlanFile] = []
    faults: list[Fault] = []
    for path in paths:
        try:
            plans.append(load(path))
        except PlanError as error:
            faults += error.faults
    if faults:
        raise PlanError(f"{len(faults)} faults", faults=faults)
    return plans


def _bench_path(arguments: argparse.Namespace) -> Path:
    from rig.session import DEFAULT_BENCH

    named = arguments.bench or os.environ.get("RIG_BENCH")
    return Path(named) if named else DEFAULT_BENCH


def _records(arguments: argparse.Namespace) -> Path:
    from rig.session import ROOT

    return Path(arguments.record_dir) if arguments.record_dir else ROOT / "captures"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values as dotted names, without the counters that never moved."""
    for name, value in sorted(values.items()):
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif value != 0 or isinstance(value, bool):
            yield f"{prefix}{name}", value


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rig",
        description="Controls a hardware-in-the-loop bench and judges packet timing against test plans.",
        epilog="`pytest testplans/` runs plans too, one item per check.\n\n" + _EXIT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")

    def add(name: str, function, summary: str, example: str, group=commands):  # type: ignore[no-untyped-def]
        command = group.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=f"examples:\n{example}\n\n{_EXIT}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(command=function)
        return command

    def bench_option(command: argparse.ArgumentParser) -> None:
        command.add_argument(
            "--bench", metavar="FILE", help="bench file (Env: RIG_BENCH, Default: benches/emulated.yaml)"
        )

    command = add(
        "check", _check, "check plan files without a bench", "  rig check testplans/\n  rig check my.plan.yaml"
    )
    command.add_argument("plans", nargs="+", type=Path, metavar="PLAN", help="plan file, or a folder of them")

    command = add(
        "run",
        _run,
        "run plans on a bench and judge them",
        "  rig run testplans/zero-copy-latency.plan.yaml\n"
        "  rig run testplans/ --firmware build/my-app.elf\n"
        "  rig run testplans/copy-vs-zero-copy.plan.yaml --point variant=copy",
    )
    command.add_argument("plans", nargs="+", type=Path, metavar="PLAN", help="plan file, or a folder of them")
    command.add_argument("--firmware", type=Path, metavar="IMAGE", help="flash this .elf, .hex or .bin instead")
    command.add_argument("--point", metavar="NAME", help="only this point of each plan's matrix")
    command.add_argument("--record-dir", metavar="DIR", help="folder for run records (Default: captures)")
    bench_option(command)

    command = add(
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

    command = add(
        "flash",
        _flash,
        "flash the board, boot it and prove what runs",
        "  rig flash zero_copy\n  rig flash build/my-app.elf --mode always",
    )
    command.add_argument("image", metavar="IMAGE", help="a variant of this project, or an .elf, .hex or .bin file")
    command.add_argument("--mode", choices=["always", "if-changed"], default="if-changed", help="Default: if-changed")
    bench_option(command)

    command = commands.add_parser("bench", help="keep an emulated bench up, or ask how it is")
    benches = command.add_subparsers(required=True, metavar="COMMAND", title="commands")
    bench_option(add("up", _bench_up, "bring the emulated bench up until Ctrl-C", "  rig bench up", benches))
    bench_option(add("status", _bench_status, "say what the bench is doing", "  rig bench status", benches))

    return parser


if __name__ == "__main__":
    sys.exit(main())
