"""Matching by order: what a queue can prove, against all pairings that it could be."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_timing_metrics import measured
from timing_captures import (
    BOARD,
    BY_ORDER,
    FLOWS,
    FLOWS_RAW,
    FLOWS_V1,
    JETSON,
    LOSS,
    MS,
    RESPONSE_TIME,
    TO_LAST,
    US,
    Capture,
    S,
    at_most,
    count_of,
    each,
    run,
)

from rig.timing.evidence import Evidence
from rig.timing.metrics.measurement import INFINITE_NS, NO_FLOOR_NS
from rig.timing.metrics.queueing import pair
from rig.timing.verdict import Verdict

LOST = INFINITE_NS
LOSS_BY_ORDER = {"loss": {"of": "requests", "answered_by": "answers", "match": "order"}}
LAST_BY_ORDER = {"response_time": {"request": "requests", "response": "answers", "match": "order", "to": "last"}}

Pairing = tuple[int, ...]
"""Per request the index of its response, -1 for none."""


def pairings(asked: list[int], answered: list[int], timeout: int) -> list[Pairing]:
    """All that keep the order, have possible delays only, and leave as few requests and responses as can be."""

    def grow(request: int, response: int) -> Iterator[Pairing]:
        if request == len(asked):
            yield ()
            return
        for rest in grow(request + 1, response):
            yield (-1, *rest)
        for index in range(response, len(answered)):
            if 0 <= answered[index] - asked[request] <= timeout:
                for rest in grow(request + 1, index + 1):
                    yield (index, *rest)

    every = list(grow(0, 0))
    fewest = min(one.count(-1) for one in every)
    return [one for one in every if one.count(-1) == fewest]


def on_the_wire(asked: list[int], answered: list[int], window: tuple[int, int] | None = None) -> Capture:
    """Unmarked datagrams, responses 1 ns after their ms; the window opens and closes a little before its times."""
    capture = Capture()
    if window is not None:
        capture.sentinel(window[0] * MS - US, 1)
        capture.sentinel(window[1] * MS - US, 2)
    for at in asked:
        capture.to_board(at * MS, b"?")
    for at in answered:
        capture.from_board(at * MS + 1, b"!")
    capture.arp(60 * S, 2, BOARD, JETSON)
    return capture


times = st.lists(st.integers(0, 14), max_size=6).map(sorted)


@settings(max_examples=300, deadline=None)
@given(times, times, st.integers(1, 9))
def test_a_request_that_another_pairing_answers_otherwise_is_ambiguous(
    asked: list[int], answered: list[int], timeout: int
) -> None:
    asked_ns, answered_ns = np.array(asked, np.int64), np.array(answered, np.int64)
    found = pair(asked_ns, answered_ns, asked_ns * 0, answered_ns * 0, timeout)
    every = pairings(asked, answered, timeout)
    assert tuple(found.response.tolist()) in every
    for request, response in enumerate(found.response.tolist()):
        otherwise = any(one[request] != response for one in every)
        assert response < 0 or found.ambiguous[request] or not otherwise


@settings(max_examples=150, deadline=None)
@given(times, times, st.integers(1, 9), st.tuples(st.integers(0, 8), st.integers(6, 15)))
def test_no_pairing_makes_a_sure_loss_an_answer_or_a_delay_longer_than_found(
    asked: list[int], answered: list[int], timeout: int, window: tuple[int, int]
) -> None:
    if window[0] >= window[1]:
        return
    capture = on_the_wire(asked, answered, window)
    time = measured(capture, BY_ORDER, flows=FLOWS_RAW, timeout_ns=timeout * MS + 1)
    lost = measured(capture, LOSS_BY_ORDER, flows=FLOWS_RAW, timeout_ns=timeout * MS + 1)
    mine = [i for i, at in enumerate(asked) if window[0] <= at < window[1]]
    floor, value = np.sort(time.floor_ns), np.sort(time.value_ns)
    for one in pairings(asked, answered, timeout):
        delays = [LOST if one[i] < 0 else (answered[one[i]] - asked[i]) * MS + 1 for i in mine]
        true = np.sort(np.array(delays, np.int64))
        losses = delays.count(LOST)
        assert (floor <= true).all()
        assert lost.least <= losses
        if not time.unprovable:
            assert (true <= value).all()
        assert lost.most is not None
        assert losses <= lost.most


# --- strays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flows", [FLOWS, FLOWS_RAW])
def test_an_early_stray_does_not_make_slow_answers_pass(flows) -> None:
    capture = Capture()
    for i in range(100):
        capture.request(i * 5 * MS, i + 1)
        capture.answer(i * 5 * MS + 9 * MS, i + 1)
    capture.answer(500 * US, 7777)
    capture.arp(5 * S, 2, BOARD, JETSON)
    checks = {"order": (BY_ORDER, [each(5 * MS)]), "most": (BY_ORDER, [at_most(3, 5 * MS)])}
    result = run(capture, checks, flows=flows, requests=100)
    assert [str(result.check(name).verdict) for name in checks] == ["INCONCLUSIVE"] * 2
    assert measured(capture, BY_ORDER, flows=flows).floor_ns.tolist() == [NO_FLOOR_NS] * 100


def test_a_stray_makes_ambiguous_as_far_back_as_the_delays_of_the_moved_answers_are_possible() -> None:
    asked, answered = [0, 100, 110, 120], [1, 101, 111, 121, 130]
    time = measured(on_the_wire(asked, answered), BY_ORDER, flows=FLOWS_RAW, timeout_ns=20 * MS)
    assert time.floor_ns.tolist() == [MS + 1, NO_FLOOR_NS, NO_FLOOR_NS, NO_FLOOR_NS]
    assert time.unprovable
    pause = measured(on_the_wire(asked, answered), BY_ORDER, flows=FLOWS_RAW, timeout_ns=10 * MS + 1)
    assert pause.floor_ns.tolist() == [MS + 1, MS + 1, MS + 1, NO_FLOOR_NS]


def test_a_stray_that_nobody_in_the_window_can_have_caused_voids_nothing() -> None:
    capture = on_the_wire([0, 1, 100, 110], [2, 3, 4, 101, 111], window=(50, 200))
    time = measured(capture, BY_ORDER, flows=FLOWS_RAW, timeout_ns=20 * MS)
    assert (time.unprovable, time.floor_ns.tolist(), time.counts) == ("", [MS + 1, MS + 1], {})


# --- the window's edges -----------------------------------------------------------------------------------------------


def test_an_answer_to_a_request_before_the_window_hides_no_loss_in_it() -> None:
    capture = Capture()
    capture.request(-2 * MS, 100)
    capture.sentinel(0, 1, answered_at=100 * US)
    capture.request(1 * MS, 1)
    capture.answer(2 * MS, 100)
    capture.request(2_500 * US, 2)
    capture.answer(3 * MS, 1)
    capture.sentinel(3 * S, 2, answered_at=3 * S + MS)
    checks = {"lost": (LOSS_BY_ORDER, [count_of(0)]), "one": (LOSS_BY_ORDER, [count_of(1)])}
    result = run(capture, {**checks, "time": (BY_ORDER, [each(2 * MS)])}, flows=FLOWS_RAW, requests=2)
    # That the request before was lost, and both of the window answered, would look the same.
    assert str(result.check("lost").verdict) == "INCONCLUSIVE"
    assert "between 0 and 1 of 2" in result.check("lost").reason
    assert (str(result.check("one").verdict), str(result.check("time").verdict)) == ("PASS", "INCONCLUSIVE")


def test_a_loss_in_the_window_is_not_put_on_a_request_after_it() -> None:
    capture = on_the_wire([0, 1, 2, 3], [2, 3, 4], window=(0, 3))
    lost = measured(capture, LOSS_BY_ORDER, flows=FLOWS_RAW)
    assert (lost.least, lost.most, lost.denominator) == (0, 1, 3)
    time = measured(capture, BY_ORDER, flows=FLOWS_RAW)
    assert (time.value_ns.tolist(), time.floor_ns.tolist()) == ([2 * MS + 1] * 2 + [LOST], [NO_FLOOR_NS] * 3)
    assert time.counts["lost, unless one outside of the window is"] == 1


def test_losses_that_the_requests_outside_of_the_window_cannot_account_for_are_sure() -> None:
    lost = measured(on_the_wire([0, 1, 2, 3, 4], [5], window=(1, 9)), LOSS_BY_ORDER, flows=FLOWS_RAW)
    assert (lost.least, lost.most, lost.denominator) == (3, 4, 4)


def test_requests_outside_of_the_window_with_answers_of_their_own_change_nothing() -> None:
    capture = on_the_wire([0, 100, 110, 200], [1, 101, 201], window=(50, 150))
    lost = measured(capture, LOSS_BY_ORDER, flows=FLOWS_RAW, timeout_ns=20 * MS)
    assert (lost.least, lost.most, lost.number.tolist()) == (1, 1, [5])


# --- answers of several datagrams -------------------------------------------------------------------------------------


def test_by_order_the_datagrams_of_a_token_v1_answer_are_one_message() -> None:
    capture = Capture()
    capture.v1_request(0, 1, tokens=8)
    capture.v1_answer(1 * MS, 1, [1, 2, 3, 4])
    capture.v1_request(2 * MS, 2, tokens=8)
    capture.v1_answer(3 * MS, 1, [5, 6, 7, 8])
    capture.arp(3 * S, 2, BOARD, JETSON)
    lost = measured(capture, LOSS_BY_ORDER, flows=FLOWS_V1)
    assert (lost.least, lost.most, lost.number.tolist()) == (1, 1, [3])
    assert measured(capture, BY_ORDER, flows=FLOWS_V1).value_ns.tolist() == [1 * MS, LOST]


def test_token_v1_answers_by_order_are_counted_across_the_wrap_of_their_numbers() -> None:
    capture = Capture()
    for i in range(40):
        number = 65_520 + i
        capture.v1_request(i * 10 * MS, number, tokens=4)
        for part in range(2):
            capture.v1_answer(i * 10 * MS + (part + 1) * MS, number, [i, part])
    capture.arp(3 * S, 2, BOARD, JETSON)
    assert measured(capture, BY_ORDER, flows=FLOWS_V1).value_ns.tolist() == [1 * MS] * 40
    last = measured(capture, LAST_BY_ORDER, flows=FLOWS_V1)
    assert (last.value_ns.tolist(), last.counts, last.unprovable) == ([2 * MS] * 40, {}, "")


# --- late responses ---------------------------------------------------------------------------------------------------

KEYED = {name: {**flow, "key": {"offset": 4, "bytes": 4}} for name, flow in FLOWS_RAW.items()}
BY_KEY = {"response_time": {"request": "requests", "response": "answers", "match": "key"}}


@pytest.mark.parametrize(
    ("metric", "flows"), [(RESPONSE_TIME, FLOWS), (TO_LAST, FLOWS), (BY_KEY, KEYED), (RESPONSE_TIME, FLOWS_V1)]
)
def test_a_late_response_is_lost_and_at_least_as_late_as_it_was_captured(metric, flows) -> None:
    capture = Capture()
    ask, answer = capture.request, capture.answer
    if flows is FLOWS_V1:
        ask, answer = capture.v1_request, capture.v1_answer
    for i in range(3):
        ask(i * 10 * S, i + 1)
        if i != 1:
            for delay in (1 * S + 400, 3 * S) if i else (2 * MS,):
                answer(i * 10 * S + delay, i + 1)
    capture.arp(60 * S, 2, BOARD, JETSON)
    result = measured(capture, metric, flows=flows)
    assert result.value_ns.tolist() == [2 * MS, LOST, LOST]
    assert result.floor_ns.tolist() == [2 * MS, LOST, 1 * S + 400]
    assert (result.counts["lost"], result.counts["late responses"]) == (1, 1)


def test_a_clock_step_that_makes_an_answer_late_excuses_it() -> None:
    capture = Capture()
    capture.sentinel(0, 1, answered_at=1 * MS)
    for i in range(20):
        at = 10 * MS + i * 10 * MS
        capture.request(at + (2 * S if i > 10 else 0), i + 1)
        capture.answer(at + 1 * MS + (2 * S if i >= 10 else 0), i + 1)
    capture.sentinel(6 * S, 2, answered_at=6 * S + 1 * MS)
    checks = {"time": (RESPONSE_TIME, [each(100 * MS)]), "lost": (LOSS, [count_of(0)])}
    for step, expected in ((2 * S, Verdict.INCONCLUSIVE), (1 * S, Verdict.FAIL)):
        result = run(capture, checks, Evidence(sentinels=True, clock_step_ns=step), e_ns=US, requests=20)
        assert result.check("time").verdict is expected
        assert result.check("lost").verdict is Verdict.FAIL


def test_an_answer_within_e_of_the_time_out_is_not_surely_over_a_limit_of_it() -> None:
    capture = Capture()
    for i in range(5):
        capture.request(i * 3 * S, i + 1)
        capture.answer(i * 3 * S + 1 * S + 400, i + 1)
    capture.arp(60 * S, 2, BOARD, JETSON)
    for e_ns, expected in ((US, "INCONCLUSIVE"), (100, "FAIL")):
        assert str(run(capture, {"time": (RESPONSE_TIME, [each(1 * S)])}, e_ns=e_ns).check("time").verdict) == expected


@pytest.mark.parametrize(("quiet_ms", "told"), [(0, True), (999, True), (1_001, False)])
def test_that_nothing_was_open_when_the_capture_began_is_said_where_it_is_not_seen(quiet_ms: int, told: bool) -> None:
    capture = Capture()
    capture.arp(0, 2, BOARD, JETSON)
    for n in range(5):
        capture.to_board((quiet_ms + 10 * n) * MS, b"ask")
        capture.from_board((quiet_ms + 10 * n + 2) * MS, b"say")
    capture.arp(60 * S, 2, BOARD, JETSON)
    notes = measured(capture, BY_ORDER, flows=FLOWS_RAW).notes
    assert ("matched by order: no request is taken to have been open when the capture began" in notes) is told


def test_a_stray_that_can_be_nobodys_answer_leaves_the_times_proven() -> None:
    capture = Capture()
    for n in range(50):
        capture.to_board(n * 3 * MS, b"ask")
        capture.from_board((n * 3 + 5) * MS, b"say")
    capture.from_board(20 * S, b"say")
    capture.arp(60 * S, 2, BOARD, JETSON)
    result = measured(capture, BY_ORDER, flows=FLOWS_RAW)
    assert (result.value_ns.tolist(), result.unprovable) == ([5 * MS] * 50, "")
    assert result.floor_ns.tolist() == [5 * MS] * 50
