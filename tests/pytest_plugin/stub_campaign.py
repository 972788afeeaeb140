"""A pytest plugin for the tests: runs take no bench, and how each ends stands in the plan's name."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import rig.campaign
from rig.campaign import Compared, Judged
from rig.errors import BoardError, InternalError
from rig.judging import judge_comparisons
from rig.record import RunSet
from rig.run import title
from rig.timing.expectation import outcome, outcome_of_comparison
from rig.timing.verdict import CheckResult, PointResult, Verdict, unjudged, worst

VERDICTS = {"fail": Verdict.FAIL, "error": Verdict.ERROR, "vague": Verdict.INCONCLUSIVE, "skip": Verdict.SKIP}


class StubCampaign:
    """`fail-…`, `error-…`, `vague-…`, `skip-…`: so does the first check. `bug-…` raises, `crash-…` kills worker gw0.

    STUB_ONLY: numbers of the runs that end so, by the order in which they are made; without it all do. The median of
    variant zero_copy is 2 ms, that of copy 3 ms.
    """

    def __init__(self, bench, records, command, progress, *, firmware=None, instance=None, set_id=None) -> None:
        self._set = lambda: RunSet.create(records, command, set_id)
        self.progress = progress
        self._made = 0
        self._rig = None
        self._told = (os.environ.get("PYTEST_XDIST_WORKER", "main"), Path(bench).name, instance, set_id)

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        pass

    def close(self) -> None:
        if self._rig is not None:
            self._rig.is_open = False

    @property
    def directory(self) -> Path:
        return self.runs().directory

    def runs(self) -> RunSet:
        return self._set()

    def rig(self):
        if os.environ.get("STUB_RIG") == "broken":
            raise BoardError("the serial port is busy", seen="held by minicom", hint="close minicom")
        if self._rig is None:
            self._rig = SimpleNamespace(
                bench=SimpleNamespace(bench="stub", model_dump=lambda mode: {}),
                is_open=True,
                text="",
                missing=lambda wanted: [one for one in wanted if one != "here"],
                require_whole=self._require_whole,
            )
        return self._rig

    def _require_whole(self) -> None:
        if not self._rig.is_open:
            raise InternalError("a part of the emulated bench ended by itself")

    def run(self, plan_file, point) -> Judged:
        with Path(os.environ["STUB_LOG"]).open("a") as log:
            print(*self._told, title(plan_file, point), file=log)
        self._made += 1
        only = os.environ.get("STUB_ONLY")
        kind = plan_file.plan.plan.partition("-")[0]
        if only is not None and str(self._made) not in only.split(","):
            kind = "fine"
        if kind == "crash" and os.environ.get("PYTEST_XDIST_WORKER") == "gw0":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "bug":
            raise ZeroDivisionError("the stub's own fault")
        self.progress.run_begins(title(plan_file, point))
        self.progress.phase_begins("flash")
        self.progress.phase_ends("flash", 1.25, "ok", "22 KiB written")
        if kind == "warned":
            self.progress.warn("disk: 1.0 GiB free (fix: remove old sets)")
        verdict = VERDICTS.get(kind, Verdict.PASS)
        names = [(name, check.metric_name) for name, check in point.plan.checks.items()]
        if verdict is Verdict.SKIP:
            result = unjudged(plan_file.plan.plan, point.name, "", 0, names, verdict, "lacks a wind-tunnel")
            return Judged(title(plan_file, point), result, outcome(result, point.plan.expect), None)
        checks = [CheckResult(name, metric, Verdict.PASS, "every limit holds", n=7) for name, metric in names]
        median = {"p50": 2_000_000 if point.plan.firmware.variant == "zero_copy" else 3_000_000}
        checks[0] = CheckResult(*names[0], verdict, f"because of {kind}", compared=median)
        checks.append(CheckResult("alive", "alive", Verdict.PASS, "it is"))
        result = PointResult(plan_file.plan.plan, point.name, "", 0, worst(c.verdict for c in checks), tuple(checks))
        record = self.runs().new_folder(title(plan_file, point))
        return Judged(title(plan_file, point), result, outcome(result, point.plan.expect), record)

    def compare(self, plan_file, runs) -> list[Compared]:
        made = [(point.name, judged.result) for point, judged in runs if judged.record]
        plan = plan_file.plan
        return [
            Compared(f"{plan.plan}::{check.check}", check, outcome_of_comparison(check, plan.expect))
            for check in judge_comparisons(plan_file, made).checks
        ]


rig.campaign.Campaign = StubCampaign  # type: ignore[assignment,misc]
