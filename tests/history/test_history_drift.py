"""The change-point method: what it finds, and that it raises no more false alarms than it states."""

from __future__ import annotations

import numpy as np
import pytest

from rig.history.drift import FALSE_ALARMS, SLACK, THRESHOLD, WINDOW, cusum, find_drift

LIMIT = 5_000_000


def steady(seed: int, n: int) -> list[int]:
    return [int(value) for value in np.random.default_rng(seed).normal(1_500_000, 30_000, n)]


def test_ranks_and_sums_by_hand() -> None:
    # Ranks 1, 2, 1, 3.5 (tie with the second): scores 0, 1/sqrt(3/3), -2/sqrt(8/3), 2/sqrt(15/3).
    found = cusum([10, 20, 5, 20])
    assert found == pytest.approx([0.0, 1 - SLACK, 0.0, (2 * 3.5 - 5) / 5**0.5 - SLACK])


def test_a_steady_figure_alarms_no_more_often_than_stated() -> None:
    # Under no change the sequential ranks are independent and uniform, whatever the values are.
    rng = np.random.default_rng(7)
    looks, alarms, series = 0, 0, 400_000
    sums = np.zeros(series)
    for t in range(2, WINDOW + 1):
        rank = rng.integers(1, t + 1, series)
        sums = np.maximum(0, sums + (2 * rank - t - 1) / np.sqrt((t * t - 1) / 3) - SLACK)
        looks, alarms = looks + series, alarms + int(np.count_nonzero(sums >= THRESHOLD))
    assert alarms / looks <= FALSE_ALARMS
    assert alarms > 0, "a threshold that is never reached finds no drift either"


@pytest.mark.parametrize("make", [np.random.Generator.normal, np.random.Generator.exponential])
def test_the_sums_of_real_values_are_those_of_ranks(make) -> None:
    values = [int(value) for value in make(np.random.default_rng(3), size=40) * 1e6 + 1e7]
    sofar, expected = 0.0, []
    for t in range(1, 41):
        rank = sorted(values[:t]).index(values[t - 1]) + 1
        score = (2 * rank - t - 1) / ((t * t - 1) / 3) ** 0.5 if t > 1 else 0
        sofar = max(0, sofar + score - SLACK)
        expected.append(sofar)
    assert cusum(values) == pytest.approx(expected)


def test_a_slow_rise_is_found_long_before_the_limit() -> None:
    values = steady(1, 20) + [1_500_000 + 40_000 * night for night in range(20)]
    drift = find_drift(values, LIMIT)
    assert drift is not None
    assert 18 <= drift.begun <= 26
    assert drift.now < LIMIT / 2
    assert drift.nights_left == pytest.approx((LIMIT - drift.now) / 40_000, abs=5)


def test_a_step_that_has_come_to_rest_has_no_nights_left() -> None:
    values = steady(2, 30) + [2_500_000 + one % 7 for one in range(12)]
    drift = find_drift(values, LIMIT)
    assert drift is not None
    assert drift.begun == 30
    assert drift.nights_left is None or drift.nights_left > 300


@pytest.mark.parametrize("seed", range(20))
def test_a_steady_figure_is_not_named(seed: int) -> None:
    assert find_drift(steady(seed, 60), LIMIT) is None


def test_what_improves_is_no_drift() -> None:
    assert find_drift([2_000_000 - 10_000 * night for night in range(40)], LIMIT) is None


def test_a_minimum_is_approached_from_above() -> None:
    drift = find_drift([900 - 10 * night for night in range(40)], 300, falling=True)
    assert drift is not None
    assert drift.before > drift.now > 300
    assert drift.bound == 300


def test_a_drift_that_means_nothing_against_the_limit_is_not_named() -> None:
    values = [1_500_000 + 100 * night for night in range(40)]
    assert cusum(values)[-1] > THRESHOLD
    assert find_drift(values, LIMIT) is None


def test_few_nights_and_no_limit_show_nothing() -> None:
    assert find_drift([1, 2, 3, 4, 5], LIMIT) is None
    assert find_drift(list(range(40)), None) is None


def test_one_outlier_does_not_make_a_tiny_drift_matter() -> None:
    values = [3_000_000] + [1_500_000 + 100 * night for night in range(40)]
    assert cusum(values)[-1] > THRESHOLD
    assert find_drift(values, LIMIT) is None
