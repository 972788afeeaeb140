"""Limits: bounds that print their own rule and judge a measurement, with the bench's uncertainty e as guard band.

A value v is surely beyond a maximum L when v - e > L, surely within it when v + e <= L; both ends are inclusive, all
compared as integers. What is surely beyond proves FAIL, what is not surely within must not exceed what PASS allows,
the rest is INCONCLUSIVE. A limit finer than 3 e cannot be passed on this bench.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rig.plan.bounds import AtMost, CountBound, DurationBound, LateBound, RateBound, RatioBound, ShareBound
from rig.plan.units import format_ns, format_rate
from rig.timing.metrics.measurement import INFINITE_NS, NO_FLOOR_NS

FINEST = 3
"""A limit below this many e is too fine for the bench."""

ENOUGH = 10
"""So many samples, or 1 % of all where that is more, show whether bad ones come together; and a PASS of a percentile
that would not hold for stretches of so many says so."""

MARGIN = Fraction(1, 10)
"""A PASS that uses up more than all but this share of its limit is marginal, which is reported."""

Bound = DurationBound | CountBound | ShareBound | AtMost | LateBound | RateBound | RatioBound
Judged = Literal["PASS", "FAIL", "INCONCLUSIVE"]


@dataclass(frozen=True)
class LimitSpec:
    """One effective limit of a check and where the plan says so.

    key: a percentile such as `p99`, or one of `rig.plan.bounds.SINGLE`. source: what it comes from, `limits` or the
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
    PASS. limit_ns: the bound of a rule on durations. worst: indices into the measurement, worst first. block: samples
    that were judged as one, because they depend on each other. stretch: of a proven percentile, the longest stretch of
    samples beyond the limit that the proof allows for, looked for up to `ENOUGH`. marginal: it holds with less than
    `MARGIN` to spare.
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
    block: int = 1
    stretch: int = 0
    marginal: bool = False


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
        span = "" if bound.in_any is None else f" in any {format_ns(bound.in_any)}"
        return (f"at most {bound.count} beyond {format_ns(bound.beyond)}{span}",)
    if isinstance(bound, CountBound):
        return (f"{spec.key} <= {bound.max}",)
    if isinstance(bound, LateBound):
        return (f"{spec.key} <= {format_ns(bound.max)}",)
    if isinstance(bound, RatioBound):
        ends = [("<=", bound.max), (">=", bound.min)]
        return tuple(f"{spec.key} {sign} {format_share(limit)}" for sign, limit in ends if limit is not None)
    if isinstance(bound, RateBound):
        return tuple(f"{spec.key} {'<=' if is_max else '>='} {format_rate(limit)}" for limit, is_max in ends_of(bound))
    if isinstance(bound, ShareBound):
        return (f"ratio <= {format_share(bound.max)}",)
    return tuple(f"{spec.key} {'<=' if is_max else '>='} {format_ns(limit)}" for limit, is_max in ends_of(bound))


def format_share(share: Fraction) -> str:
    """Fraction(1, 1000) → `0.1 %`."""
    return f"{float(share * 100):.6g} %"


def ends_of(bound: DurationBound | RateBound) -> list[tuple[int, bool]]:
    ends = [(bound.max, True), (bound.min, False)]
    return [(limit, is_max) for limit, is_max in ends if limit is not None]


def too_fine(e_ns: int) -> str:
    return f"the limit is finer than {FINEST} e = {format_ns(FINEST * e_ns)}: not measurable on this bench"


def format_value(value_ns: int) -> str:
    """A sample as a person reads it; lost ones have no value."""
    if value_ns == INFINITE_NS:
        return "lost"
    return "open" if value_ns == NO_FLOOR_NS else format_ns(value_ns)


def worst_samples(value_ns: NDArray[np.int64], mask: NDArray[np.bool_], is_max: bool, most: int = 5) -> tuple[int, ...]:
    """Indices of the worst samples that the mask admits; among equals the earliest come first."""
    index = np.flatnonzero(mask)
    if len(index) > most * 4:
        key = value_ns[index]
        cut = np.partition(key, len(key) - most)[len(key) - most] if is_max else np.partition(key, most - 1)[most - 1]
        index = index[key >= cut] if is_max else index[key <= cut]
    values = value_ns[index]
    order = np.argsort(~values if is_max else values, kind="stable")
    return tuple(int(i) for i in index[order][:most])
