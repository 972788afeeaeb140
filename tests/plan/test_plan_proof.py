"""How many samples a percentile needs, against published figures and against the binomial sum itself."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from rig.plan.proof import quantile
from rig.timing.binomial import samples_needed


@pytest.mark.parametrize(
    ("percentile", "confidence", "needed"),
    [
        ("p50", 99, 7),
        ("p90", 95, 29),
        ("p90", 99, 44),
        ("p95", 99, 90),
        ("p99", 95, 299),
        ("p99", 99, 459),
        ("p99.9", 99, 4603),
    ],
)
def test_samples_without_any_excess(percentile: str, confidence: int, needed: int) -> None:
    assert samples_needed(0, 1 - quantile(percentile), Fraction(confidence, 100)) == needed


@pytest.mark.parametrize("q", [Fraction(1, 1000), Fraction(1, 2), Fraction(9, 10), Fraction(999, 1000)])
@pytest.mark.parametrize("confidence", [Fraction(1, 2), Fraction(3, 4), Fraction(95, 100), Fraction(999, 1000)])
def test_result_is_the_smallest_that_proves(q: Fraction, confidence: Fraction) -> None:
    n = samples_needed(0, 1 - q, confidence)
    assert q**n <= 1 - confidence
    assert n == 1 or q ** (n - 1) > 1 - confidence


def test_exact_powers_are_not_missed_by_rounding() -> None:
    for n in range(1, 60):
        assert samples_needed(0, Fraction(1, 2), 1 - Fraction(1, 2**n)) == n
        assert samples_needed(0, Fraction(1, 10), 1 - Fraction(9, 10) ** n) == n


def test_far_percentiles_are_quick() -> None:
    assert samples_needed(0, Fraction(1, 100000), Fraction(95, 100)) == math.ceil(math.log(0.05) / math.log(0.99999))
