"""`rig`: check plans, run them, judge records and captures, flash a board, keep an emulated bench up.

Exit codes: 0 everything passed, 1 a check FAILs, 2 the command line, a plan or a bench file is wrong, 3 ERROR,
4 INCONCLUSIVE, 5 nothing but skips, 130 interrupted. The first of FAIL, ERROR, INCONCLUSIVE that occurs decides.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rig.errors import BenchError, Fault, InternalError, PlanError, RigError
from rig.interrupts import ENDINGS, interrupt

if TYPE_CHECKING:
    from rig.plan.load import PlanFile
    from rig.plan.model import Expect, Impairment
    from rig.timing.verdict import PointResult, Verdict

OK, FAILED, USAGE, ERROR, INCONCLUSIVE, NOTHING, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

_EXIT = """exit codes:
  0 all passed  1 FAIL  2 wrong command line, plan or bench file  3 ERROR (rig or bench)  4 INCONCLUSIVE
  5 nothing but skips  130 interrupted;  the first of FAIL, ERROR, INCONCLUSIVE that occurs decides
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    # NumPy's threads for vectors of this size cost more than they save, most of all on a busy bench host.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    arguments = _parser().parse_args(argv)
    for signum in ENDINGS:
        signal.signal(signum, interrupt)
    try:
        return int(arguments.command(arguments))
    except (PlanError, BenchError) as error:
        print(error, file=sys.stderr)
        return USAGE if error.faults else ERROR
    except RigError as error:
        print(error, file=sys.stderr)
        return ERROR
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # the terminal may be what was lost
            print("interrupted; the bench is released and the record so far can be read", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `rig … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


# --- commands ---------------------------------------------------------------------------------------------------------


def _check(arguments: argparse.Namespace) -> int:
    from rig.judging import check_wireshark
    from rig.plan.load import load_plan

    faulty = 0
    for path in _plan_paths(arguments.plans):
        try:
            plan_file = load_plan(path)
            check_wireshark(plan_file)
        except PlanError as error:
            print(error)
            faulty += 1
            continue
        checks = len(plan_file.plan.checks)
        print(f"ok  {path}  {_count(len(plan_file.points), 'point')}, {_count(checks, 'check')} each")
    return USAGE if faulty else OK


def _run(arguments: argparse.Namespace) -> int:
    from rig.campaign import Campaign, Compared, Judged, PlanRuns
    from rig.plan.load import load_plan
    from rig.progress import TextProgress
    from rig.summary import summary_lines
    from rig.timing.expectation import outcome_of_check
    from rig.timing.rendering import render_check
    from rig.timing.verdict import Verdict

    plans = _load_all(load_plan, _plan_paths(arguments.plans))
    done: list[Judged | Compared] = []
    with Campaign(
        _bench_path(arguments),
        _records(arguments),
        ["rig", *sys.argv[1:]],
        TextProgress(sys.stdout),
        firmware=arguments.firmware,
    ) as campaign:
        for plan_file in plans:
            points = [plan_file.point(arguments.point)] if arguments.point is not None else plan_file.points
            runs = PlanRuns(campaign, plan_file, points)
            for point, judged in runs:
                done.append(judged)
                # Without a run every check says the same.
                ran = judged.record is not None and judged.verdict is not Verdict.ERROR
                shown = judged.result.checks if ran else judged.result.checks[:1]
                for check in shown:
                    if not outcome_of_check(check, point.plan.expect).green:
                        print(render_check(check))
                if not judged.outcome.green:
                    print(judged.outcome.sentence)
            for compared in runs.compared():
                done.append(compared)
                if not compared.outcome.green:
                    print(render_check(compared.result))
                    print(f"{compared.title}: {compared.outcome.sentence}")
        print()
        for line in summary_lines(done, sys.stdout.isatty()):
            print(line)
        if campaign.directory is not None:
            print(f"records: {os.path.relpath(campaign.directory)}")
        return exit_code(one.verdict for one in done)


def _judge(arguments: argparse.Namespace) -> int:
    from rig.bench.load import load_bench
    from rig.judging import comparisons_by_plan, judge_capture, judge_record
    from rig.plan.load import load_plan
    from rig.progress import reading_progress
    from rig.record import runs_of
    from rig.timing.expectation import outcome, outcome_of_comparison
    from rig.timing.rendering import render_check
    from rig.timing.verdict import Verdict

    plan_file = load_plan(arguments.plan) if arguments.plan else None
    results: list[tuple[Path, PointResult, Expect | None]] = []
    comparisons = []
    for path in arguments.paths:
        if path.is_dir():
            first = len(results)
            runs = runs_of(path)
            if not runs:
                raise InternalError(f"{path} holds no run record", hint="name captures/<set>, or one run inside it")
            for run in runs:
                result, point = judge_record(run, plan_file, reading_progress(run, sys.stderr))
                results.append((run, result, point.plan.expect))
            comparisons += comparisons_by_plan([(run, result) for run, result, _ in results[first:]], plan_file)
        elif plan_file is None:
            raise InternalError(
                f"{path} is a capture, so a plan must say what to judge", hint=f"rig judge {path} --plan PLAN"
            )
        else:
            bench = load_bench(_bench_path(arguments))
            points = [plan_file.point(arguments.point)] if arguments.point is not None else plan_file.points
            for point in points:
                judged = judge_capture(path, plan_file, point, bench, reading_progress(path, sys.stderr))
                results.append((path, judged, point.plan.expect))
    verdicts: list[Verdict] = []
    for path, result, expect in results:
        settled = outcome(result, expect)
        verdicts.append(settled.verdict)
        if arguments.json:
            sys.stdout.write(result.to_json())
            continue
        print(f"{path}: {result.plan}" + (f"[{result.point}]" if result.point else ""))
        for check in result.checks:
            print(render_check(check))
        print(settled.sentence)
    for compared_plan, compared in comparisons:
        expect = compared_plan.plan.expect
        agreed = [outcome_of_comparison(check, expect) for check in compared.checks]
        verdicts += [
            one.verdict for check, one in zip(compared.checks, agreed, strict=True) if check.verdict is not Verdict.SKIP
        ]
        if arguments.json:
            sys.stdout.write(compared.to_json())
            continue
        print(f"{compared.plan}: comparisons")
        for check, one in zip(compared.checks, agreed, strict=True):
            print(render_check(check))
            if expect is not None and check.check in expect.fail:
                print(one.sentence)
    return exit_code(verdicts)


def _triage(arguments: argparse.Namespace) -> int:
    from rig.bench.load import load_bench
    from rig.plan.load import load_plan
    from rig.triage.command import triage

    plan_file = load_plan(arguments.plan) if arguments.plan else None
    bench = load_bench(_bench_path(arguments)) if plan_file is not None and not arguments.path.is_dir() else None
    done = triage(
        arguments.path,
        plan_file,
        bench=bench,
        point=arguments.point,
        against=arguments.against,
        out=arguments.out,
    )
    return OK if done.case.result is None else exit_code([done.case.result.verdict])


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
            note += (", verified" if report.verified else "") + board.escalation()
            progress.phase_ends("flash", report.seconds, "ok", note)
            progress.phase_begins("boot")
            boot = board.reset_and_boot(deadline)
            board.prove_identity(image)
            progress.phase_ends("boot", 0.0, "ok", boot.line.text + board.escalation())
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
        print(f"  capture          {resolved.capture.point} on {', '.join(resolved.capture.interfaces)}", flush=True)

    serve(load_bench(_bench_path(arguments)), on_ready=ready)
    return OK


def _bench_impair(arguments: argparse.Namespace) -> int:
    from rig.bench.load import load_bench
    from rig.emulation.bench import open_bench, status

    file = load_bench(_bench_path(arguments))
    rules = [_impairment(text) for text in arguments.rules]
    if status(file).state != "up":
        raise BenchError(f"bench {file.bench!r} is not up", hint="run `rig bench up` in another terminal first")
    with open_bench(file) as bench:
        bench.set_impairment([*(file.emulation.impairment if file.emulation else []), *rules])
        print(f"the relay of bench {file.bench!r} imposes {'; '.join(arguments.rules)}; Ctrl-C ends it", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            for name, value in _flat(bench.relay_counters()):
                print(f"  {name:<26} {value}")
    return OK


def _impairment(text: str) -> Impairment:
    """`direction: both, delay: 5 ms` as a plan's `impairment:` writes it."""
    from rig.plan.explain import build
    from rig.plan.model import Impairment
    from rig.plan.yaml_positions import read_document

    document = read_document(f"{{{text}}}".encode(), "RULE")
    rule, faults, _ = build(Impairment, document) if not document.faults else (None, list(document.faults), None)
    if rule is None:
        raise PlanError(f"RULE {text!r} is wrong", faults=faults)
    return rule


def _bench_status(arguments: argparse.Namespace) -> int:
    from rig.bench.load import load_bench
    from rig.emulation.bench import status

    found = status(load_bench(_bench_path(arguments)))
    print(f"bench {found.name!r} is {found.state}" + (f", {found.holder}" if found.holder else ""))
    for name, value in _flat(found.details):
        print(f"  {name:<26} {value}")
    return OK if found.state != "down" else NOTHING


def _doctor(arguments: argparse.Namespace) -> int:
    import json

    from rig.bench.checks import Finding, Site
    from rig.bench.doctor import EXAMINATION_S, Check, examine, rendered, report
    from rig.deadline import Deadline
    from rig.session import ROOT, Rig

    rig = Rig.of(_bench_path(arguments))
    site = Site(ROOT, _records(arguments), rig.file, rig.name, Deadline.after(EXAMINATION_S), opener=rig)
    results: list[tuple[Check, Finding]] = []
    with contextlib.closing(examine(site)) as examination:
        for check, finding in examination:
            results.append((check, finding))
            if not arguments.json:
                print(rendered(check, finding, colour=sys.stdout.isatty()), flush=True)
    if arguments.json:
        print(json.dumps(report(site, results), indent=2, ensure_ascii=False))
    else:
        states = [finding.state for _, finding in results]
        counts = {state: states.count(state) for state in ("ok", "warn", "fail", "skipped")}
        print(", ".join(f"{n} {state}" for state, n in counts.items() if n))
    return ERROR if any(finding.state == "fail" for _, finding in results) else OK


def _bench_calibrate(arguments: argparse.Namespace) -> int:
    from rig.bench.calibrate import render
    from rig.calibrating import calibrate
    from rig.progress import TextProgress
    from rig.session import Rig

    with Rig.of(_bench_path(arguments)) as rig:
        command = ["rig", *sys.argv[1:]]
        found, path = calibrate(rig, _records(arguments), command, TextProgress(sys.stdout))
        print()
        print(render(found, rig.bench.uncertainty.declared, emulated=rig.bench.profile == "emulated"))
        print(f"kept in {path} and used until capture point, NICs, their settings or kernel change")
    return OK


def _nightly(arguments: argparse.Namespace) -> int:
    from rig.nightly.command import run

    return run(arguments, _records(arguments), _plan_paths)


def _history(arguments: argparse.Namespace) -> int:
    from rig.history.command import run

    run(arguments, _records(arguments))
    return OK


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
    from rig.history import command as history
    from rig.nightly import options as nightly

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
        "  rig run testplans/copy-vs-zero-copy.plan.yaml --point variant-copy",
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

    command = add(
        "flash",
        _flash,
        "flash the board, boot it and prove what runs",
        "  rig flash zero_copy\n  rig flash build/my-app.elf --mode always",
    )
    command.add_argument("image", metavar="IMAGE", help="a variant of this project, or an .elf, .hex or .bin file")
    command.add_argument("--mode", choices=["always", "if-changed"], default="if-changed", help="Default: if-changed")
    bench_option(command)

    command = add(
        "doctor",
        _doctor,
        "examine the bench: what is wrong, and the command that repairs it",
        "  rig doctor\n  rig doctor --bench benches/lab-3.yaml\n  rig doctor --json | jq '.checks[] | select(.fix)'",
    )
    command.add_argument("--record-dir", metavar="DIR", help="folder for run records (Default: captures)")
    command.add_argument("--json", action="store_true", help="print everything as JSON (rig.doctor/1)")
    bench_option(command)

    command = add("nightly", _nightly, "run all plans unattended and write the morning page", nightly.EXAMPLES)
    nightly.add_arguments(command)
    command = add("history", _history, "say since when, on which bench and after what a check fails", history.EXAMPLES)
    history.add_arguments(command)

    command = commands.add_parser("bench", help="keep an emulated bench up, ask how it is, or calibrate a bench")
    benches = command.add_subparsers(required=True, metavar="COMMAND", title="commands")
    bench_option(add("up", _bench_up, "bring the emulated bench up until Ctrl-C", "  rig bench up", benches))
    command = add(
        "impair",
        _bench_impair,
        "let the relay of a bench that is up delay, lose, copy or reorder frames until Ctrl-C",
        "  rig bench impair 'delay: 5 ms'\n"
        "  rig bench impair 'direction: from-board, loss: 2 %' 'jitter: 1 ms, select: {udp.dstport: 5005}'",
        benches,
    )
    command.add_argument("rules", nargs="+", metavar="RULE", help="keys of a plan's `impairment:`, see docs/plans.md")
    bench_option(command)
    bench_option(add("status", _bench_status, "say what the bench is doing", "  rig bench status", benches))
    command = add(
        "calibrate",
        _bench_calibrate,
        "find out how well the bench measures and keep it as its e",
        "  rig bench calibrate --bench benches/lab-3.yaml",
        benches,
    )
    command.add_argument("--record-dir", metavar="DIR", help="folder for the records of its runs (Default: captures)")
    bench_option(command)

    return parser


if __name__ == "__main__":
    sys.exit(main())
