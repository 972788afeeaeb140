"""What a run record tells of its measurement: addresses, e, how the run ended, and the evidence about it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rig.errors import InternalError, RigError
from rig.plan.load import Point
from rig.record import RunInfo
from rig.timing.evidence import Alive, Evidence, Ledger
from rig.timing.verdict import Verdict

if TYPE_CHECKING:
    from rig.jetson.report import RunnerReport
    from rig.timing.metrics.measurement import Decoding
    from rig.timing.table import FrameTable


DAMAGED: Final = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)
"""What taking data apart may raise that is not as it was written."""


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """For what looks at a record's data, and at nothing else: InternalError where that is damaged."""
    try:
        yield
    except DAMAGED as error:
        raise InternalError(f"a part of the record is missing or damaged: {error!r}") from error


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
        known = [int(interface[key]) for key in ("dropped", "file_dropped") if interface[key] is not None]
        drops[name] = max(known, default=0)
        if not known:
            recording.append(f"nobody counted what the capture lost on {name}")
        if interface["dropped_nic"]:
            nic[name] = int(interface["dropped_nic"])
        for counter, grown in interface["counters"].items():
            nic[f"{name} {counter}"] = int(grown)
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


def unfinished(info: RunInfo) -> tuple[Verdict, str, str | None, str | None] | None:
    """(verdict, reason, last seen, next step) of a run that did not come to its end; None for one that did."""
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


def runner_report(directory: Path) -> RunnerReport | None:
    """What the Jetson's runner wrote, None where it did not; InternalError when that cannot be read."""
    from rig.jetson.report import read_report

    path = directory / "jetson.jsonl"
    if not path.exists():
        return None
    try:
        return read_report(path)
    except RigError as error:
        raise InternalError(f"{path} cannot be read: {error.what}") from error


def jetson_decoding(directory: Path, point: Point) -> Decoding | None:
    """The Jetson's own events, where a check asks for them."""
    path = directory / "jetson.jsonl"
    if not path.exists() or all(getattr(one.metric, "source", "") != "jetson" for one in point.plan.checks.values()):
        return None
    from rig.jetson.decoding import read_decoding

    try:
        return read_decoding(path)
    except RigError as error:
        raise InternalError(f"{path} cannot be read: {error.what}") from error


def with_directions(table: FrameTable, info: RunInfo, board: str, evidence: Evidence) -> tuple[FrameTable, Evidence]:
    """At a tap, whose interfaces show one direction each: frames on the wrong one are a finding."""
    from rig.timing.direction import wrong_way

    astray = wrong_way(table, [one.get("direction", "both") for one in info.capture.get("interfaces", [])], board)
    if astray is None:
        return table, evidence
    return (
        replace(table, findings=(*table.findings, astray.finding)),
        replace(evidence, frames_twice=evidence.frames_twice or astray.joined),
    )


def _timing_notes(info: RunInfo) -> tuple[str, ...]:
    notes = [text for text in [info.bench["uncertainty"].get("note")] if text]
    if info.capture and not info.capture.get("wire", True):
        notes.append(
            "stamped on the Jetson, before the wire for what it sends: these times do not tell the board's share from "
            "the Jetson's"
        )
    return tuple(notes)


def _ledger(info: RunInfo, report: RunnerReport | None) -> Ledger:
    if report is None:
        return Ledger()
    push = report.spec.get("mode") == "push"
    return Ledger(
        requests_sent=None if push else int(report.count("requests_sent")),
        answers_received=int(report.count("answers_unique")),
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


def _duration_ns(value: Any) -> int:
    """A duration of a record's bench: the model writes it with its unit or as ns."""
    from rig.plan.units import parse_duration

    return parse_duration(value) if isinstance(value, str) else int(value)
