"""Limits of durations: every sample, at most so many, so many in any span of time, and percentiles by proof."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from rig.plan.bounds import AtMost
from rig.plan.units import format_ns
from rig.timing.binomial import Proof, prove, rank
from rig.timing.limits import (
    ENOUGH,
    FINEST,
    MARGIN,
    Doubt,
    Judged,
    LimitResult,
    LimitSpec,
    Setting,
    format_share,
    format_value,
    rules,
    too_fine,
    worst_samples,
)
from rig.timing.metrics.measurement import INFINITE_NS, NO_FLOOR_NS, Measurement
from rig.timing.statistics import block_length, dependence, order_statistic, percentile_of


def judge_durations(
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
    # A sample that the capture leaves open is at least its floor.
    if is_max:
        not_within = measured.value_ns > limit_ns - e_ns
        beyond = measured.floor_ns > limit_ns + e_ns
        explained = _more_than(measured.floor_ns, limit_ns + e_ns, doubt)
    else:
        most = _most(measured)
        not_within = measured.floor_ns < limit_ns + e_ns
        beyond = most < limit_ns - e_ns
        shift = doubt.shift_ns
        explained = 0 if shift is None else int(np.count_nonzero(most < limit_ns - e_ns - shift))
    sure, doubtful = int(np.count_nonzero(beyond)), int(np.count_nonzero(not_within))
    side = "over" if is_max else "under"
    figures = f"{sure} of {n} {measured.of} {side} {format_ns(limit_ns)}"
    if doubtful > sure:
        figures += f", {doubtful - sure} more within e = {format_ns(e_ns)} or undecided"

    verdict: Judged
    needed, block, stretch = 0, 1, 0
    observed = ""
    if n and allowed is None and setting.proof == "sample":
        allowed, observed = _observed(spec.key, is_max, measured.value_ns)
    if n == 0:
        verdict, reason = "INCONCLUSIVE", f"0 {measured.of}: no packets, no verdict"
    elif allowed is not None:
        verdict = "FAIL" if explained > allowed else "PASS" if doubtful <= allowed else "INCONCLUSIVE"
        reason = observed or figures
        if observed and verdict == "INCONCLUSIVE":
            reason += f", within e = {format_ns(e_ns)} of the limit or in doubt"
    elif observed:
        verdict, reason = "INCONCLUSIVE", observed
    else:
        q = percentile_of(spec.key)
        share = 1 - q if is_max else q
        block = _block(measured, not_within, is_max, share)
        proof = _in_blocks(n, doubtful, min(doubtful, explained), block, share, setting.confidence)
        verdict, needed = proof.verdict, max(0, proof.needed) * block
        if verdict == "PASS":
            stretch = max(block, _stretch(n, doubtful, share, setting.confidence))
        reason = f"{figures}, {format_share(share)} allowed"
        if block > 1:
            reason += f"; judged as {n // block} blocks of {block}, because the worst samples come together"
        if verdict == "INCONCLUSIVE" and needed:
            reason += f"; {needed} more samples, none {side} the limit, would prove it"
    if verdict == "INCONCLUSIVE" and n and explained < sure and _fails(n, sure, allowed, spec, is_max, setting, block):
        reason = f"{figures}, which imperfect evidence could account for"
        needed = 0
    if verdict == "PASS" and abs(limit_ns) < FINEST * e_ns:
        verdict, needed, stretch = "INCONCLUSIVE", 0, 0
        reason = too_fine(e_ns)
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
        worst=() if verdict == "PASS" else worst_samples(measured.value_ns, beyond if sure else not_within, is_max),
        block=block,
        stretch=stretch,
        marginal=verdict == "PASS" and _marginal(spec, limit_ns, is_max, allowed, measured.value_ns),
    )


def judge_spans(
    spec: LimitSpec, bound: AtMost, span_ns: int, measured: Measurement, setting: Setting, doubt: Doubt
) -> LimitResult:
    """At most `count` samples beyond the limit in any half-open span of time, by the time that each was captured."""
    (rule,) = rules(spec)
    e_ns, limit_ns = setting.e_ns, bound.beyond
    sure = measured.floor_ns > limit_ns + e_ns
    doubtful = measured.value_ns > limit_ns - e_ns
    crowded, most = _crowd(measured.time_ns, sure, span_ns - e_ns, bound.count)
    perhaps, _ = _crowd(measured.time_ns, doubtful, span_ns + e_ns, bound.count)
    proven = False
    if doubt.missing is not None:
        beyond = measured.floor_ns == INFINITE_NS
        if doubt.shift_ns is not None:
            beyond = measured.floor_ns > limit_ns + e_ns + doubt.shift_ns
        shift_ns = doubt.shift_ns or 0
        proven = bool(_crowd(measured.time_ns, beyond, span_ns - e_ns - shift_ns, bound.count + doubt.missing)[0].any())
    n = len(measured.value_ns)
    shown = crowded if crowded.any() else perhaps
    verdict: Judged
    reason = f"at most {most} of {n} {measured.of} over {format_ns(limit_ns)} in any {format_ns(span_ns)}"
    if n == 0:
        verdict, reason = "INCONCLUSIVE", f"0 {measured.of}: no packets, no verdict"
    elif proven:
        verdict = "FAIL"
    elif crowded.any():
        verdict, reason = "INCONCLUSIVE", f"{reason}, which imperfect evidence could account for"
    elif perhaps.any():
        verdict, reason = "INCONCLUSIVE", f"{reason}, more within e = {format_ns(e_ns)} or undecided"
    elif limit_ns < FINEST * e_ns:
        verdict, reason = "INCONCLUSIVE", too_fine(e_ns)
    else:
        verdict = "PASS"
    return LimitResult(
        spec=spec,
        rule=rule,
        verdict=verdict,
        reason=reason,
        beyond=int(np.count_nonzero(sure)),
        open=int(np.count_nonzero(doubtful) - np.count_nonzero(sure)),
        limit_ns=limit_ns,
        worst=() if verdict == "PASS" else worst_samples(measured.value_ns, shown, True),
        marginal=verdict == "PASS" and most > bound.count * (1 - MARGIN),
    )


def _most(measured: Measurement) -> NDArray[np.int64]:
    """The most that each sample can be; beside stray responses one that is open may belong to an earlier request."""
    if not measured.unprovable:
        return measured.value_ns
    return np.where(measured.floor_ns == NO_FLOOR_NS, INFINITE_NS, measured.value_ns)


def _observed(key: str, is_max: bool, value_ns: NDArray[np.int64]) -> tuple[int | None, str]:
    """(how many samples may be beyond a limit of the observed order statistic, what to say of it); None where so few
    samples have none, as the percentile is finer than 1/n."""
    n, q = len(value_ns), percentile_of(key)
    if n * min(q, 1 - q) < 1:
        return None, f"{n} samples have no {key}"
    text = f"observed {key} = {format_value(order_statistic(value_ns, q))} of {n} samples (proof: sample)"
    return _beside(n, q, is_max), text


def _beside(n: int, q: Fraction, is_max: bool) -> int:
    """The samples on the far side of the q-quantile of n: so many may be beyond a limit of it."""
    return n - rank(n, q) if is_max else rank(n, q) - 1


def _block(measured: Measurement, beyond: NDArray[np.bool_], is_max: bool, share: Fraction) -> int:
    """How many successive samples to judge as one: `block_length` of those beyond the limit and, where these are few or
    none, the `dependence` of as many of the worst as show whether bad samples come together."""
    n = len(beyond)
    enough = max(min(ENOUGH, n // 10), n // 100)  # worst samples of a short run that lie together are mostly a trend
    block = block_length(beyond, share)
    if np.count_nonzero(beyond) < enough < n:
        value = measured.value_ns
        edge = n - enough - 1 if is_max else enough
        worst = np.partition(value, edge)[edge]
        block = max(block, dependence(value > worst if is_max else value < worst))
    return block


def _stretch(n: int, beyond: int, share: Fraction, confidence: Fraction) -> int:
    """The longest stretch of samples beyond the limit, up to `ENOUGH`, with which PASS is still proven."""
    return next(
        (b for b in range(ENOUGH, 1, -1) if _in_blocks(n, beyond, 0, b, share, confidence).verdict == "PASS"), 1
    )


def _in_blocks(n: int, doubtful: int, sure: int, block: int, share: Fraction, confidence: Fraction) -> Proof:
    """Dependent samples: as many as there are blocks, and the mean number beyond in samples one block apart."""
    return prove(n // block, -(-doubtful // block), sure // block, share, confidence)


def _marginal(spec: LimitSpec, limit_ns: int, is_max: bool, allowed: int | None, value_ns: NDArray[np.int64]) -> bool:
    """Does the figure that the limit is about come closer to it than `MARGIN`?"""
    n = len(value_ns)
    if allowed is None:
        allowed = _beside(n, percentile_of(spec.key), is_max)
    spare_ns = int(abs(limit_ns) * MARGIN)
    close = value_ns > limit_ns - spare_ns if is_max else value_ns < limit_ns + spare_ns
    return int(np.count_nonzero(close)) > allowed


def _more_than(floor_ns: NDArray[np.int64], limit_ns: int, doubt: Doubt) -> int:
    """Samples over the limit that neither a shift of the clock nor missing packets can account for."""
    if doubt.missing is None:
        return 0
    if doubt.shift_ns is None:
        beyond = int(np.count_nonzero(floor_ns == INFINITE_NS))
    else:
        beyond = int(np.count_nonzero(floor_ns > limit_ns + doubt.shift_ns))
    return max(0, beyond - doubt.missing)


def _fails(n: int, sure: int, allowed: int | None, spec: LimitSpec, is_max: bool, setting: Setting, block: int) -> bool:
    if allowed is not None:
        return sure > allowed
    q = percentile_of(spec.key)
    return _in_blocks(n, n, sure, block, 1 - q if is_max else q, setting.confidence).verdict == "FAIL"


def _crowd(
    time_ns: NDArray[np.int64], mask: NDArray[np.bool_], span_ns: int, allowed: int
) -> tuple[NDArray[np.bool_], int]:
    """(the samples of the mask that lie in a span with more than `allowed` of them, the most in any span)."""
    index = np.flatnonzero(mask)
    index = index[np.argsort(time_ns[index], kind="stable")]
    time = time_ns[index]
    count = np.searchsorted(time, time + max(0, span_ns), "left") - np.arange(len(time))
    start = np.flatnonzero(count > allowed)
    # How many such spans each sample lies in: their beginnings up to it less their ends.
    begun = np.bincount(start, minlength=len(time) + 1) - np.bincount(start + count[start], minlength=len(time) + 1)
    crowded = np.zeros(len(time_ns), np.bool_)
    crowded[index] = np.cumsum(begun)[: len(time)] > 0
    return crowded, int(count.max(initial=0))
