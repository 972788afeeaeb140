"""The items of a plan: a check over all runs of its point, a comparison over all runs of two points.

FAIL fails in the call phase, so JUnit counts a failure. INCONCLUSIVE and ERROR fail in the set-up phase, so JUnit
counts an error. The property `verdict` and the first word of the text say which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rig.pytest_plugin.reporting import shown_with
from rig.pytest_plugin.runs import PlanItem, SharedRuns
from rig.record import from_here

if TYPE_CHECKING:
    from rig.campaign import Judged
    from rig.plan.load import Point
    from rig.timing.expectation import Outcome
    from rig.timing.verdict import CheckResult


class _JudgedItem(PlanItem):
    """What checks and comparisons have in common."""

    def __init__(self, *, check: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.check = check
        self._failure: str | None = None
        plan = self.runs.plan_file.plan
        told = plan.requirement
        self.requirements = [told] if isinstance(told, str) and told else list(told)
        self.add_marker("plan")
        for requirement in self.requirements:
            self.add_marker(pytest.mark.requirement(id=requirement))
        self.extra_keyword_matches.update(self.requirements)

    def require(self, capabilities: Sequence[str]) -> None:
        """Make the item selectable by what it needs of a bench."""
        for capability in capabilities:
            self.add_marker(pytest.mark.requires(capability=capability))
        self.extra_keyword_matches.update(capabilities)

    def runtest(self) -> None:
        if self._failure is not None:
            pytest.fail(self._failure, pytrace=False)

    def settle(self, result: CheckResult, outcome: Outcome, details: str = "") -> None:
        """End the set-up as `result` and what the plan wants of it say. details: lines below the result's own."""
        from rig.timing.rendering import render_check
        from rig.timing.verdict import Verdict

        if result.verdict is Verdict.SKIP:
            pytest.skip(result.reason)
        if outcome.green:
            return
        text = render_check(result) + details
        if result.verdict in (Verdict.ERROR, Verdict.INCONCLUSIVE):
            pytest.fail(text, pytrace=False)
        self._failure = text if text.startswith("FAIL") else f"FAIL {self.check}: {outcome.sentence}\n{text}"

    def tell(self, verdict: str, point: str, record: Path | None) -> None:
        """JUnit's properties. `verdict` is what was judged; a fault that was expected is a FAIL that passes."""
        self.user_properties += [
            ("verdict", verdict),
            ("plan", self.runs.plan_file.plan.plan),
            ("point", point),
            ("check", self.check),
            *(("requirement", requirement) for requirement in self.requirements),
        ]
        if record is not None:
            self.user_properties.append(("record", str(record)))


class CheckItem(_JudgedItem):
    """One check of one point: the worst of its runs decides."""

    def __init__(self, *, point: Point, runs: SharedRuns, check: str, **kwargs: Any) -> None:
        super().__init__(runs=runs, needs=[point.name], check=check, **kwargs)
        self.point = point
        self.require(point.plan.requires)
        self.extra_keyword_matches.add(point.plan.firmware.variant)

    def setup(self) -> None:
        runs = self.runs.of(self.point.name, self)
        said = [self._said(number, judged) for number, judged in enumerate(runs, 1)]
        worst = min(said, key=lambda one: one.rank)
        self.tell(worst.verdict, self.point.name, worst.judged.record)
        if worst.result is not None:
            self.settle(worst.result, worst.outcome, _records(worst, said))
        # `alive` is not judged where there was no run, or no console to observe.
        elif worst.outcome.green:
            pytest.skip(worst.outcome.sentence)
        else:
            self._failure = f"FAIL {self.check}: {worst.outcome.sentence}{_records(worst, said)}"

    def reportinfo(self) -> tuple[Path, int | None, str]:
        from rig.run import title

        line = self.point.position("checks", self.check)[0] if self.check != "alive" else 1
        return self.path, line - 1, f"{title(self.runs.plan_file, self.point)}::{self.check}"

    def _said(self, number: int, judged: Judged) -> _Said:
        from rig.timing.expectation import Outcome, outcome_of_check
        from rig.timing.verdict import Verdict

        expect = self.point.plan.expect
        result = next((check for check in judged.result.checks if check.check == self.check), None)
        if result is not None:
            return _Said(number, judged, result, outcome_of_check(result, expect))
        if judged.record is None:
            return _Said(number, judged, None, Outcome(True, judged.outcome.sentence, Verdict.SKIP))
        if expect is not None and self.check in expect.fail:
            return _Said(number, judged, None, judged.outcome)
        return _Said(number, judged, None, Outcome(True, "no console was observed", Verdict.SKIP))


class ComparisonItem(_JudgedItem):
    """One comparison of a plan, over all runs of its two points."""

    def __init__(self, *, runs: SharedRuns, check: str, **kwargs: Any) -> None:
        comparison = runs.plan_file.plan.comparisons[check]
        super().__init__(runs=runs, needs=[comparison.a, comparison.b], check=check, **kwargs)
        points = [runs.plan_file.point(name) for name in self.needs]
        self.require(list(dict.fromkeys(name for point in points for name in point.plan.requires)))

    def setup(self) -> None:
        from rig.summary import row_of

        compared = self.runs.compared(self.check, self)
        shown_with(self, row_of(compared))
        self.tell(str(compared.result.verdict), "", None)
        self.settle(compared.result, compared.outcome)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        plan_file = self.runs.plan_file
        line = plan_file.position("comparisons", self.check)[0]
        return self.path, line - 1, f"{plan_file.plan.plan}::{self.check}"


@dataclass(frozen=True)
class _Said:
    """What one run says about a check. result: None where it says nothing."""

    number: int
    judged: Judged
    result: CheckResult | None
    outcome: Outcome

    @property
    def verdict(self) -> str:
        return str(self.result.verdict) if self.result else "SKIP"

    @property
    def rank(self) -> tuple[bool, int]:
        """The smallest decides: what the plan does not want, then by the order in which verdicts are summed up."""
        from rig.timing.verdict import Verdict

        return self.outcome.green, list(Verdict).index(self.result.verdict) if self.result else len(Verdict)


def _records(worst: _Said, said: Sequence[_Said]) -> str:
    """Lines that name the run that decides, and the others that are red."""
    lines = []
    for one in [worst, *(one for one in said if one is not worst and not one.outcome.green)]:
        if one.judged.record is None:
            continue
        also = "" if one is worst else f"{one.verdict} too in "
        run = f"{also}run {one.number} of {len(said)}, " if len(said) > 1 else ""
        lines.append(f"\n  {run}record: {from_here(one.judged.record)}")
    return "".join(lines)
