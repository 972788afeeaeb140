"""Comparisons between two points of a plan over the runs of one set. The run is the unit, never the packet.

Packets of one run share its boot, its temperature and its neighbours, so resampling packets calls two runs of the same
firmware different about every second time. Here each run gives one figure; the k-th run of `b` is paired with the k-th
of `a`, which ran next to it because points run interleaved (`rig.plan.order`); the pairs' differences are judged by
`rig.timing.signed_rank`. With `ratio` the differences are those of logarithms. What a figure may be wrong by, as of a
clock that had to be aligned, widens the difference of its pair; what is undefined may be anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from rig.plan.bounds import DurationBound, RatioBound
from rig.plan.model import Comparison, Plan
from rig.plan.proof import pairs_needed
from rig.plan.units import format_ns
from rig.timing.limits import LimitResult, LimitSpec, format_share
from rig.timing.metrics.measurement import INFINITE_NS, NO_FLOOR_NS
from rig.timing.signed_rank import bounds, middle
from rig.timing.verdict import CheckResult, PointResult, Verdict, worst

COMPARISON = "comparison"
"""Stands where a check's metric is named."""


@dataclass(frozen=True)
class Figure:
    """One run's figure in ns, infinite where samples were lost; least, most: what it can be."""

    value: float
    least: float
    most: float


@dataclass(frozen=True)
class Pairs:
    """Figures of paired runs; unusable: runs left out, with the reason."""

    a: tuple[Figure, ...]
    b: tuple[Figure, ...]
    unusable: tuple[str, ...] = ()


def compare(
    plan: Plan,
    runs: Sequence[tuple[str, PointResult]],
    specs: Mapping[str, Sequence[LimitSpec]],
) -> tuple[CheckResult, ...]:
    """Judge all comparisons of a plan.

    runs: (point, result) of a set's runs of this plan, in the order in which they ran. specs: comparison → where its
    bound stands in the plan.
    """
    return tuple(
        _compare(name, comparison, plan, runs, specs.get(name, ())) for name, comparison in plan.comparisons.items()
    )


def pair_up(comparison: Comparison, runs: Sequence[tuple[str, PointResult]]) -> Pairs:
    """The k-th run of `b` with the k-th of `a`; a pair with an unusable run is left out."""
    figures: dict[str, list[Figure | None]] = {comparison.a: [], comparison.b: []}
    unusable = []
    for point, result in runs:
        if point not in figures:
            continue
        figure, reason = _figure(comparison, result)
        figures[point].append(figure)
        if figure is None:
            unusable.append(f"run {len(figures[point])} of {point}: {reason}")
    pairs = [
        (a, b)
        for a, b in zip(figures[comparison.a], figures[comparison.b], strict=False)
        if a is not None and b is not None
    ]
    return Pairs(tuple(a for a, _ in pairs), tuple(b for _, b in pairs), tuple(unusable))


def _figure(comparison: Comparison, result: PointResult) -> tuple[Figure | None, str]:
    check = next((check for check in result.checks if check.check == comparison.of), None)
    if check is None or check.verdict in (Verdict.ERROR, Verdict.SKIP):
        return None, "it gave nothing to judge"
    voiding = next((finding for finding in result.findings if check.check in finding.voids), None)
    if voiding is not None:  # it voids the figure, whatever the check's verdict is
        return None, voiding.sentence
    if check.unprovable:
        return None, check.unprovable
    value = check.compared.get(comparison.statistic)
    if value is None and not check.n:
        return None, check.reason
    if value is None:
        return None, f"too few samples for its {comparison.statistic}"
    least, most = check.compared_within.get(comparison.statistic, (value, value))
    return Figure(_real(value), _real(least), _real(most)), ""


def _real(value_ns: int) -> float:
    return {INFINITE_NS: math.inf, NO_FLOOR_NS: -math.inf}.get(value_ns, float(value_ns))


def _compare(
    name: str, comparison: Comparison, plan: Plan, runs: Sequence[tuple[str, PointResult]], specs: Sequence[LimitSpec]
) -> CheckResult:
    confidence = comparison.confidence if comparison.confidence is not None else plan.confidence
    e_ns = max((result.e_ns for _, result in runs), default=0)
    pairs = pair_up(comparison, runs)
    n = len(pairs.a)
    subject = f"{comparison.statistic} of {comparison.of}, {comparison.b} against {comparison.a}"
    if n == 0:
        asked = {point for point, _ in runs} >= {comparison.a, comparison.b}
        reason = pairs.unusable[0] if pairs.unusable else "its points were not both run"
        verdict = Verdict.INCONCLUSIVE if asked else Verdict.SKIP
        return CheckResult(name, COMPARISON, verdict, f"{subject}: {reason}", notes=pairs.unusable)

    as_ratio = comparison.ratio is not None
    steps = [_step(a.value, b.value, as_ratio) for a, b in zip(pairs.a, pairs.b, strict=True)]
    ends = [_ends(a, b, e_ns, as_ratio) for a, b in zip(pairs.a, pairs.b, strict=True)]
    low, high = bounds([least for least, _ in ends], [most for _, most in ends], confidence)
    shown = _shown(middle(steps), as_ratio)
    around = "" if low is None or high is None else f" [{_shown(low, as_ratio)}, {_shown(high, as_ratio)}]"
    headline = f"{subject}: {shown}{around} over {n} {'pairs' if n > 1 else 'pair'} of runs"

    results = tuple(
        _judge(spec, limit, is_max, low, high, n, confidence) for spec in specs for limit, is_max in _limits(spec.bound)
    )
    notes = [*pairs.unusable]
    undefined = sum(math.isnan(step) for step in steps)
    if undefined:
        notes.append(
            f"{undefined} of {n} differences are undefined, because both runs lost so many samples or a ratio needs "
            "positive figures"
        )
    if results:
        verdict = worst(Verdict(result.verdict) for result in results)
        deciding = next(result for result in results if result.verdict == verdict.value)
        reason = f"{headline}; {deciding.rule}: {deciding.reason}"
    else:
        verdict = Verdict.SKIP
        proof = "" if low is not None else f", and {pairs_needed(confidence)} pairs would be needed to prove one"
        reason = f"{headline}; the plan sets no bound, so there is no verdict{proof}"
    return CheckResult(
        check=name,
        metric=COMPARISON,
        verdict=verdict,
        reason=reason,
        limits=results,
        n=n,
        of="pairs of runs",
        notes=tuple(notes),
        confidence=confidence,
        proof="exact",
    )


def _step(a: float, b: float, as_ratio: bool) -> float:
    if not as_ratio:
        return b - a
    if a <= 0 or b <= 0:
        return math.nan
    return math.log(b) - math.log(a)


def _ends(a: Figure, b: Figure, e_ns: int, as_ratio: bool) -> tuple[float, float]:
    """The least and the most that a step can be; a ratio has the error of each of its figures."""
    if as_ratio:
        if a.value <= 0 or b.value <= 0:
            return math.nan, math.nan
        return _log(b.least - e_ns) - _log(a.most + e_ns), _log(b.most + e_ns) - _log(a.least - e_ns)
    return b.least - a.most - e_ns, b.most - a.least + e_ns


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _shown(step: float, as_ratio: bool) -> str:
    if math.isnan(step):
        return "undefined"
    if math.isinf(step):
        return "infinite" if step > 0 else "-infinite"
    if as_ratio:
        return f"{math.exp(step) * 100:.2f} %"
    return ("+" if step > 0 else "") + format_ns(round(step))


def _limits(bound: object) -> list[tuple[Fraction, bool]]:
    """(limit, is it a maximum) in ns, or as a ratio."""
    assert isinstance(bound, DurationBound | RatioBound)
    return [(Fraction(limit), is_max) for limit, is_max in ((bound.max, True), (bound.min, False)) if limit is not None]


def _judge(
    spec: LimitSpec,
    limit: Fraction,
    is_max: bool,
    low: float | None,
    high: float | None,
    n: int,
    confidence: Fraction,
) -> LimitResult:
    as_ratio = isinstance(spec.bound, RatioBound)
    text = format_share(limit) if as_ratio else format_ns(int(limit))
    rule = f"{spec.key} {'<=' if is_max else '>='} {text}"
    edge = float(limit) if not as_ratio else math.log(limit) if limit > 0 else -math.inf
    if low is None or high is None:
        needed = pairs_needed(confidence)
        said = "one run each shows a difference and proves nothing" if n == 1 else f"{n} pairs prove nothing"
        reason = f"{said}; {needed} are needed (`repeat: {needed}`)"
        return LimitResult(spec, rule, "INCONCLUSIVE", reason, needed=needed - n, is_max=is_max)
    within = high <= edge if is_max else low >= edge
    beyond = low > edge if is_max else high < edge
    if within:
        return LimitResult(spec, rule, "PASS", f"proven at {format_share(confidence)}", is_max=is_max)
    if beyond:
        return LimitResult(spec, rule, "FAIL", f"proven to be beyond at {format_share(confidence)}", is_max=is_max)
    reason = "the interval holds the limit; more runs may narrow it (`repeat`)"
    return LimitResult(spec, rule, "INCONCLUSIVE", reason, is_max=is_max)
