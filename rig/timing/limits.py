"""Limits: bounds that print their own rule and judge a measurement, with the bench's uncertainty e as guard band.

A value v is surely beyond a maximum L when v - e > L, surely within it when v + e <= L; both ends are inclusive, all
compared as integers. What is surely beyond proves FAIL, what is not surely within must not exceed what PASS allows,
the rest is INCONCLUSIVE. A limit finer than 3 e cannot be passed on this bench.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rig.plan.model import AtMost, CountBound, DurationBound, ShareBound
from rig.plan.units import format_ns
from rig.timing.binomial import prove
from rig.timing.metrics.measurement import INFINITE_NS, NO_FLOOR_NS, Measurement
from rig.timing.statistics import order_statistic, percentile_of

FINEST = 3
"""A limit below this many e is too fine for the bench."""

Bound = DurationBound | CountBound | ShareBound | AtMost
Judged = Literal["PASS", "FAIL", "INCONCLUSIVE"]


@dataclass(frozen=True)
class LimitSpec:
    """One effective limit of a check and where the plan says so.

    key: `each`, `at_most`, `count`, `ratio` or a percentile such as `p99`. source: what it comes from, `limits` or the
    bench profile (`hardware`, `emulated`) whose section took its place.
    """

    key: str
    bound: Bound
    file: str = ""
    line: int = 0
    column: int = 0
    source: str = "limits"

    @property
    def place(self) -> str:
        """`file:line` as editors and terminals understand it."""
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Doubt:
    """What imperfect evidence may account for: so many packets missing, so many ns shifted; None: nobody knows."""

    missing: int | None = 0
    shift_ns: int | None = 0


@dataclass(frozen=True)
class LimitResult:
    """How one rule came out.

    rule: such as `p99 <= 20 ms`. reason: one sentence with the figures. beyond: samples or events surely beyond the
    limit; open: those the guard band or the end of the capture leaves open. needed: further samples that would prove
    PASS. limit_ns: the bound of a rule on durations. worst: indices into the measurement, worst first.
    """

    spec: LimitSpec
    rule: str
    verdict: Judged
    reason: str
    beyond: int = 0
    open: int = 0
    needed: int = 0
    limit_ns: int | None = None
    is_max: bool = True
    worst: tuple[int, ...] = ()


@dataclass(frozen=True)
class Setting:
    """How limits are judged: e in ns, the plan's confidence, and `exact` or `sample` proof of percentiles."""

    e_ns: int
    confidence: Fraction
    proof: Literal["exact", "sample"] = "exact"


def rules(spec: LimitSpec) -> tuple[str, ...]:
    """The rules of a limit as a person reads them: one per end of the bound."""
    bound = spec.bound
    if isinstance(bound, AtMost):
        return (f"at most {bound.count} beyond {format_ns(bound.beyond)}",)
    if isinstance(bound, CountBound):
        return (f"count <= {bound.max}",)
    if isinstance(bound, ShareBound):
        return (f"ratio <= {format_share(bound.max)}",)
    return tuple(f"{spec.key} {'<=' if is_max else '>='} {format_ns(limit)}" for limit, is_max in _ends(bound))


def format_share(share: Fraction) -> str:
    """Fraction(1, 1000) → `0.1 %`."""
    return f"{float(share * 100):.6g} %"


def judge_limit(spec: LimitSpec, measured: Measurement, setting: Setting, doubt: Doubt) -> tuple[LimitResult, ...]:
    """Judge one limit, one result per rule. What `doubt` can account for is never held against the board."""
    return tuple(_judge(spec, measured, setting, doubt))


def _judge(spec: LimitSpec, measured: Measurement, setting: Setting, doubt: Doubt) -> Iterator[LimitResult]:
    bound = spec.bound
    if isinstance(bound, CountBound):
        yield _events(spec, measured, Fraction(bound.max), doubt)
    elif isinstance(bound, ShareBound):
        yield _events(spec, measured, bound.max * measured.denominator, doubt)
    elif isinstance(bound, AtMost):
        yield _durations(spec, rules(spec)[0], bound.beyond, True, bound.count, measured, setting, doubt)
    else:
        for (limit, is_max), rule in zip(_ends(bound), rules(spec), strict=True):
            allowed = 0 if spec.key == "each" else None
            yield _durations(spec, rule, limit, is_max, allowed, measured, setting, doubt)


def _ends(bound: DurationBound) -> list[tuple[int, bool]]:
    ends = [(bound.max, True), (bound.min, False)]
    return [(limit, is_max) for limit, is_max in ends if limit is not None]


def _events(spec: LimitSpec, measured: Measurement, allowed: Fraction, doubt: Doubt) -> LimitResult:
    (rule,) = rules(spec)
    least, most = measured.least, measured.most
    proven = _events_proven(measured, doubt)
    of = f"of {measured.denominator} {measured.of}"
    verdict: Judged
    if measured.denominator == 0:
        verdict, reason = "INCONCLUSIVE", f"0 {measured.of}: nothing to count"
    elif proven > allowed:
        verdict, reason = "FAIL", f"{least} {of}"
    elif least > allowed:
        verdict, reason = "INCONCLUSIVE", f"{least} {of}, which imperfect evidence could account for"
    elif most is None:
        verdict, reason = "INCONCLUSIVE", f"at least {least} {of}; how many at most is not known"
    elif most > allowed:
        verdict, reason = "INCONCLUSIVE", f"between {least} and {most} {of}"
    else:
        verdict, reason = "PASS", f"{most} {of}"
    return LimitResult(
        spec=spec,
        rule=rule,
        verdict=verdict,
        reason=reason,
        beyond=least,
        open=0 if most is None else most - least,
        worst=() if verdict == "PASS" else _worst(measured.value_ns, np.ones(len(measured.value_ns), bool), True),
    )


def _events_proven(measured: Measurement, doubt: Doubt) -> int:
    """Events that neither missing packets nor a shift of the clock (which reorders packets) can account for."""
    if doubt.missing is None or doubt.shift_ns is None:
        return 0
    stands = measured.least
    if doubt.shift_ns:
        stands = min(stands, int(np.count_nonzero(measured.value_ns > doubt.shift_ns)))
    return max(0, stands - doubt.missing)


def _durations(
    spec: LimitSpec,
    rule: str,
    limit_ns: int,
    is_max: bool,
    allowed: int | None,
    measured: Measurement,
    setting: Setting,
    doubt: Doubt,
) -> LimitResult:
    """allowed: how many samples may be beyond the limit; None for a percentile."""
    n = len(measured.value_ns)
    e_ns = setting.e_ns
    # `value` decides PASS, `floor` FAIL: they differ where the capture leaves a sample open.
    if is_max:
        not_within = measured.value_ns > limit_ns - e_ns
        beyond = measured.floor_ns > limit_ns + e_ns
        explained = _more_than(measured.floor_ns, limit_ns + e_ns, doubt)
    else:
        not_within = (measured.floor_ns < limit_ns + e_ns) & (measured.value_ns != INFINITE_NS)
        beyond = measured.value_ns < limit_ns - e_ns
        shift = doubt.shift_ns
        explained = 0 if shift is None else int(np.count_nonzero(measured.value_ns < limit_ns - e_ns - shift))
    sure, doubtful = int(np.count_nonzero(beyond)), int(np.count_nonzero(not_within))
    side = "over" if is_max else "under"
    figures = f"{sure} of {n} {measured.of} {side} {format_ns(limit_ns)}"
    if doubtful > sure:
        figures += f", {doubtful - sure} more within e = {format_ns(e_ns)} or undecided"

    verdict: Judged
    needed = 0
    if n == 0:
        verdict, reason = "INCONCLUSIVE", f"0 {measured.of}: no packets, no verdict"
    elif allowed is not None:
        verdict = "FAIL" if explained > allowed else "PASS" if doubtful <= allowed else "INCONCLUSIVE"
        reason = figures
    elif setting.proof == "sample":
        verdict, reason = _sample(spec, limit_ns, is_max, measured, setting, doubt)
    else:
        q = percentile_of(spec.key)
        share = 1 - q if is_max else q
        proof = prove(n, doubtful, min(doubtful, explained), share, setting.confidence)
        verdict, needed = proof.verdict, max(0, proof.needed)
        reason = f"{figures}, {format_share(share)} allowed"
        if verdict == "INCONCLUSIVE" and needed:
            reason += f"; {needed} more samples, none {side} the limit, would prove it"
    if verdict == "INCONCLUSIVE" and n and explained < sure and _fails(n, sure, allowed, spec, is_max, setting):
        reason = f"{figures}, which imperfect evidence could account for"
        needed = 0
    if verdict == "PASS" and limit_ns < FINEST * e_ns:
        verdict, needed = "INCONCLUSIVE", 0
        reason = f"the limit is finer than {FINEST} e = {format_ns(FINEST * e_ns)}: not measurable on this bench"
    return LimitResult(
        spec=spec,
        rule=rule,
        verdict=verdict,
        reason=reason,
        beyond=sure,
        open=max(0, doubtful - sure),
        needed=needed,
        limit_ns=limit_ns,
        is_max=is_max,
        worst=() if verdict == "PASS" else _worst(measured.value_ns, beyond if sure else not_within, is_max),
    )


def _more_than(floor_ns: NDArray[np.int64], limit_ns: int, doubt: Doubt) -> int:
    """Samples over the limit that neither a shift of the clock nor missing packets can account for."""
    if doubt.missing is None:
        return 0
    if doubt.shift_ns is None:
        beyond = int(np.count_nonzero(floor_ns == INFINITE_NS))
    else:
        beyond = int(np.count_nonzero(floor_ns > limit_ns + doubt.shift_ns))
    return max(0, beyond - doubt.missing)


def _fails(n: int, sure: int, allowed: int | None, spec: LimitSpec, is_max: bool, setting: Setting) -> bool:
    if allowed is not None:
        return sure > allowed
    q = percentile_of(spec.key)
    return prove(n, n, sure, 1 - q if is_max else q, setting.confidence).verdict == "FAIL"


def _sample(
    spec: LimitSpec, limit_ns: int, is_max: bool, measured: Measurement, setting: Setting, doubt: Doubt
) -> tuple[Judged, str]:
    """Judge the observed order statistic alone; a percentile finer than 1/n has no such statistic."""
    q = percentile_of(spec.key)
    n = len(measured.value_ns)
    if n * min(q, 1 - q) < 1:
        return "INCONCLUSIVE", f"{n} samples have no {spec.key}"
    least, value = order_statistic(measured.floor_ns, q), order_statistic(measured.value_ns, q)
    text = f"observed {spec.key} = {format_value(value)} of {n} samples (proof: sample)"
    e_ns = setting.e_ns
    if doubt.missing is None or doubt.shift_ns is None:
        provable = False
    elif is_max:
        spared = np.sort(measured.floor_ns)[: max(1, n - doubt.missing)]
        provable = order_statistic(spared, q) > limit_ns + e_ns + doubt.shift_ns
    else:
        provable = value < limit_ns - e_ns - doubt.shift_ns
    if provable:
        return "FAIL", text
    if value <= limit_ns - e_ns if is_max else least >= limit_ns + e_ns:
        return "PASS", text
    return "INCONCLUSIVE", f"{text}, within e = {format_ns(e_ns)} of the limit or in doubt"


def format_value(value_ns: int) -> str:
    """A sample as a person reads it; lost ones have no value."""
    if value_ns == INFINITE_NS:
        return "lost"
    return "open" if value_ns == NO_FLOOR_NS else format_ns(value_ns)


def _worst(value_ns: NDArray[np.int64], mask: NDArray[np.bool_], is_max: bool, most: int = 5) -> tuple[int, ...]:
    """Indices of the worst samples that the mask admits; among equals the earliest come first."""
    index = np.flatnonzero(mask)
    if len(index) > most * 4:
        key = value_ns[index]
        cut = np.partition(key, len(key) - most)[len(key) - most] if is_max else np.partition(key, most - 1)[most - 1]
        index = index[key >= cut] if is_max else index[key <= cut]
    values = value_ns[index]
    order = np.argsort(~values if is_max else values, kind="stable")
    return tuple(int(i) for i in index[order][:most])
