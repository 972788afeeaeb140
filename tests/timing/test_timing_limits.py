"""Limits on measurements: guard band, exact rule, counts and ratios, and what imperfect evidence may account for."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_captures import (
    BOARD,
    BY_ORDER,
    FLOWS_RAW,
    JETSON,
    MS,
    RESPONSE_TIME,
    US,
    Capture,
    S,
    at_most,
    count_of,
    each,
    percentile,
    ratio,
    run,
)

from rig.timing.evidence import Evidence
from rig.timing.limit_judge import judge_limit
from rig.timing.limits import Doubt, LimitSpec, Setting, rules
from rig.timing.metrics.measurement import INFINITE_NS, NO_FLOOR_NS, Measurement
from rig.timing.statistics import autocorrelation, order_statistic, summarise
from rig.timing.verdict import Verdict

C95 = Fraction(95, 100)
LOST = INFINITE_NS


def durations(values: list[int], floors: list[int] | None = None, unprovable: str = "") -> Measurement:
    value = np.array(values, np.int64)
    index = np.arange(len(value), dtype=np.uint32)
    floor = value if floors is None else np.array(floors, np.int64)
    time = index.astype(np.int64)
    return Measurement(
        "response_time",
        "durations",
        value,
        floor,
        index + 1,
        index,
        time,
        len(value),
        "requests",
        unprovable=unprovable,
    )


def scattered(few: list[int], many: list[int]) -> list[int]:
    """`few` spread evenly over `many`, so that no sample tells of the next."""
    step = len(many) // len(few) if few else 0
    values = list(many)
    for index, value in enumerate(few):
        values.insert(index * (step + 1), value)
    return values


def events(least: int, most: int | None, of: int) -> Measurement:
    none = np.empty(0, np.int64)
    number = np.empty(0, np.uint32)
    return Measurement("loss", "events", none, none, number, number, none, of, "requests sent", {}, least, most)


def verdict(spec: LimitSpec, measured: Measurement, *, e_ns: int = 0, proof="exact", doubt: Doubt | None = None) -> str:
    (result,) = judge_limit(spec, measured, Setting(e_ns, C95, proof), doubt or Doubt())
    return result.verdict


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (each(100 * MS), ("each <= 100 ms",)),
        (each(100 * MS, 1_500 * US), ("each <= 100 ms", "each >= 1.5 ms")),
        (percentile("p99.9", 20 * MS), ("p99.9 <= 20 ms",)),
        (at_most(2, 5 * MS), ("at most 2 beyond 5 ms",)),
        (count_of(0), ("count <= 0",)),
        (ratio(Fraction(1, 1000)), ("ratio <= 0.1 %",)),
    ],
)
def test_a_limit_prints_its_rule(spec: LimitSpec, text: tuple[str, ...]) -> None:
    assert rules(spec) == text


@pytest.mark.parametrize(
    ("value", "expected"),
    [(9_000, "PASS"), (9_001, "INCONCLUSIVE"), (11_000, "INCONCLUSIVE"), (11_001, "FAIL"), (LOST, "FAIL")],
)
def test_guard_band_of_a_maximum_is_inclusive_on_both_ends(value: int, expected: str) -> None:
    assert verdict(each(10_000), durations([5_000, value]), e_ns=1_000) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(11_000, "PASS"), (10_999, "INCONCLUSIVE"), (9_000, "INCONCLUSIVE"), (8_999, "FAIL")]
)
def test_guard_band_of_a_minimum(value: int, expected: str) -> None:
    assert verdict(each(min_ns=10_000), durations([50_000, value]), e_ns=1_000) == expected


def test_result_tells_what_is_surely_beyond_from_what_is_open() -> None:
    (result,) = judge_limit(each(10_000), durations([9_000, 9_500, 10_500, 11_500]), Setting(1_000, C95), Doubt())
    assert (result.beyond, result.open) == (1, 2)
    assert result.reason == "1 of 4 requests over 10 us, 2 more within e = 1 us or undecided"


def test_without_uncertainty_the_limit_itself_passes() -> None:
    assert verdict(each(10_000), durations([10_000])) == "PASS"
    assert verdict(each(10_000), durations([10_001])) == "FAIL"


def test_a_lost_response_is_over_every_maximum_and_under_no_minimum() -> None:
    assert verdict(each(10 * MS), durations([MS, LOST])) == "FAIL"
    assert verdict(each(min_ns=MS), durations([MS, LOST])) == "PASS"


def test_a_limit_finer_than_3_e_cannot_pass_but_what_is_surely_beyond_still_fails() -> None:
    (result,) = judge_limit(each(2_999), durations([10]), Setting(1_000, C95), Doubt())
    assert (result.verdict, result.reason) == (
        "INCONCLUSIVE",
        "the limit is finer than 3 e = 3 us: not measurable on this bench",
    )
    assert verdict(each(3_000), durations([10]), e_ns=1_000) == "PASS"
    assert verdict(each(2_999), durations([LOST]), e_ns=1_000) == "FAIL"


def test_at_most_judges_exactly_the_samples_seen() -> None:
    measured = durations([1, 6, 7, 8])
    assert [verdict(at_most(count, 5), measured) for count in (1, 2, 3)] == ["FAIL", "FAIL", "PASS"]
    assert verdict(at_most(3, 4_000), durations([4_500] * 4), e_ns=1_000) == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("over", "n", "expected"),
    [
        (0, 298, "INCONCLUSIVE"),
        (0, 299, "PASS"),
        (1, 472, "INCONCLUSIVE"),
        (1, 473, "PASS"),
        (8, 300, "FAIL"),
        (5, 300, "INCONCLUSIVE"),
    ],
)
def test_p99_is_proven_by_the_exact_rule(over: int, n: int, expected: str) -> None:
    assert verdict(percentile("p99", 10 * MS), durations(scattered([LOST] * over, [MS] * (n - over)))) == expected


def test_open_percentile_says_how_many_samples_are_missing() -> None:
    (result,) = judge_limit(percentile("p99", 10 * MS), durations([MS] * 200), Setting(0, C95), Doubt())
    assert result.needed == 99
    assert result.reason.endswith("99 more samples, none over the limit, would prove it")


def test_minimum_of_a_percentile_counts_what_is_under() -> None:
    # p1 >= 1 ms allows 1 % below it: the mirror image of p99.
    assert verdict(percentile("p1", min_ns=MS), durations([2 * MS] * 299)) == "PASS"
    assert verdict(percentile("p1", min_ns=MS), durations(scattered([10] * 8, [2 * MS] * 292))) == "FAIL"


def test_samples_within_the_guard_band_count_against_pass_and_not_for_fail() -> None:
    near = scattered([10_500] * 8, [1_000] * 292)
    assert verdict(percentile("p99", 10_000), durations(near), e_ns=1_000) == "INCONCLUSIVE"
    assert verdict(percentile("p99", 10_000), durations(near)) == "FAIL"
    assert verdict(percentile("p99", 12_000), durations(near), e_ns=1_000) == "PASS"


@pytest.mark.parametrize(("over", "expected"), [(1, "PASS"), (2, "FAIL")])
def test_proof_sample_judges_the_observed_order_statistic(over: int, expected: str) -> None:
    measured = durations([20 * MS] * over + [MS] * (100 - over))
    assert verdict(percentile("p99", 10 * MS), measured, proof="sample") == expected
    assert verdict(percentile("p99", 10 * MS), measured) == "INCONCLUSIVE"


def test_proof_sample_knows_no_percentile_finer_than_its_samples() -> None:
    assert verdict(percentile("p99", 10 * MS), durations([MS] * 99), proof="sample") == "INCONCLUSIVE"


def test_count_and_ratio_judge_exactly() -> None:
    assert verdict(count_of(2), events(2, 2, 300)) == "PASS"
    assert verdict(count_of(2), events(3, 3, 300)) == "FAIL"
    assert verdict(count_of(2), events(2, 3, 300)) == "INCONCLUSIVE"
    assert verdict(count_of(2), events(0, None, 300)) == "INCONCLUSIVE"
    assert verdict(count_of(2), events(3, None, 300)) == "FAIL"
    assert verdict(ratio(Fraction(1, 1000)), events(3, 3, 3000)) == "PASS"
    assert verdict(ratio(Fraction(1, 1000)), events(3, 3, 2999)) == "FAIL"
    assert verdict(ratio(Fraction(0)), events(0, 0, 2999)) == "PASS"


@pytest.mark.parametrize("spec", [each(MS), at_most(5, MS), percentile("p50", MS), each(min_ns=MS)])
def test_no_samples_are_never_a_pass(spec: LimitSpec) -> None:
    assert verdict(spec, durations([])) == "INCONCLUSIVE"
    assert verdict(spec, durations([]), proof="sample") == "INCONCLUSIVE"


@pytest.mark.parametrize("spec", [count_of(5), ratio(Fraction(1, 2))])
def test_no_packets_are_never_a_pass_of_a_count(spec: LimitSpec) -> None:
    assert verdict(spec, events(0, 0, 0)) == "INCONCLUSIVE"


def test_missing_packets_excuse_as_many_violations_and_no_more() -> None:
    measured = durations([LOST] * 3 + [MS] * 20)
    assert verdict(each(10 * MS), measured, doubt=Doubt(missing=3)) == "INCONCLUSIVE"
    assert verdict(each(10 * MS), measured, doubt=Doubt(missing=2)) == "FAIL"
    assert verdict(each(10 * MS), measured, doubt=Doubt(missing=None)) == "INCONCLUSIVE"
    assert verdict(count_of(0), events(3, 3, 23), doubt=Doubt(missing=3)) == "INCONCLUSIVE"
    assert verdict(count_of(0), events(3, 3, 23), doubt=Doubt(missing=2)) == "FAIL"


def test_missing_packets_never_excuse_a_sample_that_came_too_early() -> None:
    assert verdict(each(min_ns=MS), durations([10]), doubt=Doubt(missing=None)) == "FAIL"


def test_a_clock_step_excuses_what_it_could_have_shifted_and_no_loss() -> None:
    step = Doubt(shift_ns=5 * MS)
    assert verdict(each(10 * MS), durations([14 * MS]), doubt=step) == "INCONCLUSIVE"
    assert verdict(each(10 * MS), durations([16 * MS]), doubt=step) == "FAIL"
    assert verdict(each(10 * MS), durations([LOST]), doubt=Doubt(shift_ns=None)) == "FAIL"


def test_undecided_losses_prove_neither() -> None:
    assert verdict(each(10 * MS), durations([LOST], [3 * MS])) == "INCONCLUSIVE"
    assert verdict(each(10 * MS), durations([LOST], [30 * MS])) == "FAIL"


def test_a_sample_that_is_open_passes_a_minimum_only_by_its_floor() -> None:
    assert verdict(each(min_ns=100), durations([150, LOST], [150, 10])) == "INCONCLUSIVE"
    assert verdict(each(min_ns=100), durations([150, LOST], [150, NO_FLOOR_NS])) == "INCONCLUSIVE"
    assert verdict(each(min_ns=100), durations([150, LOST], [150, 100])) == "PASS"
    assert verdict(percentile("p50", min_ns=100), durations([150] * 4 + [LOST], [150] * 4 + [10])) == "INCONCLUSIVE"


def test_request_left_open_by_the_end_of_the_capture_passes_no_minimum() -> None:
    capture = Capture()
    capture.request(0, 1)
    capture.answer(150 * MS, 1)
    capture.request(200 * MS, 2)
    capture.arp(210 * MS, 2, BOARD, JETSON)
    limits = {"time": (RESPONSE_TIME, [each(min_ns=100 * MS)])}
    assert run(capture, limits).check("time").verdict is Verdict.INCONCLUSIVE
    capture.arp(301 * MS, 2, BOARD, JETSON)
    assert run(capture, limits).check("time").verdict is Verdict.PASS


def test_an_upper_bound_breaks_a_minimum_but_not_beside_strays() -> None:
    values, floors = [50, 200], [NO_FLOOR_NS, 200]
    assert verdict(each(min_ns=100), durations(values, floors)) == "FAIL"
    assert verdict(each(min_ns=100), durations(values, floors, "beside strays")) == "INCONCLUSIVE"
    assert verdict(each(min_ns=100), durations([200, 50], floors, "beside strays")) == "FAIL"  # that one is sure


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, 9) | st.just(LOST), min_size=4, max_size=9),
    st.integers(0, 9),
    st.sampled_from(["p25", "p50", "p75"]),
)
def test_proof_sample_fails_only_when_no_missing_packet_could_have_saved_it(
    values: list[int], missing: int, key: str
) -> None:
    """A missing packet may have made any sample bad: with each set of so many made good, the percentile is over 5."""
    q = Fraction(key[1:]) / 100
    saved = (
        [0 if index in good else value for index, value in enumerate(values)]
        for good in itertools.combinations(range(len(values)), min(missing, len(values)))
    )
    fails = all(order_statistic(np.array(each), q) > 5 for each in saved)
    found = verdict(percentile(key, 5), durations(values), proof="sample", doubt=Doubt(missing=missing))
    assert (found == "FAIL") is fails


def test_proof_sample_counts_missing_packets_as_good_ones_among_all() -> None:
    measured = durations(scattered([MS] * 30, [LOST] * 30 + [3 * MS] * 40))
    limit = percentile("p50", 2 * MS)
    assert verdict(limit, measured, proof="sample", doubt=Doubt(missing=20)) == "INCONCLUSIVE"
    assert verdict(limit, measured, proof="sample", doubt=Doubt(missing=19)) == "FAIL"


def by_order(capture: Capture, limit: LimitSpec, dropped: int) -> Verdict:
    capture.arp(20 * S, 1, JETSON, JETSON)
    evidence = Evidence(drops={"isb": dropped})
    return run(capture, {"time": (BY_ORDER, [limit])}, evidence, flows=FLOWS_RAW).check("time").verdict


def test_by_order_a_missing_packet_may_have_shifted_every_pair() -> None:
    for dropped, early, late in ((0, Verdict.FAIL, Verdict.FAIL), (2, Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE)):
        capture = Capture()  # the answer to an earlier request, and none to this one
        capture.request(4 * MS, 2)
        capture.answer(5 * MS, 1)
        assert by_order(capture, each(min_ns=3 * MS), dropped) is early
        capture = Capture()  # each answer comes after 1 ms; the first one and the last request are missing
        for i in range(10):
            capture.request(i * 10 * MS, i)
            capture.answer((i + 1) * 10 * MS + MS, i + 1)
        assert by_order(capture, each(5 * MS), dropped) is late


def test_by_order_no_more_are_lost_than_packets_are_missing() -> None:
    for dropped, expected in ((3, Verdict.INCONCLUSIVE), (2, Verdict.FAIL)):
        capture = Capture()
        for i in range(3):
            capture.request(i * 2 * S, i)
        assert by_order(capture, each(5 * MS), dropped) is expected


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=1), st.integers(0, 12), st.integers(0, 4))
def test_samples_of_a_crowded_span_are_those_that_some_span_holds(
    samples: list[tuple[int, bool]], span: int, count: int
) -> None:
    bad = [(time, index) for index, (time, is_bad) in enumerate(samples) if is_bad]
    spans = [[index for time, index in bad if begin <= time < begin + span] for begin in range(31)]
    crowded = {index for inside in spans if len(inside) > count for index in inside}
    measured = durations([10 if is_bad else 1 for _, is_bad in samples])
    measured = replace(measured, time_ns=np.array([time for time, _ in samples]))
    (result,) = judge_limit(at_most(count, 5, span), measured, Setting(0, C95), Doubt())
    assert result.verdict == ("FAIL" if crowded else "PASS")
    assert result.worst == tuple(sorted(crowded)[:5])


def test_a_span_that_holds_all_of_many_samples_is_judged_at_once() -> None:
    measured = durations([10] * 200_000)
    began = time.process_time()
    assert verdict(at_most(1, 5, 10**12), measured) == "FAIL"
    assert time.process_time() - began < 2


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=400),
    st.integers(12, 30),
    st.integers(0, 4),
    st.sampled_from(["each", "p50", "p90"]),
)
def test_more_uncertainty_never_turns_a_verdict_round(values: list[int], limit: int, e: int, key: str) -> None:
    spec = percentile(key, limit) if key != "each" else each(limit)
    exact, blurred = verdict(spec, durations(values)), verdict(spec, durations(values), e_ns=e)
    assert blurred in (exact, "INCONCLUSIVE")


def test_worst_samples_come_first_and_equal_ones_in_order() -> None:
    values = [MS] * 50
    for index, value in ((40, 30 * MS), (7, 20 * MS), (9, LOST), (3, 20 * MS), (20, 25 * MS), (30, 21 * MS)):
        values[index] = value
    (result,) = judge_limit(each(10 * MS), durations(values), Setting(0, C95), Doubt())
    assert result.worst == (9, 40, 20, 30, 3)


def test_median_of_rfc_2681_with_an_undefined_delay() -> None:
    values = np.array([100, 110, LOST, 90, 500])
    assert order_statistic(values, Fraction(1, 2)) == 110
    # The RFC averages the middle two of four values (105); without interpolation it is the lower one.
    assert order_statistic(np.array([100, 110, 90, 500]), Fraction(1, 2)) == 100


def test_quantiles_that_n_does_not_allow_are_not_given() -> None:
    summary = summarise(np.full(298, MS), [Fraction(1, 2), Fraction(99, 100)], C95)
    assert [(q.name, q.value_ns, q.needed) for q in summary.quantiles] == [("p50", MS, 5), ("p99", None, 299)]


def test_summary_counts_losses_as_the_largest_samples() -> None:
    summary = summarise(np.array([LOST, 3, 1, 2, LOST, 4, 5, 6, 7, 8]), [Fraction(1, 2)], C95)
    assert (summary.n, summary.lost, summary.min_ns, summary.max_ns) == (10, 2, 1, LOST)
    assert summary.quantiles[0].value_ns == 5


def test_lag_1_autocorrelation_by_hand() -> None:
    # Mean 2, deviations -1 0 1 0: products -1*0 + 0*1 + 1*0 = 0; alternating: -1*1*3 over 4.
    assert autocorrelation(np.array([1, 2, 3, 2])) == 0
    assert autocorrelation(np.array([1, 3, 1, 3])) == -0.75
    assert autocorrelation(np.array([5, 5, 5, 5])) is None
    assert autocorrelation(np.array([5, 6])) is None
