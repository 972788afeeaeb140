"""What a plan's percentiles and comparisons ask of a run; `rig.timing.binomial` says how many samples prove them."""

from __future__ import annotations

from fractions import Fraction


def quantile(key: str) -> Fraction:
    """`p99.9` → Fraction(999, 1000)."""
    return Fraction(key.removeprefix("p")) / 100


def pairs_needed(confidence: Fraction) -> int:
    """The least number of pairs of runs whose differences, all of one sign, prove one: 2**-n <= 1 - confidence."""
    count = 1
    while Fraction(1, 2**count) > 1 - confidence:
        count += 1
    return count
