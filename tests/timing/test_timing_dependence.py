"""Samples that depend on each other: how blocks are found, and that the rule's errors stay within what it states."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_captures import MS, at_most, percentile

from rig.timing.limit_judge import judge_limit
from rig.timing.limits import Doubt, LimitResult, LimitSpec, Setting
from rig.timing.metrics.measurement import INFINITE_NS, Measurement
from rig.timing.statistics import block_length, figures, summarise

C95 = Fraction(95, 100)
Values = np.ndarray[Any, np.dtype[np.float64]]


def durations(value: list[int] | np.ndarray[Any, Any], at_ns: list[int] | None = None) -> Measurement:
    array = np.asarray(value, np.int64)
    index = np.arange(len(array), dtype=np.uint32)
    time = index.astype(np.int64) if at_ns is None else np.array(at_ns, np.int64)
    return Measurement("response_time", "durations", array, array, index + 1, index, time, len(array), "requests")


def judged(spec: LimitSpec, measured: Measurement, *, e_ns: int = 0, doubt: Doubt | None = None) -> LimitResult:
    (result,) = judge_limit(spec, measured, Setting(e_ns, C95), doubt or Doubt())
    return result


def autoregressive(rng: np.random.Generator, count: int, rho: float) -> Values:
    noise = rng.standard_normal(count) * math.sqrt(1 - rho * rho)
    value = np.empty(count)
    state = rng.standard_normal()
    for index in range(count):
        state = value[index] = rho * state + noise[index]
    return value


def regimes(rng: np.random.Generator, count: int, share: float, dwell: int) -> Values:
    """Mostly small values, in stretches of mean length `dwell` large ones; these are `share` of all."""
    leave, enter = 1 / dwell, share / (1 - share) / dwell
    slow = rng.random() < share
    value = np.empty(count)
    for index, chance in enumerate(rng.random(count)):
        value[index] = slow
        slow = chance >= leave if slow else chance < enter
    return value + 0.01 * rng.standard_normal(count)


@pytest.mark.parametrize(
    ("percent", "rho", "count"),
    [(50, 0.3, 1_000), (90, 0.5, 1_000), (99, 0.5, 1_000), (50, 0.9, 1_000), (90, 0.9, 1_000), (99, 0.9, 4_000)],
)
@pytest.mark.soak
def test_error_rates_hold_for_autocorrelated_samples(
    percent: int, rho: float, count: int, repeats: Callable[[int, int], int]
) -> None:
    """The limit is the true quantile itself, where either proof is wrong; without blocks it is so up to 35 times in
    a hundred."""
    rng = np.random.default_rng(percent)
    edge = round(NormalDist().inv_cdf(percent / 100) * 1e6)
    trials = repeats(120, 4_000)
    spec = percentile(f"p{percent}", 10 * MS + edge)
    verdicts = [judged(spec, durations(10 * MS + 1e6 * autoregressive(rng, count, rho))).verdict for _ in range(trials)]
    allowed = 0.05 * trials + 3 * math.sqrt(0.05 * 0.95 * trials)
    assert verdicts.count("PASS") <= allowed
    assert verdicts.count("FAIL") <= allowed


@pytest.mark.parametrize(("share", "dwell", "count"), [(0.5, 10, 1_000), (0.1, 10, 2_000), (0.5, 50, 4_000)])
@pytest.mark.soak
def test_error_rates_hold_where_slow_samples_come_in_stretches(
    share: float, dwell: int, count: int, repeats: Callable[[int, int], int]
) -> None:
    rng = np.random.default_rng(dwell)
    trials = repeats(100, 3_000)
    spec = percentile(f"p{100 - round(share * 100)}", 10 * MS)
    verdicts = [
        judged(spec, durations(5 * MS + 10 * MS * regimes(rng, count, share, dwell))).verdict for _ in range(trials)
    ]
    allowed = 0.05 * trials + 3 * math.sqrt(0.05 * 0.95 * trials)
    assert verdicts.count("PASS") <= allowed
    assert verdicts.count("FAIL") <= allowed


@pytest.mark.soak
def test_independent_samples_are_judged_one_by_one(repeats: Callable[[int, int], int]) -> None:
    rng = np.random.default_rng(2)
    trials = repeats(300, 5_000)
    blocks = [judged(percentile("p90", MS), durations(rng.exponential(MS / 2, 500))).block for _ in range(trials)]
    assert blocks.count(1) > 0.98 * trials


def test_a_block_is_as_long_as_being_beyond_lasts() -> None:
    order = np.random.default_rng(4).permutation
    assert block_length(np.repeat(order(200) < 60, 10)) in range(8, 11)
    assert block_length(np.repeat(order(60) < 20, 100)) in range(80, 130)
    assert block_length(np.arange(1_000) < 500) >= 300  # once over, for good: the run is about two samples
    assert block_length(np.arange(1_000) % 2 == 0) == 1  # alternation makes the rule claim less, not more
    for count in (0, 1, 1_000):
        assert block_length(np.arange(1_000) < count) == 1


def test_blocks_are_said_and_more_samples_are_needed() -> None:
    values = np.repeat(np.random.default_rng(5).permutation(40), 10)
    result = judged(percentile("p50", 22), durations(values))
    assert (result.verdict, result.block in range(8, 12)) == ("INCONCLUSIVE", True)
    said = f"judged as {400 // result.block} blocks of {result.block}, because samples beyond the limit come together"
    assert said in result.reason
    assert result.needed % result.block == 0


def test_few_samples_beyond_are_judged_by_the_company_of_the_worst() -> None:
    """One sample over the limit, on top of a hump: the hump shows that it is no chance of its own."""
    values = np.full(600, 10)
    values[300:312] = [20, 21, 22, 23, 24, 99, 25, 24, 23, 22, 21, 20]
    assert judged(percentile("p99", 50), durations(values)).block > 5
    assert judged(percentile("p99", 100), durations(values)).verdict == "PASS"  # nothing is beyond
    values[300:312] = 10
    values[[40, 90, 150, 200, 260, 333, 350, 400, 480, 520, 590]] = 20
    values[300] = 99
    assert judged(percentile("p99", 50), durations(values)).verdict == "PASS"


# --- sliding windows --------------------------------------------------------------------------------------------------


def test_at_most_in_any_span() -> None:
    late = durations([6, 6, 1, 6, 6, 6], [0, 100, 150, 999, 1_100, 5_000])
    assert judged(at_most(2, 5, 1_000), late).verdict == "FAIL"  # 0, 100, 999
    assert judged(at_most(2, 5, 999), late).verdict == "PASS"  # half-open: 999 is outside of [0, 999)
    assert judged(at_most(3, 5, 1_000), late).verdict == "PASS"
    assert judged(at_most(2, 6, 1_000), late).verdict == "PASS"


def test_worst_of_a_crowded_span_are_shown() -> None:
    late = durations([9, 6, 7, 8], [0, 10_000, 10_001, 10_002])
    result = judged(at_most(2, 5, 1_000), late)
    assert (result.worst, result.beyond) == ((3, 2, 1), 4)
    assert result.reason == "at most 3 of 4 requests over 5 ns in any 1 us"


def test_sliding_window_with_uncertainty_and_missing_packets() -> None:
    late = durations([100, 100, 100], [0, 10, 1_000])
    assert judged(at_most(2, 50, 1_000), late, e_ns=1).verdict == "INCONCLUSIVE"  # the third may be inside
    assert judged(at_most(2, 50, 1_001), late, e_ns=1).verdict == "INCONCLUSIVE"  # or outside
    assert judged(at_most(2, 50, 1_002), late, e_ns=1).verdict == "FAIL"
    assert judged(at_most(2, 50, 1_002), late, doubt=Doubt(missing=1)).verdict == "INCONCLUSIVE"
    assert judged(at_most(1, 50, 1_002), late, doubt=Doubt(missing=1)).verdict == "FAIL"


@given(st.lists(st.tuples(st.integers(0, 300), st.booleans()), min_size=1, max_size=40), st.integers(1, 100))
@settings(max_examples=100, deadline=None)
def test_sliding_window_equals_brute_force(samples: list[tuple[int, bool]], span: int) -> None:
    samples.sort()
    late = [at for at, is_late in samples if is_late]
    most = max((sum(start <= at < start + span for at in late) for start in late), default=0)
    measured = durations([10 if is_late else 1 for _, is_late in samples], [at for at, _ in samples])
    for count in (0, 1, 2, 5):
        assert judged(at_most(count, 5, span), measured).verdict == ("PASS" if most <= count else "FAIL")


# --- marginal band, figures -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "marginal"), [(10_000, True), (11_110, True), (11_112, False)])
def test_a_pass_close_to_its_limit_is_marginal(limit: int, marginal: bool) -> None:
    measured = durations([10_000] * 300)
    for spec in (percentile("p99", limit), percentile("p50", limit)):
        result = judged(spec, measured)
        assert (result.verdict, result.marginal) == ("PASS", marginal)


def test_figures_for_comparisons() -> None:
    values = np.array([10, 20, 30, 40], np.int64)
    assert figures(values, ["mean", "p50", "p99"]) == {"mean": 25, "p50": 20}
    assert figures(np.array([1, INFINITE_NS]), ["mean"]) == {"mean": INFINITE_NS}
    summary = summarise(np.array([10, 20, INFINITE_NS]), [], C95)
    assert (summary.lost, summary.mean_ns) == (1, 15)
