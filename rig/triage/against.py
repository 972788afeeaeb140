"""A good run beside a bad one: which check moved first, by how much for sure, and what else changed.

The interval of a shift joins the two order-statistic intervals of the same quantile (97.5 % each, so at least 95 % for
the difference by Bonferroni's inequality). It assumes nothing about the distribution, and independent samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rig.terminal import printable
from rig.timing.binomial import quantile_interval, rank
from rig.timing.metrics.measurement import INFINITE_NS
from rig.triage.case import Case, samples_of
from rig.triage.facts import facts_of
from rig.triage.headline import figure

CONFIDENCE: Final = Fraction(975, 1000)
QUANTILES: Final = (("p50", Fraction(1, 2)), ("p90", Fraction(9, 10)), ("p99", Fraction(99, 100)))
_ALWAYS_DIFFERENT: Final = {"run", "started", "capture file", "frames"}


@dataclass(frozen=True)
class Shift:
    """One quantile of one check in both runs, ns. low_ns, high_ns: interval of the shift, None where unbounded,
    infinite where the quantile is lost in one of the runs for sure, and not in the other. moved: the interval lies
    wholly beyond the uncertainty e of the benches."""

    check: str
    figure: str
    good_ns: int
    bad_ns: int
    low_ns: int | None
    high_ns: int | None
    moved: bool

    @property
    def shift_text(self) -> str:
        if INFINITE_NS in (self.good_ns, self.bad_ns):
            return "lost" if self.bad_ns == INFINITE_NS else "found again"
        return _signed(self.bad_ns - self.good_ns)

    @property
    def interval_text(self) -> str:
        if INFINITE_NS in (self.low_ns, -(self.high_ns or 0)):
            return "for sure *"
        low = "…" if self.low_ns is None else _signed(self.low_ns)
        high = "…" if self.high_ns is None else _signed(self.high_ns)
        return f"{low} to {high}" + (" *" if self.moved else "")


@dataclass(frozen=True)
class Comparison:
    """good, bad: names. first: the first check, in the plan's order, that moved or changed its verdict, else empty.
    counts: (what, good, bad) that differ. changed: (fact, good, bad) that differ."""

    good: str
    bad: str
    first: str
    sentence: str
    shifts: tuple[Shift, ...]
    counts: tuple[tuple[str, int, int], ...]
    changed: tuple[tuple[str, str, str], ...]


def compare(case: Case, good: Case) -> Comparison:
    """Compare `case` with a run that is known to be good."""
    shifts = tuple(_shifts(case, good))
    verdicts = _verdicts(case, good)
    names = list(dict.fromkeys([*(shift.check for shift in shifts), *verdicts]))
    if case.result is not None:
        order = [check.check for check in case.result.checks]
        names.sort(key=lambda name: order.index(name) if name in order else len(order))
    moved = {shift.check: shift for shift in reversed(shifts) if shift.moved}
    first = next((name for name in names if name in moved or name in verdicts), "")
    mine, other = facts_of(case), facts_of(good)
    changed = tuple(
        (name, other.get(name, "-"), mine.get(name, "-"))
        for name in dict.fromkeys([*other, *mine])
        if name not in _ALWAYS_DIFFERENT and other.get(name) != mine.get(name)
    )
    if first in moved:
        shift = moved[first]
        how = "is" if INFINITE_NS in (shift.good_ns, shift.bad_ns) else "by"
        moved_by = f"{how} {shift.shift_text} ({shift.interval_text.rstrip(' *')})"
        sentence = f"{first} moved first: its {shift.figure} {moved_by}"
    elif first:
        sentence = f"{first} changed its verdict first: {verdicts[first][0]} became {verdicts[first][1]}"
    else:
        sentence = "no check moved by more than chance and e explain"
    return Comparison(good.path.name, case.path.name, first, sentence, shifts, tuple(_counts(case, good)), changed)


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """For the terminal."""
    yield printable(f"against {comparison.good}: {comparison.sentence}")
    for shift in comparison.shifts:
        good, bad = (figure(ns) for ns in (shift.good_ns, shift.bad_ns))
        moved = f"{shift.shift_text:>13}  [{shift.interval_text}]"
        yield f"  {shift.check:<24} {shift.figure:<4} {good:>12} -> {bad:>12}  {moved}"
    for what, good_count, bad_count in comparison.counts:
        yield f"  {what}: {good_count} -> {bad_count}"
    if not comparison.changed:
        yield "  changed: nothing recorded"
    for name, before, now in comparison.changed:
        yield printable(f"  changed: {name}: {before} -> {now}")


def _shifts(case: Case, good: Case) -> Iterator[Shift]:
    mine, other = _samples(case), _samples(good)
    e_ns = case.e_ns + good.e_ns
    for name in mine:
        if name not in other or not len(mine[name]) or not len(other[name]):
            continue
        for quantile, q in QUANTILES:
            a, b = _quantile(other[name], q), _quantile(mine[name], q)
            if a is None or b is None:
                continue
            low, higher = _least_difference(b[1], a[2]), _least_difference(a[1], b[2])
            high = None if higher is None else -higher
            moved = (low is not None and low > e_ns) or (high is not None and high < -e_ns)
            yield Shift(name, quantile, a[0], b[0], low, high, moved)


def _samples(case: Case) -> dict[str, NDArray[np.int64]]:
    """Check → its durations; the shares of the response time where there is no plan."""
    found = {name: measured.value_ns for name, measured in samples_of(case).items() if measured.kind == "durations"}
    exchanges = case.exchanges
    if exchanges is None:
        return found
    if not found and len(exchanges.asks):
        found["response time"] = exchanges.response_ns
    if exchanges.stamped and len(exchanges.answered) and len(case.boots) == 1:
        found["(wire and stacks)"] = exchanges.path_ns
        found["(board, t_rx to t_send)"] = exchanges.turnaround_ns
    return found


def _quantile(value: NDArray[np.int64], q: Fraction) -> tuple[int, int | None, int | None] | None:
    n = len(value)
    if n * min(q, 1 - q) < 1:
        return None
    ordered = np.sort(value)
    low, high = quantile_interval(n, q, CONFIDENCE)
    return (
        int(ordered[rank(n, q) - 1]),
        None if low is None else int(ordered[low - 1]),
        None if high is None else int(ordered[high - 1]),
    )


def _least_difference(low: int | None, high: int | None) -> int | None:
    """How far a value from `low` on lies above one up to `high`, at least; None where nobody knows. A bound is None
    where the sample is too small for it, and infinite where samples were lost."""
    if low is None or high is None or high == INFINITE_NS:
        return None
    return low if low == INFINITE_NS else low - high


def _verdicts(case: Case, good: Case) -> dict[str, tuple[str, str]]:
    if case.result is None or good.result is None:
        return {}
    before = {check.check: str(check.verdict) for check in good.result.checks}
    now = {check.check: str(check.verdict) for check in case.result.checks}
    return {name: (before[name], now[name]) for name in now if name in before and before[name] != now[name]}


def _counts(case: Case, good: Case) -> Iterator[tuple[str, int, int]]:
    for name, (was, now) in _verdicts(case, good).items():
        del was, now
        assert case.result is not None
        assert good.result is not None
        one, other = case.result.check(name), good.result.check(name)
        for what in dict.fromkeys([*other.counts, *one.counts]):
            a, b = other.counts.get(what, 0), one.counts.get(what, 0)
            if a != b:
                yield f"{name}, {what}", a, b
    if case.exchanges is not None and good.exchanges is not None:
        for what, a, b in (
            ("requests", len(good.exchanges.asks), len(case.exchanges.asks)),
            ("unanswered requests", len(good.exchanges.lost), len(case.exchanges.lost)),
            ("copies of answers", int(good.exchanges.answers.copy.sum()), int(case.exchanges.answers.copy.sum())),
        ):
            if a != b:
                yield what, a, b


def _signed(ns: int) -> str:
    return ("+" if ns >= 0 else "-") + figure(abs(ns))
