"""The exact binomial rule behind percentile limits: what n samples with k beyond a limit prove, and what they do not.

Of n independent samples each lies beyond the limit with probability p; the limit allows p <= share. At confidence c
PASS is proven when P[Bin(n, share) <= k] <= 1 - c, FAIL when P[Bin(n, share) >= k] <= 1 - c (Clopper and Pearson,
Biometrika 26, 1934; the same rule as early stopping in MLPerf LoadGen). Anything else is open.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

_EXACT_BELOW = 1_000
"""Up to this n a tail that is close to 1 - c is summed again in exact integers."""
_CLOSE = 1e-7
"""Relative error of a tail summed in floating point, with a wide margin (about 3e-9 at n = 1e6)."""


@dataclass(frozen=True)
class Proof:
    """What is proven, and how many further samples would prove PASS if none of them were beyond the limit."""

    verdict: Literal["PASS", "FAIL", "INCONCLUSIVE"]
    needed: int


def prove(n: int, beyond_pass: int, beyond_fail: int, share: Fraction, confidence: Fraction) -> Proof:
    """Judge n samples of which a share may lie beyond the limit.

    beyond_pass: samples that are not surely within the limit (guard band: value + e > limit).
    beyond_fail: samples that are surely beyond it (value - e > limit); at most `beyond_pass`.
    """
    alpha = 1 - confidence
    if n > 0 and _at_most(n, beyond_pass, share, alpha):
        return Proof("PASS", 0)
    if n > 0 and beyond_fail > 0 and _at_least(n, beyond_fail, share, alpha):
        return Proof("FAIL", 0)
    return Proof("INCONCLUSIVE", samples_needed(beyond_pass, share, confidence) - n)


@lru_cache(1024)
def samples_needed(beyond: int, share: Fraction, confidence: Fraction) -> int:
    """The least n with which `beyond` samples past the limit still prove PASS; 299 for p99, 0 beyond, 95 %."""
    if not 0 < share < 1:
        raise ValueError(f"a share of {share} can never be proven from samples")
    alpha = 1 - confidence
    low, high = beyond, beyond + 1
    while not _at_most(high, beyond, share, alpha):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _at_most(middle, beyond, share, alpha) else (middle, high)
    return high


@lru_cache(1024)
def quantile_interval(n: int, q: Fraction, confidence: Fraction) -> tuple[int | None, int | None]:
    """Ranks (l, u), from 1, such that [x_(l), x_(u)] holds the q-quantile with two-sided `confidence`.

    l is the largest rank with P[Bin(n, q) >= l] >= 1 - a/2, u the smallest with P[Bin(n, q) <= u - 1] >= 1 - a/2,
    a = 1 - confidence; None where n samples give no bound on that side.
    """
    half, share = float((1 - confidence) / 2), float(q)
    spread = _normal_quantile(half) * math.sqrt(n * share * (1 - share))

    def low_enough(r: int) -> bool:  # P[Bin >= r] = 1 - P[Bin <= r - 1] falls with r
        return _lower_tail(n, r - 1, share) <= half

    def high_enough(r: int) -> bool:
        return _upper_tail(n, r, share) <= half

    lower = _turn(n, round(n * share - spread), low_enough) or None
    high = _turn(n, round(n * share + spread), lambda r: not high_enough(r)) + 1
    return lower, high if high <= n else None


def _normal_quantile(tail: float) -> float:
    """z with P[Z >= z] = tail < 1/2, to about 0.003 (Hastings, in Abramowitz and Stegun 26.2.22)."""
    t = math.sqrt(-2 * math.log(tail))
    return t - (2.30753 + 0.27061 * t) / (1 + 0.99229 * t + 0.04481 * t * t)


def _turn(n: int, guess: int, holds: Callable[[int], bool]) -> int:
    """The largest r in [0, n] that `holds`, which is true at 0 and once false stays so; found quickly near a guess."""
    low = high = min(max(guess, 1), n)
    step = 1
    if holds(low):
        while high <= n and holds(high):
            low, high, step = high, high + step, 2 * step
        high = min(high, n + 1)
    else:
        while low > 0 and not holds(low):
            low, high, step = max(0, low - step), low, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def rank(n: int, q: Fraction) -> int:
    """ceil(n q), the rank of the q-quantile (RFC 2330 section 11.3: no interpolation)."""
    return max(1, math.ceil(n * q))


def _at_most(n: int, k: int, p: Fraction, alpha: Fraction) -> bool:
    """P[Bin(n, p) <= k] <= alpha?"""
    if k >= n:
        return alpha >= 1
    return _decide(_lower_tail(n, k, float(p)), n, range(k + 1), p, alpha)


def _at_least(n: int, k: int, p: Fraction, alpha: Fraction) -> bool:
    """P[Bin(n, p) >= k] <= alpha?"""
    if k <= 0:
        return alpha >= 1
    return _decide(_upper_tail(n, k, float(p)), n, range(k, n + 1), p, alpha)


def _decide(tail: float, n: int, outcomes: range, p: Fraction, alpha: Fraction) -> bool:
    if n <= _EXACT_BELOW and abs(tail - alpha) <= _CLOSE * float(alpha):
        # Over one denominator: sum of C(n, i) a^i b^(n-i), a = numerator of p, a + b its denominator.
        hit, miss = p.numerator, p.denominator - p.numerator
        total = sum(math.comb(n, i) * hit**i * miss ** (n - i) for i in outcomes)
        return Fraction(total, p.denominator**n) <= alpha
    return tail <= alpha


def _lower_tail(n: int, k: int, p: float) -> float:
    """P[Bin(n, p) <= k]."""
    if k < 0:
        return 0.0
    if k >= n:
        return 1.0
    if k > n * p:  # the other tail is the short one
        return 1.0 - _sum_up(n, k + 1, p)
    return _sum_up(n, n - k, 1.0 - p)


def _upper_tail(n: int, k: int, p: float) -> float:
    """P[Bin(n, p) >= k]."""
    if k <= 0:
        return 1.0
    if k > n:
        return 0.0
    if k <= n * p:
        return 1.0 - _sum_up(n, n - k + 1, 1.0 - p)
    return _sum_up(n, k, p)


def _sum_up(n: int, k: int, p: float) -> float:
    """P[Bin(n, p) >= k], summed from its largest term outwards; k at or above the mean keeps the sum short."""
    if p <= 0.0:
        return 0.0
    if p >= 1.0:
        return 1.0
    odds = p / (1.0 - p)
    term = math.exp(
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(p) + (n - k) * math.log1p(-p)
    )
    terms = [term]
    for i in range(k, n):
        term *= (n - i) / (i + 1) * odds
        if term <= terms[0] * 1e-18 and (n - i) * odds < i + 1:
            break
        terms.append(term)
    return min(1.0, math.fsum(terms))
