"""From a run record, or any capture and a plan, to verdicts: the same call live and offline, never touching a bench.

Reads the record's files, hands plain data to `rig.timing`, writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rig.bench.load import hardware_bench
from rig.errors import InternalError, RigError
from rig.plan.limits import effective_limits
from rig.plan.load import PlanFile, Point, load_plan_bytes
from rig.record import RunInfo, load_run
from rig.timing.evidence import Alive, Evidence, Ledger
from rig.timing.limits import LimitSpec
from rig.timing.verdict import PointResult, Verdict, unjudged

if TYPE_CHECKING:
    from rig.bench.model import BenchFile
    from rig.jetson.report import RunnerReport


def judge_record(directory: Path, plan_file: PlanFile | None = None) -> tuple[PointResult, Point]:
    """Judge one run record, by its own plan or by `plan_file` (the point of the same name).

    A run that ended in an error gives ERROR for every check; one that was interrupted or never finished gives
    INCONCLUSIVE. Raises InternalError for a folder that is no record, PlanError for a plan that does not fit it.
    """
    info = load_run(directory)
    if plan_file is None:
        plan_file = load_plan_bytes((directory / "plan.yaml").read_bytes(), Path(info.plan_file))
    point = plan_file.point(info.point)
    bench = info.bench
    e_ns, profile = int(_duration_ns(bench["uncertainty"]["declared"])), str(bench["profile"])
    unfinished = _unfinished(info)
    if unfinished is not None:
        verdict, reason, seen, hint = unfinished
        checks = [(name, metric_name(check)) for name, check in point.plan.checks.items()]
        result = unjudged(plan_file.plan.plan, point.name, profile, e_ns, checks, verdict, reason, seen=seen, hint=hint)
        return result, point
    from rig.capture.reader import read_capture
    from rig.timing.judge import judge

    table = read_capture(directory / "capture.pcapng")
    result = judge(
        table,
        point.plan,
        limit_specs(point, plan_file.path, profile),
        evidence_of(info, _runner_report(directory)),
        bench_addresses(bench),
        e_ns,
        profile,
        point=point.name,
    )
    return result, point


def judge_capture(capture: Path, plan_file: PlanFile, point: Point, file: BenchFile) -> PointResult:
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
    return judge(
        read_capture(capture),
        point.plan,
        limit_specs(point, plan_file.path, file.profile),
        Evidence(frames_twice=file.capture is not None and file.capture.duplication),
        addresses,
        file.uncertainty.declared,
        file.profile,
        point=point.name,
    )


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
        alive=_alive(info),
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
    """Carrier changes between the first and the last sentinel; those while the board boots void nothing."""
    sentinels = [one["time_ns"] for one in info.capture.get("sentinels", []) if one["kind"] in (1, 2)]
    if not sentinels:
        return 0
    return sum(min(sentinels) <= one["time_ns"] <= max(sentinels) for one in info.capture.get("carrier", []))


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
        resets=tuple(one["detail"] for one in observations if one["kind"] == "reboot"),
    )


def _unfinished(info: RunInfo) -> tuple[Verdict, str, str | None, str | None] | None:
    if info.outcome == "completed":
        return None
    if info.outcome == "error" and info.error:
        reason = f"{info.error['side']} failed in phase `{info.error['phase']}`: {info.error['what']}"
        return Verdict.ERROR, reason, info.error["seen"], info.error["hint"]
    last = info.phases[-1].name if info.phases else "its start"
    return Verdict.INCONCLUSIVE, f"the run was {info.outcome} and ended after phase `{last}`", None, "run it again"


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
