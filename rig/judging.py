"""From a run record, or any capture and a plan, to verdicts: the same call live and offline, never touching a bench.

Reads the record's files, hands plain data to `rig.timing`, writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rig.errors import PlanError
from rig.plan.limits import effective_limits
from rig.plan.load import PlanFile, Point, counted, load_plan_bytes
from rig.plan.units import format_ns
from rig.record import RunInfo, load_run
from rig.recorded import (
    bench_addresses,
    evidence_of,
    jetson_decoding,
    reading,
    recorded_e_ns,
    runner_report,
    unfinished,
    with_directions,
)
from rig.timing.evidence import Evidence
from rig.timing.limits import LimitSpec
from rig.timing.verdict import PointResult, Verdict, unjudged

if TYPE_CHECKING:
    from rig.bench.model import BenchFile
    from rig.plan.model import Flow
    from rig.timing.flows import Dissected
    from rig.timing.table import FrameTable

ReadProgress: TypeAlias = Callable[[int, int], None]
"""Called with (bytes of the capture read, bytes in all)."""

WIRESHARK_S = 3600.0
"""tshark dissects about 9,000 frames a second."""
WIRESHARK_CHECK_S = 30.0


class Capture:
    """A capture file, read when it is first needed, and then kept."""

    def __init__(self, path: Path, progress: ReadProgress | None = None) -> None:
        self.path = path
        self._progress = progress
        self._dissected: dict[frozenset[Flow], Dissected | None] = {}

    @cached_property
    def table(self) -> FrameTable:
        """Its frames. CaptureError where it is no capture."""
        from rig.capture.reader import read_capture

        return read_capture(self.path, self._progress)

    def dissected(self, *points: Point) -> Dissected | None:
        """What tshark says for the `filter:` and `field:` of the points' flows; None where no flow has any.
        CaptureError where tshark fails."""
        flows = frozenset(
            flow
            for point in points
            for flow in point.plan.flows.values()
            if flow.filter is not None or flow.key is not None
        )
        if not flows:
            return None
        for asked, told in self._dissected.items():
            if flows <= asked:
                return told
        from rig.capture.columns import dissect_columns
        from rig.deadline import Deadline

        told = dissect_columns(self.path, self.table, flows, Deadline.after(WIRESHARK_S))
        self._dissected[flows] = told
        return told


def judge_record(
    directory: Path, plan_file: PlanFile | None = None, capture: Capture | None = None
) -> tuple[PointResult, Point]:
    """Judge one run record, by its own plan or by `plan_file` (the point of the same name).

    capture: the record's, where the caller looks at it too, or shows how far it is read. A run that ended in an error
    gives ERROR for every check; one that was interrupted or never finished gives INCONCLUSIVE. Raises InternalError for
    a folder that is no record, PlanError for a plan that does not fit it.
    """
    info = load_run(directory)
    if plan_file is None:
        plan_file = load_plan_bytes((directory / "plan.yaml").read_bytes(), Path(info.plan_file))
    point = plan_file.point(info.point)
    bench = info.bench
    with reading():
        e_ns, profile, ended = recorded_e_ns(bench), str(bench["profile"]), unfinished(info)
    if ended is not None:
        verdict, reason, seen, hint = ended
        checks = [(name, metric_name(check)) for name, check in point.plan.checks.items()]
        result = unjudged(plan_file.plan.plan, point.name, profile, e_ns, checks, verdict, reason, seen=seen, hint=hint)
        return result, point
    from rig.timing.judge import judge

    with reading():
        addresses, evidence = bench_addresses(bench), evidence_of(info, runner_report(directory))
        decoding = jetson_decoding(directory, point)
    capture = capture or Capture(directory / "capture.pcapng")
    table = capture.table
    with reading():
        table, evidence = with_directions(table, info, addresses["board"], evidence)
    result = judge(
        table,
        point.plan,
        limit_specs(point, plan_file.path, profile),
        evidence,
        addresses,
        e_ns,
        profile,
        point=point.name,
        decoding=decoding,
        dissected=capture.dissected(point),
    )
    return result, point


def judge_capture(capture: Capture, plan_file: PlanFile, point: Point, file: BenchFile) -> PointResult:
    """Judge a capture that is no record of ours: nothing is known of the run but what the file shows.

    file: the bench file says which address is whose, the uncertainty e and the profile whose limits apply; the
    result's notes repeat it.
    """
    from rig.timing.judge import judge

    if file.emulation is not None:
        from rig.emulation import network

        addresses = {"board": network.BOARD_ADDRESS, "jetson": network.JETSON_ADDRESS}
    else:
        from rig.bench.load import hardware_bench

        bench = hardware_bench(file)
        addresses = {"board": bench.board.identity.address, "jetson": bench.jetson.bench_address}
    result = judge(
        capture.table,
        point.plan,
        limit_specs(point, plan_file.path, file.profile),
        Evidence(frames_twice=file.capture is not None and file.capture.duplication),
        addresses,
        file.uncertainty.declared,
        file.profile,
        point=point.name,
        dissected=capture.dissected(*plan_file.points),
    )
    return replace(result, notes=tuple(_assumed(file, addresses, point, capture.table)))


def _assumed(file: BenchFile, addresses: Mapping[str, str], point: Point, table: FrameTable) -> Iterator[str]:
    """What a verdict about a capture takes for granted, one sentence each."""
    import numpy as np

    from rig.timing.table import interfaces_of

    named = {end for flow in point.plan.flows.values() for end in (flow.src, flow.dst)} & set(addresses)
    whose = ", ".join(f"{end} {address}" for end, address in addresses.items())
    yield (
        f"judged as a capture of bench `{file.bench}`: limits of profile {file.profile}, "
        f"e = {format_ns(file.uncertainty.declared)}" + (f", {whose}" if named else "")
    )
    ours = set(addresses.values())
    if named and not any(key.src in ours or key.dst in ours for key in table.flows):
        yield (
            f"no frame has the addresses of bench `{file.bench}` ({whose}): name the bench of this capture with "
            "--bench, or write addresses into the plan's flows"
        )
    shown = interfaces_of(table, np.flatnonzero(table.flow >= 0))
    if len(shown) > 1 and len({interface.system for interface in shown} - {""}) < 2:
        names = ", ".join(interface.name or "without a name" for interface in shown)
        yield f"packets were captured on {len(shown)} interfaces ({names}), whose stamps are taken for one clock's"


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
    """The comparisons over records of one set that were judged, one result per bench and plan that has any and
    of which several points ran there.

    runs: (record, result) in the order in which they ran. plan_file: the plan that they were judged by, if not their
    own.
    """
    return [compared for _, compared in comparisons_by_plan(runs, plan_file)]


def comparisons_by_plan(
    runs: Sequence[tuple[Path, PointResult]], plan_file: PlanFile | None = None
) -> list[tuple[PlanFile, PointResult]]:
    """The same, each with the plan that says which of them must fail."""
    by_plan: dict[tuple[str, str], tuple[PlanFile, list[tuple[RunInfo, PointResult]]]] = {}
    for directory, result in runs:
        info = load_run(directory)
        key = info.plan_sha256, str(info.bench.get("bench"))
        if key not in by_plan:
            own = plan_file or load_plan_bytes((directory / "plan.yaml").read_bytes(), Path(info.plan_file))
            by_plan[key] = own, []
        by_plan[key][1].append((info, result))
    return [
        (plan, judge_comparisons(plan, _by_turn(mine)))
        for plan, mine in by_plan.values()
        if plan.plan.comparisons and len({info.point for info, _ in mine}) > 1
    ]


def _by_turn(runs: Sequence[tuple[RunInfo, PointResult]]) -> list[tuple[str, PointResult]]:
    """(point, result) in the order of the turns: a further attempt takes the place of the first run of its point that
    gave nothing, so that the k-th runs of two points still lie side by side."""
    turns: list[tuple[str, PointResult]] = []
    for info, result in runs:
        gave_nothing = (
            place
            for place, (point, earlier) in enumerate(turns)
            if point == info.point and earlier.verdict in (Verdict.ERROR, Verdict.INCONCLUSIVE)
        )
        place = next(gave_nothing, None) if info.attempt > 1 else None
        if place is None:
            turns.append((info.point, result))
        else:
            turns[place] = info.point, result
    return turns


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


def metric_name(check: Any) -> str:
    """The metric key of a check, as the plan spells it."""
    from rig.timing.metrics import metric_of

    return metric_of(check)[0]
