"""The first words about a case: each check that decides, with value and limit, and what the plan provokes on purpose.

What a plan imposes is said here for a reader; no rule looks at it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from rig.plan.bounds import CountBound, DurationBound, ShareBound
from rig.plan.units import format_ns
from rig.timing.expectation import outcome
from rig.timing.judge import ALIVE
from rig.timing.limits import LimitResult, format_share
from rig.timing.metrics.measurement import INFINITE_NS
from rig.timing.verdict import CheckResult, Verdict, worst

if TYPE_CHECKING:
    from rig.triage.case import Case

MOST: Final = 4
"""Checks that get a line of their own."""
_EVENTS: Final = {
    "loss": "{n} of {of} requests unanswered",
    "duplicates": "{n} copies among {of} packets",
    "reordering": "{n} of {of} packets out of order",
}
_WAYS: Final = {"to-board": "to the board", "from-board": "from the board", "both": "in both directions"}


def name_of(case: Case) -> str:
    """`plan[point]`, or the name of what was triaged."""
    if case.result is None:
        return case.path.name
    return case.result.plan + (f"[{case.result.point}]" if case.result.point else "")


def verdict_of(case: Case) -> str:
    """The verdict over all checks; empty for a capture without a plan."""
    return "" if case.result is None else str(worst(check.verdict for check in case.result.checks))


def as_expected(case: Case) -> bool | None:
    """Whether just those checks failed that the plan's `expect:` names; None for a plan without it."""
    expect = case.point.plan.expect if case.point is not None else None
    if case.result is None or expect is None or not expect.fail:
        return None
    return outcome(case.result, expect).green


def badge(case: Case) -> str:
    """The verdict as a reader needs it: `FAIL, as the plan expects` where it is what the plan provokes."""
    expected = as_expected(case)
    how = "" if expected is None else ", as the plan expects" if expected else ", not as the plan expects"
    return f"{verdict_of(case) or 'CAPTURE'}{how}"


def headlines(case: Case) -> list[str]:
    """One line per check that decides the verdict, at most `MOST` and `and N more`."""
    if case.result is None:
        return ["a capture without a plan: diagnosed, not judged"]
    total = worst(check.verdict for check in case.result.checks)
    if total is Verdict.PASS:
        return ["every check passed"]
    deciding = [check for check in case.result.checks if check.verdict is total]
    if len({check.reason for check in deciding}) == 1 and len(deciding) > 1:
        return [f"{', '.join(check.check for check in deciding)}: {deciding[0].reason}"]
    # A board that died explains the rest.
    lines = [headline(check) for check in sorted(deciding, key=lambda check: check.metric != ALIVE)]
    more = len(lines) - MOST
    return lines if more <= 0 else [*lines[:MOST], f"and {more} more checks {total}"]


def headline(check: CheckResult) -> str:
    """Value against limit with its noun: `p90 of answer-gap 14.92 ms, limit 12 ms (2.92 ms over)`."""
    deciding = next((limit for limit in check.limits if limit.verdict == check.verdict.value), None)
    if check.verdict is Verdict.FAIL and deciding is not None:
        return _broken(check, deciding) or f"{check.check}: {deciding.rule}: {deciding.reason}"
    if check.metric == ALIVE:
        # Registers and further consequences stand with the check itself.
        return f"{check.check}: {re.split('; | pc=', check.reason)[0]}"
    return f"{check.check}: {check.reason}"


def imposed(case: Case) -> str:
    """What the plan does to the bench on purpose: `jitter 8 ms from the board`; empty for nothing."""
    plan = case.point.plan if case.point is not None else None
    if case.info is not None:
        rules, variant = case.info.impairment, str(case.info.firmware.get("variant") or "")
    elif plan is not None:
        rules = [rule.model_dump(mode="json", by_alias=True) for rule in plan.impairment]
        variant = plan.firmware.variant
    else:
        return ""
    parts = [_imposed(rule) for rule in rules]
    if variant.startswith("fault_"):
        parts.append(f"firmware with a fault built in, `{variant}`")
    return "; ".join(parts)


def figure(ns: int) -> str:
    """A duration in four significant digits, which is what a reader compares."""
    return "lost" if ns == INFINITE_NS else format_ns(_rounded(ns))


def _rounded(ns: int) -> int:
    scale = 10 ** max(0, len(str(abs(ns))) - 4)
    return int(round(ns / scale) * scale)


def _broken(check: CheckResult, limit: LimitResult) -> str:
    bound, key = limit.spec.bound, limit.spec.key
    if isinstance(bound, CountBound | ShareBound) and key in ("count", "ratio") and check.metric in _EVENTS:
        words = _EVENTS[check.metric].format(n=limit.beyond, of=check.n)
        if check.metric == "loss" and "requests" not in check.of:
            words = f"{limit.beyond} of {check.n} {check.of} are missing"
        allowed = str(bound.max) if isinstance(bound, CountBound) else format_share(bound.max)
        return f"{check.check}: {words}, {allowed} allowed"
    if not isinstance(bound, DurationBound) or limit.limit_ns is None:
        return ""
    side = "over" if limit.is_max else "under"
    if key == "each":
        reached = [each.value_ns for each in check.violations if each.rule == limit.rule]
        far = f", the worst {figure(reached[0])}" if reached and reached[0] != INFINITE_NS else ""
        lost = f" ({check.summary.lost} lost)" if check.summary is not None and check.summary.lost else ""
        return f"{check.check}: {limit.beyond} of {check.n} {check.of} {side} {format_ns(limit.limit_ns)}{lost}{far}"
    seen = next((each for each in (check.summary.quantiles if check.summary else ()) if each.name == key), None)
    if seen is None or seen.value_ns is None:
        return ""
    limit_text = f"limit {format_ns(limit.limit_ns)}"
    if seen.value_ns == INFINITE_NS:
        return f"{key} of {check.check} is lost ({limit.beyond} of {check.n} {check.of} {side} the limit), {limit_text}"
    excess = (_rounded(seen.value_ns) - limit.limit_ns) * (1 if limit.is_max else -1)
    # Blocks of dependent samples may fail a quantile that is itself within its limit.
    if excess <= 0:
        return ""
    return f"{key} of {check.check} {figure(seen.value_ns)}, {limit_text} ({figure(excess)} {side})"


def _imposed(rule: Mapping[str, Any]) -> str:
    what = [f"{name} {value}" for name, value in _amounts(rule)]
    where = [f"{name} {value}" for name, value in (rule.get("select") or {}).items()]
    way = _WAYS.get(str(rule.get("direction", "both")), str(rule.get("direction")))
    return f"{', '.join(what)} {way}" + (f" ({', '.join(where)})" if where else "")


def _amounts(rule: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name in ("delay", "jitter", "loss", "duplicate", "reorder", "rate"):
        value = rule.get(name)
        if value and not str(value).startswith("0 "):
            yield name, value
