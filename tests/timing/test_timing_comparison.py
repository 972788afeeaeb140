"""Comparisons between points: the run is the unit, and equal points are called different no more often than stated."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_captures import ADDRESSES, BY_ORDER, FLOWS, FLOWS_RAW, JETSON, MS, T0, US, Capture, S, each, plan_of

from rig.plan.bounds import DurationBound, RatioBound
from rig.plan.model import Comparison, Plan
from rig.plan.order import interleaved
from rig.plan.proof import pairs_needed
from rig.timing.comparison import compare, pair_up
from rig.timing.evidence import Evidence, Finding
from rig.timing.judge import judge
from rig.timing.limits import LimitSpec
from rig.timing.metrics.measurement import INFINITE_NS, NO_FLOOR_NS
from rig.timing.signed_rank import bounds, middle
from rig.timing.verdict import CheckResult, PointResult, Verdict

C95 = Fraction(95, 100)
SLOWER = Comparison(of="time", a="old", b="new", difference=DurationBound(max="0 ns"))


def a_run(
    value: int | None,
    *,
    verdict: Verdict = Verdict.PASS,
    voided: bool = False,
    e_ns: int = 0,
    within: tuple[int, int] | None = None,
) -> PointResult:
    """within: the least and the most that its figure can be, where that is not known exactly."""
    findings = (Finding("capture-drops", "capture", "frames were dropped", ("time",)),) if voided else ()
    compared = {} if value is None else {"p50": value, "mean": value}
    within_of = {} if within is None else {"p50": within}
    check = CheckResult("time", "response_time", verdict, "", compared=compared, compared_within=within_of)
    return PointResult("made-by-hand", "", "emulated", e_ns, verdict, (check,), findings)


def judged(
    old: Sequence[int | None], new: Sequence[int | None], comparison: Comparison = SLOWER, *, e_ns: int = 0
) -> CheckResult:
    runs = [("old", a_run(value, e_ns=e_ns)) for value in old] + [("new", a_run(value, e_ns=e_ns)) for value in new]
    return result_of(runs, comparison)


def result_of(runs: Sequence[tuple[str, PointResult]], comparison: Comparison = SLOWER) -> CheckResult:
    plan = with_comparison(comparison)
    bound = comparison.difference or comparison.ratio
    key = "difference" if comparison.difference else "ratio"
    specs = {"faster": [LimitSpec(key, bound, "x.plan.yaml", 30, 5)]} if bound else {}
    (result,) = compare(plan, runs, specs)
    return result


def with_comparison(comparison: Comparison) -> Plan:
    plan = plan_of({"time": {"response_time": {"request": "requests", "response": "answers"}}})
    return plan.model_copy(update={"comparisons": {"faster": comparison}})


# --- the interval -----------------------------------------------------------------------------------------------------


def test_bounds_of_a_published_example() -> None:
    # Hollander, Wolfe and Chicken, example 3.1 (Hamilton depression scale): n = 9, the 96 % two-sided interval is the
    # 6th smallest and largest of 45 Walsh averages, because P[W+ <= 5] = 10/512 and P[W+ <= 6] = 14/512.
    before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    difference = [y - x for x, y in zip(before, after, strict=True)]
    low, high = bounds(difference, difference, Fraction(98, 100))
    assert low == pytest.approx(-0.786, abs=5e-4)
    assert high == pytest.approx(-0.010, abs=5e-4)
    assert middle(difference) == pytest.approx(-0.46, abs=5e-3)


def test_smallest_proofs() -> None:
    assert [pairs_needed(Fraction(percent, 100)) for percent in (50, 90, 95, 99)] == [1, 4, 5, 7]
    assert bounds([1.0] * 4, [1.0] * 4, C95) == (None, None)
    assert bounds([5, 1, 4, 2, 3], [6, 2, 5, 3, 4], C95) == (1, 6)


@pytest.mark.parametrize("n", [5, 6, 8, 11])
def test_coverage_is_exact_over_all_signs(n: int) -> None:
    """Of the 2^n equally likely signs of distinct differences, those whose lower bound exceeds 0 are at most 5 %."""
    sizes = [2**i + i / 7 for i in range(n)]
    above = sum(
        (bounds(signed, signed, C95)[0] or 0) > 0
        for signs in itertools.product((-1, 1), repeat=n)
        for signed in [[sign * size for sign, size in zip(signs, sizes, strict=True)]]
    )
    assert 0 < above <= 2**n * 0.05


def test_infinite_differences_have_bounds_too() -> None:
    assert bounds([math.inf] * 5, [math.inf] * 5, C95) == (math.inf, math.inf)
    some = [1.0, 2.0, math.inf, math.inf, 3.0]
    assert bounds(some, some, C95) == (1.0, math.inf)


def test_a_run_lost_in_either_point_bounds_nothing_in_whatever_order_they_ran() -> None:
    steps = [math.inf, 46.0, -48.0, -math.inf, 7.0, -49.0]
    for order in itertools.permutations(steps):
        assert bounds(order, order, C95) == (-math.inf, math.inf)
        assert middle(order) == -11  # between -20.5 and -1.5; five averages are infinite on each side


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-50, 50) | st.sampled_from([math.inf, -math.inf, math.nan]), min_size=5, max_size=12),
    st.randoms(use_true_random=False),
)
def test_bounds_hold_whatever_infinite_and_unknown_differences_truly_are(steps: list[float], rng: Any) -> None:
    def truly(step: float) -> float:
        far = rng.choice([1e3, 1e4, 1e6])  # farther than any of two finite ones
        return step if math.isfinite(step) else math.copysign(far, rng.choice([-1, 1]) if math.isnan(step) else step)

    true = [truly(step) for step in steps]
    (low, high), (true_low, true_high) = bounds(steps, steps, C95), bounds(true, true, C95)
    assert low <= true_low or low == math.inf
    assert high >= true_high or high == -math.inf


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "expected"),
    [([90, 91, 92, 93, 94], "PASS"), ([110, 111, 112, 113, 114], "FAIL"), ([90, 110, 95, 105, 100], "INCONCLUSIVE")],
)
def test_difference_is_judged_over_pairs_of_runs(new: list[int], expected: str) -> None:
    result = judged([100] * 5, new)
    assert (str(result.verdict), result.n, result.of) == (expected, 5, "pairs of runs")


def test_one_run_each_gives_a_difference_and_no_verdict() -> None:
    told = judged([100], [130], Comparison(of="time", a="old", b="new"))
    assert told.verdict is Verdict.SKIP
    assert "+30 ns over 1 pair of" in told.reason
    bounded = judged([100], [130])
    assert bounded.verdict is Verdict.INCONCLUSIVE
    assert "one run each shows a difference and proves nothing; 5 are needed (`repeat: 5`)" in bounded.reason


def test_ratio_is_judged_in_logarithms() -> None:
    faster = Comparison(of="time", a="old", b="new", ratio=RatioBound(max="90 %"))
    assert str(judged([100, 200, 300, 400, 500], [80, 160, 240, 320, 400], faster).verdict) == "PASS"
    assert str(judged([100, 200, 300, 400, 500], [95, 190, 285, 380, 475], faster).verdict) == "FAIL"
    assert "80.00 %" in judged([100, 200, 300, 400, 500], [80, 160, 240, 320, 400], faster).reason


def test_uncertainty_of_the_bench_is_a_guard_band() -> None:
    assert str(judged([100] * 5, [92] * 5, e_ns=5).verdict) == "PASS"
    assert str(judged([100] * 5, [92] * 5, e_ns=9).verdict) == "INCONCLUSIVE"
    assert str(judged([100] * 5, [108] * 5, e_ns=9).verdict) == "INCONCLUSIVE"


def test_runs_without_sound_evidence_take_their_pair_with_them() -> None:
    runs = [("old", a_run(100)), ("new", a_run(90))] * 5
    runs[3] = ("new", a_run(90, voided=True))
    pairs = pair_up(SLOWER, runs)
    assert (len(pairs.a), pairs.unusable) == (4, ("run 2 of new: frames were dropped",))
    assert result_of(runs).verdict is Verdict.INCONCLUSIVE
    runs[3] = ("new", a_run(None, verdict=Verdict.ERROR))
    assert len(pair_up(SLOWER, runs).a) == 4


def test_a_run_without_sound_evidence_is_left_out_whatever_its_verdict_is() -> None:
    runs = [("old", a_run(100)), ("new", a_run(110))] * 5
    assert result_of(runs).verdict is Verdict.FAIL
    runs[5] = ("new", a_run(110, verdict=Verdict.FAIL, voided=True))
    assert pair_up(SLOWER, runs).unusable == ("run 3 of new: frames were dropped",)
    assert result_of(runs).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("within", "old", "new", "expected"),
    [
        ((90, 110), [100] * 5, [81] * 5, "INCONCLUSIVE"),
        ((90, 110), [100] * 5, [80] * 5, "PASS"),
        ((90, 110), [100] * 5, [120] * 5, "INCONCLUSIVE"),
        ((90, 110), [100] * 5, [121] * 5, "FAIL"),
        ((NO_FLOOR_NS, 100), [100] * 5, [90] * 5, "INCONCLUSIVE"),
        ((NO_FLOOR_NS, 100), [100] * 5, [111] * 5, "FAIL"),
        ((80, INFINITE_NS), [INFINITE_NS] * 5, [90] * 5, "INCONCLUSIVE"),
        ((80, INFINITE_NS), [INFINITE_NS] * 5, [69] * 5, "PASS"),
    ],
)
def test_what_figures_may_be_wrong_by_counts_on_both_sides_of_a_pair(
    within: tuple[int, int], old: list[int], new: list[int], expected: str
) -> None:
    """The figure of `new` may be wrong by 10 in each case."""
    runs = [("old", a_run(value, within=within)) for value in old]
    runs += [("new", a_run(value, within=(value - 10, value + 10))) for value in new]
    assert str(result_of(runs).verdict) == expected


def test_what_figures_may_be_wrong_by_widens_a_ratio_too() -> None:
    faster = Comparison(of="time", a="old", b="new", ratio=RatioBound(max="90 %"))
    verdicts = []
    for error in (5, 6, 200):  # 85 / 95 = 89.5 %, 86 / 94 = 91.5 %
        runs = [("old", a_run(100, within=(100 - error, 100 + error)))] * 5
        runs += [("new", a_run(80, within=(80 - error, 80 + error)))] * 5
        verdicts.append(str(result_of(runs, faster).verdict))
    assert verdicts == ["PASS", "INCONCLUSIVE", "INCONCLUSIVE"]


def test_a_pair_whose_difference_is_undefined_may_be_anything() -> None:
    few = judged([INFINITE_NS] + [100] * 4, [INFINITE_NS] + [90] * 4)
    assert few.verdict is Verdict.INCONCLUSIVE
    assert few.notes[0].startswith("1 of 5 differences are undefined")
    assert judged([INFINITE_NS] + [100] * 9, [INFINITE_NS] + [90] * 9).verdict is Verdict.PASS
    assert judged([INFINITE_NS] + [100] * 9, [INFINITE_NS] + [110] * 9).verdict is Verdict.FAIL


def test_a_failed_run_still_has_a_figure() -> None:
    runs = [("old", a_run(100)), ("new", a_run(INFINITE_NS, verdict=Verdict.FAIL))] * 5
    result = result_of(runs)
    assert result.verdict is Verdict.FAIL
    assert "infinite" in result.reason


def test_points_that_did_not_run_are_skipped() -> None:
    assert result_of([("old", a_run(100))]).verdict is Verdict.SKIP


# --- figures of judged runs -------------------------------------------------------------------------------------------


def a_judged_run(
    capture: Capture, metric: dict[str, Any], comparison: Comparison = SLOWER, *, flows: dict[str, Any] = FLOWS
) -> PointResult:
    plan = plan_of({"time": metric}, flows=flows).model_copy(update={"comparisons": {"faster": comparison}})
    return judge(capture.table(), plan, {"time": [each(10 * S)]}, Evidence(), ADDRESSES, 0, "emulated")


def test_a_run_matched_by_order_beside_strays_is_not_compared() -> None:
    capture = Capture()
    for at in (0, 1):
        capture.request(at * MS, at)
    for at in (2, 3, 4):
        capture.answer(at * MS, at)
    capture.arp(20 * S, 1, JETSON, JETSON)
    run = a_judged_run(capture, BY_ORDER, flows=FLOWS_RAW)
    pairs = pair_up(SLOWER, [("old", a_run(100)), ("new", run)])
    assert pairs.a == ()
    assert "beside stray responses" in pairs.unusable[0]


def test_delays_matched_by_order_beside_losses_are_compared_as_upper_bounds() -> None:
    capture = Capture()
    for at in range(4):
        capture.request(at * MS, at)
    for at in (5, 6, 7):  # one was lost, nobody knows which
        capture.answer(at * MS, at)
    capture.arp(20 * S, 1, JETSON, JETSON)
    check = a_judged_run(capture, BY_ORDER, flows=FLOWS_RAW).check("time")
    assert check.compared == {"p50": 5 * MS}
    assert check.compared_within == {"p50": (NO_FLOOR_NS, 5 * MS)}


def test_a_request_that_the_end_of_the_capture_leaves_open_is_not_compared_as_lost() -> None:
    capture = Capture()
    for at in range(10):
        capture.request(at * MS, at)
        if at < 9:
            capture.answer(at * MS + 500 * US, at)
    capture.arp(12 * MS, 1, JETSON, JETSON)
    mean = SLOWER.model_copy(update={"statistic": "mean"})
    metric = {"response_time": {"request": "requests", "response": "answers"}}
    check = a_judged_run(capture, metric, mean).check("time")
    assert check.compared == {"mean": INFINITE_NS}
    assert check.compared_within == {"mean": ((9 * 500 * US + 3 * MS) // 10, INFINITE_NS)}


def test_the_error_of_an_aligned_clock_decides_no_comparison() -> None:
    """Answers take 1 ms in both points; the way there takes 0.2 ms in one and 2.2 ms in the other."""

    def a_one_way_run(there_ns: int) -> PointResult:
        capture, ahead = Capture(), T0 + 100 * S
        for i in range(100):
            at = i * 20 * MS
            capture.request(at, i)
            sent = at + there_ns + 3 * MS
            capture.answer(
                sent + MS, i, t_rx_ns=ahead + at + there_ns, t_ready_ns=ahead + sent - 1, t_send_ns=ahead + sent
            )
        return a_judged_run(capture, {"one_way_delay": {"of": "answers", "opposite": "requests"}})

    runs = [("old", a_one_way_run(200 * US)), ("new", a_one_way_run(2_200 * US))] * 5
    (least, most) = runs[0][1].check("time").compared_within["p50"]
    assert least <= MS <= most
    assert result_of(runs).verdict is Verdict.INCONCLUSIVE
    assert result_of([("new" if point == "old" else "old", run) for point, run in runs]).verdict is Verdict.INCONCLUSIVE


def test_json_says_what_a_figure_can_be_only_where_that_is_open() -> None:
    assert not {"compared_within", "unprovable"} & json.loads(a_run(100).to_json())["checks"][0].keys()
    told = json.loads(a_run(INFINITE_NS, within=(NO_FLOOR_NS, INFINITE_NS)).to_json())["checks"][0]
    assert told["compared"] == {"p50": "lost", "mean": "lost"}
    assert told["compared_within"] == {"p50": ["open", "lost"]}


# --- error rates ------------------------------------------------------------------------------------------------------


def boots(rng: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    """Medians of runs of one firmware: boots vary by 3 %, now and then one is far slower."""
    usual = 1e6 * np.exp(0.03 * rng.standard_normal(count))
    return usual * np.where(rng.random(count) < 0.1, 1 + rng.exponential(0.5, count), 1)


@pytest.mark.parametrize("repeat", [5, 6, 8])
@pytest.mark.parametrize("as_ratio", [False, True])
@pytest.mark.soak
def test_equal_points_are_called_different_no_more_often_than_stated(
    repeat: int, as_ratio: bool, repeats: Callable[[int, int], int]
) -> None:
    """Interleaved runs with a drift of 20 % over the set: FAIL and its mirror image, PASS of a strict bound."""
    rng = np.random.default_rng(11)
    trials = repeats(300, 10_000)
    order = interleaved(["old", "new"], repeat)
    bound = {"ratio": RatioBound(max="100 %")} if as_ratio else {"difference": DurationBound(max="0 ns")}
    comparison = Comparison(of="time", a="old", b="new", **bound)
    verdicts = []
    for _ in range(trials):
        values = boots(rng, 2 * repeat) * np.linspace(1, 1.2, 2 * repeat)
        verdicts.append(
            result_of([(point, a_run(int(v))) for point, v in zip(order, values, strict=True)], comparison).verdict
        )
    allowed = 0.05 * trials + 3 * math.sqrt(0.05 * 0.95 * trials)
    assert verdicts.count(Verdict.FAIL) <= allowed
    assert verdicts.count(Verdict.PASS) <= allowed


@pytest.mark.soak
def test_a_real_difference_is_found(repeats: Callable[[int, int], int]) -> None:
    rng = np.random.default_rng(12)
    trials = repeats(100, 2_000)
    found = [judged(boots(rng, 8).astype(int), (boots(rng, 8) * 1.15).astype(int)).verdict for _ in range(trials)]
    assert found.count(Verdict.FAIL) > 0.5 * trials
    assert Verdict.PASS not in found


# --- order ------------------------------------------------------------------------------------------------------------


def test_points_run_in_rounds_forwards_and_backwards_in_turn() -> None:
    assert interleaved("abc", 3) == list("abccbaabc")
    assert interleaved("ab", 1) == ["a", "b"]
