"""Confidence bounds of a median difference from paired runs: Wilcoxon's signed-rank statistic, inverted exactly.

Of n pairs only this is assumed: under no difference a pair's difference is as likely d as -d, which interleaving makes
true of two runs of the same thing. Bounds are order statistics of the Walsh averages (d_i + d_j) / 2, i <= j, and hold
whatever the distribution of the runs (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, section 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

from rig.plan.proof import pairs_needed


def bounds(least: Sequence[float], most: Sequence[float], confidence: Fraction) -> tuple[float | None, float | None]:
    """(lower, upper) one-sided bounds, each at `confidence`, of the median of differences; None without proof.

    least, most: what each difference can be; infinite ones are allowed. What nobody knows, as the mean of one that is
    infinite and one that is minus infinite, is the lowest for the lower bound and the highest for the upper one.
    """
    n = len(least)
    if n == 0 or n < pairs_needed(confidence):
        return None, None
    lowest = sorted(-math.inf if math.isnan(each) else each for each in _averages(least))
    highest = sorted(math.inf if math.isnan(each) else each for each in _averages(most))
    skipped = _skipped(n, confidence)
    return lowest[skipped], highest[len(highest) - 1 - skipped]


def middle(difference: Sequence[float]) -> float:
    """The Hodges-Lehmann estimate, median of the Walsh averages that are defined; NaN where none is."""
    averages = sorted(each for each in _averages(difference) if not math.isnan(each))
    if not averages:
        return math.nan
    half = len(averages) // 2
    return averages[half] if len(averages) % 2 else _mean(averages[half - 1], averages[half])


def _averages(difference: Sequence[float]) -> list[float]:
    n = len(difference)
    return [_mean(difference[i], difference[j]) for i in range(n) for j in range(i, n)]


def _mean(a: float, b: float) -> float:
    return a if a == b else a / 2 + b / 2


@cache
def _skipped(n: int, confidence: Fraction) -> int:
    """The largest k with P[W+ <= k] <= 1 - confidence: so many Walsh averages lie outside of each bound."""
    ways = _ways(n)
    allowed = (1 - confidence) * 2**n
    total, skipped = 0, -1
    for statistic, count in enumerate(ways):
        total += count
        if total > allowed:
            break
        skipped = statistic
    return max(0, skipped)


@cache
def _ways(n: int) -> tuple[int, ...]:
    """How many of the 2^n assignments of signs to the ranks 1…n give each W+."""
    ways = [1] + [0] * math.comb(n + 1, 2)
    for rank in range(1, n + 1):
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    return tuple(ways)
