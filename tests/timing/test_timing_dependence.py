"""Samples that depend on each other: how blocks are found, and that the rule's errors stay within what it states."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_captures import MS, at_most, percentile

from rig.timing.binomial import prove
from rig.timing.limit_judge import judge_limit
from rig.timing.limits import Doubt, LimitResult, LimitSpec, Setting
from rig.timing.metrics.measurement import INFINITE_NS, Measurement
from rig.timing.statistics import block_length, dependence, figures, summarise

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
    value = rng.standard_normal(count + round(12 / (1 - rho))) * math.sqrt(1 - rho * rho)
    step, weight = 1, rho
    while weight > 1e-9:  # x_i + ρ x_(i-1) + ρ² x_(i-2) + …, twice as many terms each time
        value[step:] += weight * value[:-step].copy()
        step, weight = 2 * step, weight * weight
    return value[-count:]


def stretches(rng: np.random.Generator, count: int, share: float, length: int) -> Values:
    """Mostly small values, in stretches of mean length `length` large ones; these are `share` of all."""
    pairs = round(4 * count * share / length) + 40  # several times as many as fit
    lasts = np.column_stack((rng.geometric(1 / length, pairs), rng.geometric(share / (1 - share) / length, pairs)))
    slow = np.repeat(np.tile([True, False], pairs), lasts.ravel())
    if rng.random() >= share:
        slow = slow[lasts[0, 0] :]
    return slow[:count] + 0.01 * rng.standard_normal(count)


class Rates:
    """How often each verdict on a limit at the true quantile, where every proof is wrong, comes in simulated runs."""

    def __init__(self, samples: str, percent: int, count: int, trials: int) -> None:
        rng = np.random.default_rng((percent, count))
        share = 1 - percent / 100
        kind, strength = samples.split(" of ") if " of " in samples else samples.split(" ")
        edge = 0.5 if kind == "stretches" else NormalDist().inv_cdf(percent / 100)
        spec = percentile(f"p{percent}", 10 * MS + round(edge * 1e6))
        results, alone, none = [], [], 0
        for _ in range(trials):
            value = {
                "independent": lambda: rng.standard_normal(count),
                "autoregressive": lambda: autoregressive(rng, count, float(strength)),
                "stretches": lambda: stretches(rng, count, share, int(strength)),
            }[kind]()
            results.append(judged(spec, durations(10 * MS + 1e6 * value)))
            beyond = results[-1].beyond
            none += beyond == 0
            alone.append(prove(count, beyond, beyond, 1 - Fraction(percent, 100), C95).verdict)
        self.none = none / trials
        self.alone = tuple(alone.count(verdict) / trials for verdict in ("PASS", "FAIL"))
        verdicts = [result.verdict for result in results]
        self.judged = tuple(verdicts.count(verdict) / trials for verdict in ("PASS", "FAIL"))
        self.allowed_for = None
        if kind == "stretches":
            self.allowed_for = sum(result.stretch >= int(strength) for result in results) / trials

    @property
    def row(self) -> str:
        """As `docs/metrics.md` shows it."""
        shares = [self.none, *self.alone, *self.judged, self.allowed_for]
        none, *four, allowed_for = ["–" if share is None else f"{100 * share:.0f} %" for share in shares]
        return f"{none} | {four[0]} / {four[1]} | {four[2]} / {four[3]} | {allowed_for} |"


def within(rate: float, stated: float, trials: int) -> bool:
    return rate <= stated + 3 * math.sqrt(max(0.0, stated * (1 - stated)) / trials)


SAMPLES = [
    *("independent samples", "autoregressive 0.5", "autoregressive 0.9", "autoregressive 0.97"),
    *("stretches of 5", "stretches of 10", "stretches of 20"),
]


@pytest.mark.parametrize("percent", [50, 90, 99])
@pytest.mark.parametrize("samples", SAMPLES)
@pytest.mark.soak
def test_error_rates_of_percentile_limits(samples: str, percent: int, repeats: Callable[[int, int], int]) -> None:
    """FAIL is wrong about as seldom as stated. So is PASS, but for runs that hold none beyond; and without exception
    where it says that it allows for stretches of the length that there is."""
    trials = repeats(100, 4_000)
    for count in (300, 600, 1_000, 2_000, 5_000):
        rates = Rates(samples, percent, count, trials)
        assert within(rates.judged[0], rates.none + 0.08, trials), count
        assert within(rates.judged[1], 0.07, trials), count
        if rates.allowed_for is not None:
            assert within(rates.allowed_for, 0.06, trials), count
        if samples.startswith("independent"):
            assert within(max(rates.judged), 0.05, trials), count


ROW = re.compile(r"^\| ([a-z]+ (?:of )?[0-9.a-z]+), n = ([0-9,]+) \| p([0-9]+) \| (.* \|)$", re.MULTILINE)


@pytest.mark.soak
def test_error_rates_in_the_documentation(repeats: Callable[[int, int], int]) -> None:
    rows = ROW.findall((Path(__file__).parents[2] / "docs/metrics.md").read_text())
    assert len(rows) == 16
    trials = repeats(100, 4_000)
    for samples, count, percent, shown in rows:
        row = Rates(samples, int(percent), int(count.replace(",", "")), trials).row
        for stated, simulated in zip(*(re.findall(r"([0-9]+) %", text) for text in (shown, row)), strict=True):
            share = (int(stated) + 0.5) / 100
            spread = 1 + 400 * math.sqrt(share * (1 - share) / trials)
            assert abs(int(stated) - int(simulated)) <= spread, f"{samples}, n = {count}, p{percent}: {row}"


@pytest.mark.soak
def test_independent_samples_are_judged_one_by_one(repeats: Callable[[int, int], int]) -> None:
    rng = np.random.default_rng(2)
    trials = repeats(300, 5_000)
    blocks = [judged(percentile("p90", MS), durations(rng.exponential(MS / 2, 500))).block for _ in range(trials)]
    assert blocks.count(1) > 0.98 * trials


def test_a_block_is_as_long_as_being_beyond_lasts() -> None:
    order = np.random.default_rng(4).permutation
    assert dependence(np.repeat(order(200) < 60, 10)) in range(8, 11)
    assert dependence(np.repeat(order(60) < 20, 100)) in range(80, 130)
    assert dependence(np.arange(1_000) < 500) >= 300  # once over, for good: the run is about two samples
    assert dependence(np.arange(1_000) % 2 == 0) == 1  # alternation makes the rule claim less, not more
    for count in (0, 1, 1_000):
        assert dependence(np.arange(1_000) < count) == 1


def test_few_stretches_tell_little_of_their_length() -> None:
    def length(stretches: int, share: Fraction) -> int:
        return block_length(np.repeat(np.arange(600) % (600 // stretches) == 3, 10), share)

    assert [length(stretches, Fraction(1, 100)) for stretches in (2, 25, 100)] == [19, 12, 10]
    assert [length(2, Fraction(1, share)) for share in (2, 4, 10)] == [9, 17, 19]
    assert block_length(np.arange(1_000) % 2 == 0, Fraction(1, 100)) == 1


def test_blocks_are_said_and_more_samples_are_needed() -> None:
    values = np.repeat(np.random.default_rng(5).permutation(40), 10)
    result = judged(percentile("p50", 22), durations(values))
    assert (result.verdict, result.block in range(8, 12)) == ("INCONCLUSIVE", True)
    said = f"judged as {400 // result.block} blocks of {result.block}, because the worst samples come together"
    assert said in result.reason
    assert result.needed % result.block == 0


def test_few_samples_beyond_are_judged_by_the_company_of_the_worst() -> None:
    """One sample over the limit, or none, on top of a hump: the hump shows that it is no chance of its own."""
    values = np.full(600, 10)
    values[300:312] = [20, 21, 22, 23, 24, 99, 25, 24, 23, 22, 21, 20]
    assert judged(percentile("p99", 50), durations(values)).block > 5
    assert judged(percentile("p99", 100), durations(values)).verdict == "INCONCLUSIVE"
    assert judged(percentile("p90", 100), durations(values)).verdict == "PASS"
    trend = np.arange(20)
    assert judged(percentile("p50", 100), durations(trend)).verdict == "PASS"
    assert judged(percentile("p50", 100), durations(np.repeat(trend, 5))).verdict == "PASS"
    values[300:312] = 10
    values[[40, 90, 150, 200, 260, 333, 350, 400, 480, 520, 590]] = 20
    values[300] = 99
    assert judged(percentile("p99", 50), durations(values)).verdict == "PASS"


def test_a_proven_percentile_tells_for_which_stretches_it_holds() -> None:
    def stretch(key: str, count: int, slow: int = 0) -> int:
        values = np.full(count, 10)
        values[:: count // slow if slow else count] = 99 if slow else 10
        return judged(percentile(key, 50), durations(values)).stretch

    assert [stretch("p99", count) for count in (298, 299, 597, 598, 2_989, 2_990, 90_000)] == [0, 1, 1, 2, 9, 10, 10]
    assert (stretch("p50", 49), stretch("p50", 50)) == (9, 10)
    assert (stretch("p99", 472, 1), stretch("p99", 473, 1), stretch("p99", 946, 1)) == (0, 1, 2)


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
