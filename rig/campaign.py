"""All runs of one invocation: opens the bench when the first run needs it, runs, judges, keeps what came out.

`PlanRuns` says which run of a plan comes next, and compares its points after the last. pytest and `rig run` both stand
on this.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from rig.errors import RigError
from rig.judging import check_wireshark, judge_comparisons, judge_record, metric_name, set_comparisons
from rig.plan.load import PlanFile, Point
from rig.plan.order import interleaved
from rig.progress import Progress
from rig.record import VERDICTS, RunSet, comparisons_file, load_run, runs_of, write_atomic
from rig.run import run_point, title
from rig.session import Rig
from rig.timing.comparison import COMPARISON
from rig.timing.expectation import Outcome, outcome, outcome_of_comparison
from rig.timing.verdict import CheckResult, PointResult, Verdict, unjudged


@dataclass(frozen=True)
class Judged:
    """One run with its verdicts. title: `plan[point]`, of several runs of it `plan[point] 2/5`. record: its folder;
    None when there was no run (skipped, or no bench)."""

    title: str
    result: PointResult
    outcome: Outcome
    record: Path | None

    @property
    def verdict(self) -> Verdict:
        """The run's verdict as the plan wants to see it: PASS when its expectation is met."""
        return self.outcome.verdict


@dataclass(frozen=True)
class Compared:
    """One comparison over a plan's runs of one set on one bench. title: as pytest spells it, `plan::comparison`."""

    title: str
    result: CheckResult
    outcome: Outcome

    @property
    def verdict(self) -> Verdict:
        """As the plan wants to see it."""
        return self.outcome.verdict


class Campaign:
    """Context manager; leaving it releases the bench. Raises BenchError at once for a faulty bench file.

    A bench that cannot be opened is not tried again: each later run gets the same ERROR.
    """

    def __init__(
        self,
        bench: Path,
        records: Path,
        command: list[str],
        progress: Progress,
        *,
        firmware: Path | None = None,
        instance: str | None = None,
        set_id: str | None = None,
    ) -> None:
        """set_id: the set to make or join; without it a new one. instance: see `Rig.of`."""
        self._opener = Rig.of(bench, instance=instance)
        self._records, self._command, self._set_id = records, command, set_id
        self.progress = progress
        self._firmware = firmware
        self._stack = contextlib.ExitStack()
        self._rig: Rig | None = None
        self._runs: RunSet | None = None
        self._no_bench: RigError | None = None

    def __enter__(self) -> Campaign:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the bench; harmless when it was never opened."""
        self._stack.close()
        self._rig = None

    @property
    def directory(self) -> Path | None:
        """The set's folder, once there is one."""
        return self._runs.directory if self._runs else None

    def rig(self) -> Rig:
        """The opened bench; raises the RigError that keeps it closed."""
        if self._no_bench is not None:
            raise self._no_bench
        if self._rig is None:
            try:
                self._rig = self._stack.enter_context(self._opener)
            except RigError as error:
                self._no_bench = error
                raise
        return self._rig

    def runs(self) -> RunSet:
        """The set that this campaign's records go to; made, or joined, on first use."""
        if self._runs is None:
            self._runs = RunSet.create(self._records, self._command, self._set_id)
        return self._runs

    def run(self, plan_file: PlanFile, point: Point, attempt: int = 1) -> Judged:
        """Run one point and judge it; what the rig cannot do becomes ERROR, never an exception.

        attempt: counts the times that this point is tried in one set, for run.json.
        """
        name = title(plan_file, point)
        try:
            rig = self.rig()
            missing = rig.missing(list(point.plan.requires))
            if missing:
                reason = f"bench {rig.bench.bench!r} lacks {', '.join(missing)}, which the plan requires"
                return self._without_run(plan_file, point, Verdict.SKIP, reason, None)
            check_wireshark(plan_file)
            record = run_point(rig, plan_file, point, self.runs(), self.progress, self._firmware, attempt)
            result, _ = judge_record(record.directory)
            write_atomic(record.directory / VERDICTS, result.to_json().encode())
        except RigError as error:
            return self._without_run(plan_file, point, Verdict.ERROR, f"{error.side} failed: {error.what}", error)
        return Judged(name, result, outcome(result, point.plan.expect), record.directory)

    def compare(self, plan_file: PlanFile, runs: Sequence[tuple[Point, Judged]]) -> list[Compared]:
        """Judge the plan's comparisons over its records of this bench in the set, and keep the result beside them.

        runs: those of this campaign, in the order in which they ran. Records of the same plan that are in the set
        besides, as of a worker that crashed, count as they do offline. A RigError becomes ERROR.
        """
        plan = plan_file.plan
        return [
            Compared(f"{plan.plan}::{check.check}", check, outcome_of_comparison(check, plan.expect))
            for check in self._compared(plan_file, runs).checks
        ]

    def _compared(self, plan_file: PlanFile, runs: Sequence[tuple[Point, Judged]]) -> PointResult:
        results = {judged.record: judged.result for _, judged in runs if judged.record is not None}
        try:
            found = set_comparisons(list(self._records_of(plan_file, results)))
            if not found:
                made = [(point.name, judged.result) for point, judged in runs if judged.record is not None]
                return judge_comparisons(plan_file, made)
            [compared] = found
            path = comparisons_file(self.runs().directory, compared.plan, self._opener.file.bench)
            write_atomic(path, compared.to_json().encode())
        except RigError as error:
            checks = [(name, COMPARISON) for name in plan_file.plan.comparisons]
            reason = f"{error.side} failed: {error.what}"
            plan = plan_file.plan.plan
            return unjudged(plan, "", "", 0, checks, Verdict.ERROR, reason, seen=error.seen, hint=error.hint)
        return compared

    def _records_of(
        self, plan_file: PlanFile, results: Mapping[Path, PointResult]
    ) -> Iterator[tuple[Path, PointResult]]:
        for record in runs_of(self._runs.directory) if self._runs else []:
            info = load_run(record)
            if (info.plan_sha256, info.bench["bench"]) == (plan_file.sha256, self._opener.file.bench):
                yield record, results[record] if record in results else judge_record(record)[0]

    def _without_run(
        self, plan_file: PlanFile, point: Point, verdict: Verdict, reason: str, error: RigError | None
    ) -> Judged:
        checks = [(name, metric_name(check)) for name, check in point.plan.checks.items()]
        result = unjudged(
            plan_file.plan.plan,
            point.name,
            "",
            0,
            checks,
            verdict,
            reason,
            seen=error.seen if error else None,
            hint=error.hint if error else None,
        )
        return Judged(title(plan_file, point), result, outcome(result, point.plan.expect), None)


class PlanRuns:
    """The runs of one plan, one at a time: points interleaved, each as often as `repeat` says; then the comparisons.

    Iterating makes the runs. A point that could not be run at all (skipped, or no bench) is not tried again.
    """

    def __init__(self, campaign: Campaign, plan_file: PlanFile, points: Sequence[Point]) -> None:
        self._campaign = campaign
        self._plan_file = plan_file
        self._pending = interleaved(points, plan_file.plan.repeat)
        self._done: list[tuple[Point, Judged]] = []

    def __iter__(self) -> Iterator[tuple[Point, Judged]]:
        while (point := self.upcoming()) is not None:
            yield point, self.make(point)

    def upcoming(self, names: Collection[str] | None = None) -> Point | None:
        """The point whose turn it is, on the way to the last run of these points (default: all); None after that.

        Where points run once each that is the first of them; else the plan's next one, whose order counts.
        """
        wanted = [point for point in self._pending if names is None or point.name in names]
        if not wanted:
            return None
        return self._pending[0] if self._plan_file.plan.repeat > 1 else wanted[0]

    def make(self, point: Point) -> Judged:
        """Make the next run of this point. Raises what the rig did not expect; its further runs are then dropped."""
        self._pending.pop(next(index for index, one in enumerate(self._pending) if one.name == point.name))
        try:
            judged = self._campaign.run(self._plan_file, point)
        except Exception:
            self._drop(point)
            raise
        repeat = self._plan_file.plan.repeat
        if judged.record is None:
            self._drop(point)
        elif repeat > 1:
            judged = replace(judged, title=f"{judged.title} {len(self.of(point.name)) + 1}/{repeat}")
        self._done.append((point, judged))
        return judged

    def of(self, name: str) -> list[Judged]:
        """The runs of one point so far."""
        return [judged for point, judged in self._done if point.name == name]

    def compared(self) -> list[Compared]:
        """The plan's comparisons, once its points are over."""
        return self._campaign.compare(self._plan_file, self._done) if self._plan_file.plan.comparisons else []

    def _drop(self, point: Point) -> None:
        self._pending = [one for one in self._pending if one.name != point.name]
