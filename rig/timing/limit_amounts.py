"""Limits of events, of each reordered packet, and of amounts: packets in a span, bits in an interval."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from rig.plan.bounds import LateBound, RateBound
from rig.plan.units import format_rate
from rig.timing.limits import (
    FINEST,
    MARGIN,
    Doubt,
    Judged,
    LimitResult,
    LimitSpec,
    Setting,
    rules,
    too_fine,
    worst_samples,
)
from rig.timing.metrics.measurement import Measurement


def judge_events(spec: LimitSpec, measured: Measurement, allowed: Fraction, doubt: Doubt) -> LimitResult:
    (rule,) = rules(spec)
    least, most = measured.least, measured.most
    proven = _events_proven(measured, doubt)
    every = np.ones(len(measured.value_ns), np.bool_)
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
        worst=() if verdict == "PASS" else worst_samples(measured.value_ns, every, True),
        marginal=verdict == "PASS" and most is not None and most > allowed * (1 - MARGIN),
    )


def judge_each_event(
    spec: LimitSpec,
    beyond: NDArray[np.bool_],
    not_within: NDArray[np.bool_],
    measured: Measurement,
    setting: Setting,
    doubt: Doubt,
) -> LimitResult:
    """Each reordered packet against a bound of its extent or late time. What a shift below e can cause is not sure."""
    (rule,) = rules(spec)
    shift = setting.e_ns if doubt.shift_ns is None else max(setting.e_ns, doubt.shift_ns)
    real = measured.value_ns >= shift
    sure, doubtful = int(np.count_nonzero(beyond & real)), int(np.count_nonzero(not_within))
    total = len(measured.value_ns)
    verdict: Judged
    reason = f"{sure} of {total} reordered packets beyond it, among {measured.denominator} {measured.of}"
    if measured.denominator == 0:
        verdict, reason = "INCONCLUSIVE", f"0 {measured.of}: nothing to count"
    elif sure and doubt.missing is not None and doubt.shift_ns is not None:
        verdict = "FAIL"
    elif doubtful:
        verdict = "INCONCLUSIVE"
        reason += (
            f", {doubtful - sure} more in doubt" if doubtful > sure else ", which imperfect evidence could account for"
        )
    else:
        verdict = "PASS"
    limit_ns = spec.bound.max if isinstance(spec.bound, LateBound) else None
    if verdict == "PASS" and limit_ns is not None and limit_ns < FINEST * setting.e_ns and total:
        verdict, reason = "INCONCLUSIVE", too_fine(setting.e_ns)
    return LimitResult(
        spec=spec,
        rule=rule,
        verdict=verdict,
        reason=reason,
        beyond=sure,
        open=max(0, doubtful - sure),
        limit_ns=limit_ns,
        worst=() if verdict == "PASS" else worst_samples(measured.value_ns, beyond if sure else not_within, True),
    )


def judge_amounts(
    spec: LimitSpec, rule: str, limit: int, is_max: bool, measured: Measurement, doubt: Doubt
) -> LimitResult:
    """Packets of a span, or bit rates of an interval; what lies within e of an edge is in `floor` and `ceiling`."""
    ceiling = measured.value_ns if measured.ceiling is None else measured.ceiling
    if is_max:
        beyond, not_within = measured.floor_ns > limit, ceiling > limit
        caused = doubt.shift_ns != 0  # packets that are missing would only add
    else:
        beyond, not_within = ceiling < limit, measured.floor_ns < limit
        caused = doubt.shift_ns != 0 or doubt.missing != 0
    sure, doubtful, n = int(np.count_nonzero(beyond)), int(np.count_nonzero(not_within)), len(measured.value_ns)
    verdict: Judged
    reason = f"{sure} of {n} {measured.of} {'over' if is_max else 'under'}"
    if n:
        most = int(measured.value_ns.max() if is_max else measured.value_ns.min())
        shown = format_rate(most) if isinstance(spec.bound, RateBound) else f"{most} packets"
        reason += f", {'most' if is_max else 'least'} {shown}"
    if n == 0:
        verdict, reason = "INCONCLUSIVE", f"0 {measured.of}: nothing to judge"
    elif sure and not caused:
        verdict = "FAIL"
    elif sure:
        verdict, reason = "INCONCLUSIVE", f"{reason}, which imperfect evidence could account for"
    elif doubtful:
        verdict, reason = "INCONCLUSIVE", f"{reason}; {doubtful} more depend on stamps within e of an edge"
    else:
        verdict = "PASS"
    spare = int(limit * MARGIN)
    tight = limit - spare if is_max else limit + spare
    return LimitResult(
        spec=spec,
        rule=rule,
        verdict=verdict,
        reason=reason,
        beyond=sure,
        open=max(0, doubtful - sure),
        is_max=is_max,
        worst=() if verdict == "PASS" else worst_samples(measured.value_ns, beyond if sure else not_within, is_max),
        marginal=verdict == "PASS"
        and limit > 0
        and bool((ceiling > tight).any() if is_max else (ceiling < tight).any()),
    )


def _events_proven(measured: Measurement, doubt: Doubt) -> int:
    """Events that neither missing packets nor a shift of the clock (which reorders packets) can account for."""
    if doubt.missing is None or doubt.shift_ns is None:
        return 0
    stands = measured.least
    if doubt.shift_ns:
        stands = min(stands, int(np.count_nonzero(measured.value_ns > doubt.shift_ns)))
    return max(0, stands - doubt.missing)
