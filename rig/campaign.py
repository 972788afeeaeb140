"""All runs of one invocation: opens the bench when the first run needs it, runs, judges, keeps what came out.

pytest and `rig run` both stand on this.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rig.errors import RigError
from rig.judging import judge_record, metric_name
from rig.plan.load import PlanFile, Point
from rig.progress import Progress
from rig.record import VERDICTS, RunSet, write_atomic
from rig.run import run_point, title
from rig.session import Rig
from rig.timing.expectation import Outcome, outcome
from rig.timing.verdict import PointResult, Verdict, unjudged


@dataclass(frozen=True)
class Judged:
    """One run with its verdicts. record: its folder; None when there was no run (skipped, or no bench)."""

    title: str
    result: PointResult
    outcome: Outcome
    record: Path | None

    @property
    def verdict(self) -> Verdict:
        """The run's verdict as the plan wants to see it: PASS when its expectation is met."""
        return Verdict.PASS if self.outcome.green and self.result.verdict is not Verdict.SKIP else self.result.verdict


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
    ) -> None:
        self._opener = Rig.of(bench, instance=instance)
        self._records, self._command = records, command
        self._progress, self._firmware = progress, firmware
        self._stack = contextlib.ExitStack()
        self._rig: Rig | None = None
        self._runs: RunSet | None = None
        self._no_bench: RigError | None = None
        self.done: list[Judged] = []

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

    def run(self, plan_file: PlanFile, point: Point) -> Judged:
        """Run one point and judge it; what the rig cannot do becomes ERROR, never an exception."""
        judged = self._run(plan_file, point)
        self.done.append(judged)
        return judged

    def _run(self, plan_file: PlanFile, point: Point) -> Judged:
        name = title(plan_file, point)
        try:
            rig = self.rig()
            missing = rig.missing(list(point.plan.requires))
            if missing:
                reason = f"bench {rig.bench.bench!r} lacks {', '.join(missing)}, which the plan requires"
                return self._without_run(plan_file, point, Verdict.SKIP, reason, None)
            if self._runs is None:
                self._runs = RunSet.create(self._records, self._command)
            record = run_point(rig, plan_file, point, self._runs, self._progress, self._firmware)
            result, _ = judge_record(record.directory)
            write_atomic(record.directory / VERDICTS, result.to_json().encode())
        except RigError as error:
            return self._without_run(plan_file, point, Verdict.ERROR, f"{error.side} failed: {error.what}", error)
        return Judged(name, result, outcome(result, point.plan.expect), record.directory)

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
