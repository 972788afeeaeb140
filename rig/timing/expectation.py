"""`expect: {fail: […]}`: a plan that provokes a fault is green exactly when the named checks fail, all others pass."""

from __future__ import annotations

from dataclasses import dataclass

from rig.plan.model import Expect
from rig.timing.verdict import CheckResult, PointResult, Verdict


@dataclass(frozen=True)
class Outcome:
    """Whether a result is what the plan wants. sentence: why, beginning with the verdict."""

    green: bool
    sentence: str


def outcome_of_check(result: CheckResult, expect: Expect | None) -> Outcome:
    """Judge one check against the plan's expectation; without one every check must PASS."""
    if result.check in (expect.fail if expect else ()):
        if result.verdict is Verdict.FAIL:
            return Outcome(True, f"{result.verdict} as expected: {result.reason}")
        return Outcome(
            False,
            f"{result.verdict}, but the plan expects check `{result.check}` to FAIL: {result.reason}",
        )
    if result.verdict is Verdict.PASS:
        return Outcome(True, f"PASS: {result.reason}")
    if result.verdict is Verdict.SKIP:
        return Outcome(True, f"SKIP: {result.reason}")
    return Outcome(False, f"{result.verdict}: {result.reason}")


def outcome(result: PointResult, expect: Expect | None) -> Outcome:
    """Judge a whole run: strict, so that a named check that is missing from the results is red too."""
    named = list(expect.fail) if expect else []
    absent = [name for name in named if name not in {check.check for check in result.checks}]
    if absent:
        return Outcome(False, f"{result.verdict}, but expected to FAIL and not judged at all: {', '.join(absent)}")
    red = [check for check in result.checks if not outcome_of_check(check, expect).green]
    if red:
        first = outcome_of_check(red[0], expect)
        more = f" (and {len(red) - 1} more)" if len(red) > 1 else ""
        return Outcome(False, f"{red[0].check}: {first.sentence}{more}")
    if all(check.verdict is Verdict.SKIP for check in result.checks):
        return Outcome(False, "SKIP: nothing was judged")
    if named:
        return Outcome(True, f"{result.verdict} as expected: {', '.join(named)}; all other checks pass")
    return Outcome(True, "PASS: every check passes")
