"""From a run record, or any capture and a plan, to verdicts: the same call live and offline, never touching a bench.

Reads the record's files, hands plain data to `rig.timing`, writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rig.bench.load import hardware_bench
from rig.errors import InternalError, PlanError, RigError
from rig.plan.limits import effective_limits
from rig.plan.load import PlanFile, Point, counted, load_plan_bytes
from rig.record import RunInfo, load_run
from rig.timing.evidence import Alive, Evidence, Ledger
from rig.timing.limits import LimitSpec
from rig.timing.verdict import PointResult, Verdict, unjudged

if TYPE_CHECKING:
    from rig.bench.model import BenchFile
    from rig.jetson.report import RunnerReport
    from rig.timing.flows import Dissected
    from rig.timing.metrics.measurement import Decoding
    from rig.timing.table import FrameTable

ReadProgress: TypeAlias = Callable[[int, int], None]
"""Called with (bytes of the capture read, bytes in all)."""

WIRESHARK_S = 3600.0
"""tshark dissects about 9,000 frames a second."""
WIRESHARK_CHECK_S = 30.0


def judge_record(
    directory: Path, plan_file: PlanFile | None = None, progress: ReadProgress | None = None
) -> tuple[PointResult, Point]:
    """Judge one run record, by its own plan or by `plan_file` (the point of the same name).

    A run that ended in an error gives ERROR for every check; one that was interrupted or never finished gives
    INCONCLUSIVE. Raises InternalError for a folder that is no record, PlanError for a plan that does not fit it.
    """
    info = load_run(directory)
    if plan_file is None:
        plan_file = load_plan_bytes((directory / "plan.yaml").read_bytes(), Path(info.plan_file))
    point = plan_file.point(info.point)
    bench = info.bench
    e_ns, profile = recorded_e_ns(bench), str(bench["profile"])
    unfinished = _unfinished(info)
    if unfinished is not None:
        verdict, reason, seen, hint = unfinished
        checks = [(name, metric_name(check)) for name, check in point.plan.checks.items()]
        result = unjudged(plan_file.plan.plan, point.name, profile, e_ns, checks, verdict, reason, seen=seen, hint=hint)
        return result, point
    from rig.capture.reader import read_capture
    from rig.timing.judge import judge

    addresses, evidence = bench_addresses(bench), evidence_of(info, _runner_report(directory))
    capture = directory / "capture.pcapng"
    table, evidence = _with_directions(read_capture(capture, progress), info, addresses["board"], evidence)
    result = judge(
        table,
        point.plan,
        limit_specs(point, plan_file.path, profile),
        evidence,
        addresses,
        e_ns,
        profile,
        point=point.name,
        decoding=_decoding(directory, point),
        dissected=_dissected(capture, table, point),
    )
    return result, point


def judge_capture(
    capture: Path, plan_file: PlanFile, point: Point, file: BenchFile, progress: ReadProgress | None = None
) -> PointResult:
    """Judge a capture that is no record of ours: nothing is known of the run but what the file shows.

    file: the bench file says which address is whose, the uncertainty e and the profile whose limits apply.
    """
    from rig.capture.reader import read_capture
    from rig.timing.judge import judge

    if file.emulation is not None:
        from rig.emulation import network

        addresses = {"board": network.BOARD_ADDRESS, "jetson": network.JETSON_ADDRESS}
    else:
        bench = hardware_bench(file)
        addresses = {"board": bench.board.identity.address, "jetson": bench.jetson.bench_address}
    table = read_capture(capture, progress)
    return judge(
        table,
        point.plan,
        limit_specs(point, plan_file.path, file.profile),
        Evidence(frames_twice=file.capture is not None and file.capture.duplication),
        addresses,
        file.uncertainty.declared,
        file.profile,
        point=point.name,
        dissected=_dissected(capture, table, point),
    )


def judge_comparisons(plan_file: PlanFile, runs: Sequence[tuple[str, PointResult]]) -> PointResult:
    """Judge the comparisons of a plan over its runs of one set, as (point, result) in the order in which they ran.

    Its checks are the comparisons. One whose points were not both run, or that has no bound, is SKIP.
    """
    from rig.timing.comparison import compare
    from rig.timing.verdict import worst

    specs: dict[str, list[LimitSpec]] = {}
    for name, comparison in plan_file.plan.comparisons.items():
        key = "difference" if comparison.difference is not None else "ratio"
        bound = comparison.difference or comparison.ratio
        if bound is not None:
            line, column = plan_file.position("comparisons", name, key)
            specs[name] = [LimitSpec(key, bound, str(plan_file.path), line, column)]
    checks = compare(plan_file.plan, runs, specs)
    profile, e_ns = (runs[0][1].profile, max(result.e_ns for _, result in runs)) if runs else ("", 0)
    return PointResult(plan_file.plan.plan, "", profile, e_ns, worst(check.verdict for check in checks), checks)


def set_comparisons(runs: Sequence[tuple[Path, PointResult]], plan_file: PlanFile | None = None) -> list[PointResult]:
    """The comparisons over records of one set that were judged, one result per plan that has any and
    of which several points ran.

    runs: (record, result) in the order in which they ran. plan_file: the plan that they were judged by, if not their
    own.
    """
    return [compared for _, compared in comparisons_by_plan(runs, plan_file)]


def comparisons_by_plan(
    runs: Sequence[tuple[Path, PointResult]], plan_file: PlanFile | None = None
) -> list[tuple[PlanFile, PointResult]]:
    """The same, each with the plan that says which of them must fail."""
    by_plan: dict[str, tuple[PlanFile, list[tuple[str, PointResult]]]] = {}
    for directory, result in runs:
        info = load_run(directory)
        if info.plan_sha256 not in by_plan:
            text = (directory / "plan.yaml").read_bytes()
            by_plan[info.plan_sha256] = plan_file or load_plan_bytes(text, Path(info.plan_file)), []
        by_plan[info.plan_sha256][1].append((info.point, result))
    return [
        (plan, judge_comparisons(plan, mine))
        for plan, mine in by_plan.values()
        if plan.plan.comparisons and len({point for point, _ in mine}) > 1
    ]


def check_wireshark(plan_file: PlanFile) -> None:
    """Raise PlanError when tshark does not understand a filter or field of the plan's flows; quick without any."""
    flows = {
        (name, flow.filter, flow.key): flow
        for point in plan_file.points
        for name, flow in point.plan.flows.items()
        if flow.filter is not None or flow.key is not None
    }
    if not flows:
        return
    from rig.capture.columns import wireshark_fault
    from rig.deadline import Deadline

    faults = []
    deadline = Deadline.after(WIRESHARK_CHECK_S)
    for (name, _, _), flow in flows.items():
        found = wireshark_fault(flow, deadline)
        if found is not None:
            faults.append(plan_file.document.fault(("flows", name, found[0]), f"tshark refuses it: {found[1]}"))
    if faults:
        raise PlanError(f"{plan_file.path} has {counted(faults)}", faults=faults)


def limit_specs(point: Point, path: Path, profile: str) -> dict[str, Sequence[LimitSpec]]:
    """Check → its limits on a bench of `profile`, each with its place in the plan file."""
    specs: dict[str, Sequence[LimitSpec]] = {}
    for name, check in point.plan.checks.items():
        found = []
        for limit in effective_limits(check, "hardware" if profile == "hardware" else "emulated"):
            line, column = point.position("checks", name, *limit.path)
            found.append(LimitSpec(limit.key, limit.bound, str(path), line, column, str(limit.path[0])))
        specs[name] = found
    return specs


def _decoding(directory: Path, point: Point) -> Decoding | None:
    """The Jetson's own events, where a check asks for them."""
    path = directory / "jetson.jsonl"
    if not path.exists() or all(getattr(one.metric, "source", "") != "jetson" for one in point.plan.checks.values()):
        return None
    from rig.jetson.decoding import read_decoding

    try:
        return read_decoding(path)
    except RigError as error:
        raise InternalError(f"{path} cannot be read: {error.what}") from error


def _dissected(capture: Path, table: FrameTable, point: Point) -> Dissected | None:
    if all(flow.filter is None and flow.key is None for flow in point.plan.flows.values()):
        return None
    from rig.capture.columns import dissect_columns
    from rig.deadline import Deadline

    return dissect_columns(capture, table, point.plan.flows.values(), Deadline.after(WIRESHARK_S))


def metric_name(check: Any) -> str:
    """The metric key of a check, as the plan spells it."""
    from rig.timing.metrics import metric_of

    return metric_of(check)[0]


def bench_addresses(bench: Mapping[str, Any]) -> dict[str, str]:
    """Who has which address on the measured segment, from a record's resolved bench."""
    return {"board": bench["board"]["identity"]["address"], "jetson": bench["jetson"]["bench_address"]}


def evidence_of(info: RunInfo, report: RunnerReport | None) -> Evidence:
    """What a record knows about the soundness of its measurement."""
    capture = info.capture
    interfaces = capture.get("interfaces", [])
    drops: dict[str, int] = {}
    nic: dict[str, int] = {}
    recording = list(capture.get("faults", []))
    if capture and capture["ended"] != "stopped":
        recording.append(f"the recorder {capture['ended']} before the end of the run")
    if capture and capture["drained"] == "not":
        recording.append("the capture was stopped before its tail was known to be in the file")
    for interface in interfaces:
        name = interface["name"]
        # Both count the same frames: the larger of the two is what is missing.
        known = [interface[key] for key in ("dropped", "file_dropped") if interface[key] is not None]
        drops[name] = max(known, default=0)
        if not known:
            recording.append(f"nobody counted what the capture lost on {name}")
        if interface["dropped_nic"]:
            nic[name] = interface["dropped_nic"]
        for counter, grown in interface["counters"].items():
            nic[f"{name} {counter}"] = grown
    degraded = list(report.throttled) if report else []
    if report and report.fallback:
        degraded.append(f"the engine fell back to {report.provider}")
    if report and not report.complete:
        degraded.append(f"the runner's events end early: {report.reason}")
    schedule = report.schedule if report else None
    return Evidence(
        sentinels=bool(report and report.sentinels),
        drops=drops,
        nic=nic,
        clock_step_ns=int(info.clock.get("largest_step_ns", 0)),
        carrier_changes=_carrier_changes(info),
        ledger=_ledger(info, report),
        late_sends=schedule.late if schedule else 0,
        sends=schedule.sends if schedule else 0,
        degraded=tuple(degraded),
        recording=tuple(recording),
        frames_twice=bool(capture.get("duplicates")),
        timing_notes=_timing_notes(info),
        alive=_alive(info),
    )


def recorded_e_ns(bench: Mapping[str, Any]) -> int:
    """e of a recorded bench: what its calibration gave at the time, else what its file declares."""
    uncertainty = bench["uncertainty"]
    return int(uncertainty["e_ns"]) if "e_ns" in uncertainty else int(_duration_ns(uncertainty["declared"]))


def _timing_notes(info: RunInfo) -> tuple[str, ...]:
    notes = [text for text in [info.bench["uncertainty"].get("note")] if text]
    if info.capture and not info.capture.get("wire", True):
        notes.append(
            "stamped on the Jetson, before the wire for what it sends: these times do not tell the board's share from "
            "the Jetson's"
        )
    return tuple(notes)


def _with_directions(table: FrameTable, info: RunInfo, board: str, evidence: Evidence) -> tuple[FrameTable, Evidence]:
    """At a tap, whose interfaces show one direction each: frames on the wrong one are a finding."""
    from rig.timing.direction import wrong_way

    astray = wrong_way(table, [one.get("direction", "both") for one in info.capture.get("interfaces", [])], board)
    if astray is None:
        return table, evidence
    return (
        replace(table, findings=(*table.findings, astray.finding)),
        replace(evidence, frames_twice=evidence.frames_twice or astray.joined),
    )


def _ledger(info: RunInfo, report: RunnerReport | None) -> Ledger:
    if report is None:
        return Ledger()
    push = report.spec.get("mode") == "push"
    return Ledger(
        requests_sent=None if push else report.count("requests_sent"),
        answers_received=report.count("answers_unique"),
    )


def _carrier_changes(info: RunInfo) -> int:
    """Carrier changes between the first and the last sentinel; those while the board boots void nothing.

    Without an end sentinel in the capture everything up to its end counts: a lost carrier may be why there is none.
    """
    sentinels = info.capture.get("sentinels", [])
    starts = [one["time_ns"] for one in sentinels if one["kind"] in (1, 2)]
    ends = [one["time_ns"] for one in sentinels if one["kind"] == 2]
    if not starts:
        return 0
    until = max(ends, default=info.capture["stopped_ns"])
    return sum(min(starts) <= one["time_ns"] <= until for one in info.capture.get("carrier", []))


def _alive(info: RunInfo) -> Alive | None:
    if info.bench["board"].get("banner") is not None and not info.board.get("boot"):
        return None
    observations = info.board.get("observations", [])
    build_id = info.firmware.get("build_id")
    return Alive(
        image_verified=bool(info.firmware.get("flash", {}).get("verified"))
        or (build_id is not None and info.board.get("boot", {}).get("build") == build_id),
        no_boot="; ".join(one["detail"] for one in observations if one["kind"] == "no-boot"),
        faults=tuple(one["detail"] for one in observations if one["kind"] == "fault"),
        resets=tuple(one["detail"] for one in observations if one["kind"] in ("reboot", "silent")),
    )


def _unfinished(info: RunInfo) -> tuple[Verdict, str, str | None, str | None] | None:
    if info.outcome == "completed":
        return None
    if info.outcome == "error" and info.error:
        reason = f"{info.error['side']} failed in phase `{info.error['phase']}`: {info.error['what']}"
        return Verdict.ERROR, reason, info.error["seen"], info.error["hint"]
    broken = next((phase.name for phase in info.phases if phase.outcome == "failed"), None)
    if broken is not None:
        return Verdict.INCONCLUSIVE, f"the run was interrupted in phase `{broken}`", None, "run it again"
    last = f"after phase `{info.phases[-1].name}`" if info.phases else "before its first phase was over"
    how = "was killed" if info.outcome == "running" else "was interrupted"
    return Verdict.INCONCLUSIVE, f"the run {how} {last}", None, "run it again"


def _runner_report(directory: Path) -> RunnerReport | None:
    from rig.jetson.report import read_report

    path = directory / "jetson.jsonl"
    if not path.exists():
        return None
    try:
        return read_report(path)
    except RigError as error:
        raise InternalError(f"{path} cannot be read: {error.what}") from error


def _duration_ns(value: Any) -> int:
    """A duration of a record's bench: the model writes it with its unit or as ns."""
    from rig.plan.units import parse_duration

    return parse_duration(value) if isinstance(value, str) else int(value)
