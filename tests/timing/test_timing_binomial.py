"""The exact binomial rule: against published tables, brute force in exact integers, and its own error rates."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.timing.binomial import prove, quantile_interval, rank, samples_needed

C95, C99 = Fraction(95, 100), Fraction(99, 100)


def tail(n: int, outcomes: range, p: Fraction) -> Fraction:
    return sum((math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in outcomes), Fraction(0))


@pytest.mark.parametrize(
    ("q", "confidence", "needed"),
    [
        ("0.5", C99, {0: 7, 1: 11, 2: 14, 5: 22, 10: 35, 20: 59}),
        ("0.9", C95, {0: 29, 1: 46, 2: 61, 5: 103, 10: 167, 20: 286}),
        ("0.9", C99, {0: 44, 1: 64, 2: 81, 5: 127, 10: 197, 20: 325}),
        ("0.95", C99, {0: 90, 1: 130, 2: 165, 5: 259, 10: 398, 20: 656}),
        ("0.99", C95, {0: 299, 1: 473, 2: 628, 5: 1049, 10: 1693, 20: 2902}),
        ("0.99", C99, {0: 459, 1: 662, 2: 838, 5: 1307, 10: 2010, 20: 3304}),
        ("0.999", C99, {0: 4603, 1: 6636, 2: 8403, 5: 13105, 10: 20140, 20: 33097}),
    ],
)
def test_samples_needed_agree_with_the_tables(q: str, confidence: Fraction, needed: dict[int, int]) -> None:
    share = 1 - Fraction(q)
    assert {k: samples_needed(k, share, confidence) for k in needed} == needed
    for k, n in needed.items():
        assert prove(n, k, k, share, confidence).verdict == "PASS"
        assert prove(n - 1, k, k, share, confidence).verdict != "PASS"


def test_p50_at_99_percent_with_200_samples_passes_to_83_and_fails_from_117() -> None:
    verdicts = [prove(200, k, k, Fraction(1, 2), C99).verdict for k in range(201)]
    assert verdicts == ["PASS"] * 84 + ["INCONCLUSIVE"] * 33 + ["FAIL"] * 84


def test_open_verdict_says_how_many_more_samples_would_prove_it() -> None:
    proof = prove(300, 1, 1, Fraction(1, 100), C95)
    assert (proof.verdict, proof.needed) == ("INCONCLUSIVE", 173)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 60),
    st.integers(0, 60),
    st.sampled_from([Fraction(1, 2), Fraction(1, 10), Fraction(1, 100), Fraction(9, 10), Fraction(1, 3)]),
    st.sampled_from([C95, C99, Fraction(9, 10), Fraction(1, 2), Fraction(3, 4)]),
)
def test_rule_equals_brute_force_in_exact_integers(n: int, k: int, share: Fraction, confidence: Fraction) -> None:
    k = min(k, n)
    expected = "INCONCLUSIVE"
    if tail(n, range(k + 1), share) <= 1 - confidence:
        expected = "PASS"
    elif tail(n, range(k, n + 1), share) <= 1 - confidence:
        expected = "FAIL"
    assert prove(n, k, k, share, confidence).verdict == expected


def test_a_tail_that_equals_the_error_exactly_counts_as_proven() -> None:
    assert prove(1, 1, 1, Fraction(1, 10), Fraction(9, 10)).verdict == "FAIL"
    assert prove(2, 0, 0, Fraction(1, 2), Fraction(3, 4)).verdict == "PASS"


@pytest.mark.parametrize("share", [Fraction(0), Fraction(1)])
def test_a_share_that_no_sample_can_prove_is_refused(share: Fraction) -> None:
    with pytest.raises(ValueError, match="never be proven"):
        samples_needed(0, share, C95)


@pytest.mark.parametrize(
    ("n", "q", "ranks"),
    [
        (100, "0.5", (37, 64)),
        (100, "0.9", (82, 98)),
        (100, "0.99", (96, None)),
        (200, "0.9", (168, 191)),
        (1000, "0.9", (875, 925)),
        (1000, "0.99", (981, 998)),
        (5000, "0.99", (4931, 4968)),
    ],
)
def test_quantile_interval_ranks_agree_with_the_tables(n: int, q: str, ranks: tuple[int, int | None]) -> None:
    assert quantile_interval(n, Fraction(q), C99) == ranks


def test_rank_is_the_ceiling_without_floating_point_slips() -> None:
    assert [rank(n, Fraction(99, 100)) for n in (1, 99, 100, 101, 300)] == [1, 99, 99, 100, 297]
    assert rank(100, Fraction(55, 100)) == 55  # 100 * 0.55 is 55.00000000000001


@pytest.mark.parametrize(("share", "wrong"), [(0.011, "PASS"), (0.009, "FAIL"), (0.01, "PASS"), (0.01, "FAIL")])
def test_error_rate_stays_below_one_minus_confidence(share: float, wrong: str) -> None:
    rng = np.random.default_rng(20240601)
    beyond = rng.binomial(1000, share, 4000)
    cache = {k: prove(1000, int(k), int(k), Fraction(1, 100), C95).verdict for k in set(beyond.tolist())}
    errors = sum(cache[k] == wrong for k in beyond.tolist())
    # 5 % plus four standard deviations of 4000 trials.
    assert errors / 4000 <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 4000)


def test_large_counts_are_judged_exactly_enough_and_at_once() -> None:
    assert prove(1_000_000, 9_836, 9_836, Fraction(1, 100), C95).verdict == "PASS"
    assert prove(1_000_000, 9_837, 9_837, Fraction(1, 100), C95).verdict == "INCONCLUSIVE"
