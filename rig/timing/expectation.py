"""`expect: {fail: […]}`: a plan that provokes a fault is green exactly when the named checks fail, all others pass."""

from __future__ import annotations

from dataclasses import dataclass

from rig.plan.model import Expect
from rig.timing.verdict import CheckResult, PointResult, Verdict, worst


@dataclass(frozen=True)
class Outcome:
    """Whether a result is what the plan wants. sentence: why, beginning with the verdict that was reached.

    verdict: the result as the plan wants to see it: PASS when the expectation is met (SKIP when there was nothing to
    judge), FAIL for a check that was expected to fail and passed, else the worst of what is not as wanted.
    """

    green: bool
    sentence: str
    verdict: Verdict


def outcome_of_check(result: CheckResult, expect: Expect | None) -> Outcome:
    """Judge one check against the plan's expectation; without one every check must PASS."""
    if result.check in (expect.fail if expect else ()):
        if result.verdict is Verdict.FAIL:
            return Outcome(True, f"{result.verdict} as expected: {result.reason}", Verdict.PASS)
        return Outcome(
            False,
            f"{result.verdict}, but the plan expects `{result.check}` to FAIL: {result.reason}",
            Verdict.FAIL if result.verdict is Verdict.PASS else result.verdict,
        )
    green = result.verdict in (Verdict.PASS, Verdict.SKIP)
    return Outcome(green, f"{result.verdict}: {result.reason}", result.verdict)


def outcome_of_comparison(result: CheckResult, expect: Expect | None) -> Outcome:
    """The same for a comparison, which without a bound, or without runs of both points, decides nothing."""
    if result.verdict is Verdict.SKIP:
        return Outcome(True, f"SKIP: {result.reason}", Verdict.SKIP)
    return outcome_of_check(result, expect)


def outcome(result: PointResult, expect: Expect | None) -> Outcome:
    """Judge a whole run: strict, so that a named check that is missing from the results is red too."""
    named = list(expect.fail) if expect else []
    outcomes = {check.check: outcome_of_check(check, expect) for check in result.checks}
    red = {name: one for name, one in outcomes.items() if not one.green}
    verdict = worst(one.verdict for one in red.values())
    absent = [name for name in named if name not in outcomes]
    if absent:
        sentence = f"{result.verdict}, but expected to FAIL and not judged at all: {', '.join(absent)}"
        return Outcome(False, sentence, worst((Verdict.FAIL, verdict)))
    if red:
        first = next(iter(red))
        more = f" (and {len(red) - 1} more)" if len(red) > 1 else ""
        return Outcome(False, f"{first}: {red[first].sentence}{more}", verdict)
    if all(check.verdict is Verdict.SKIP for check in result.checks):
        return Outcome(False, "SKIP: nothing was judged", Verdict.SKIP)
    if named:
        sentence = f"{result.verdict} as expected: {', '.join(named)}; all other checks pass"
        return Outcome(True, sentence, Verdict.PASS)
    return Outcome(True, "PASS: every check passes", Verdict.PASS)
