"""The metrics on hand-made exchanges: every number here was worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_captures import (
    ADDRESSES,
    BOOT,
    BY_ORDER,
    DUPLICATES,
    FLOWS,
    FLOWS_RAW,
    FLOWS_V1,
    GAP,
    JETSON,
    LOSS,
    MS,
    REORDERING,
    RESPONSE_TIME,
    RUNNER,
    TO_LAST,
    US,
    Capture,
    S,
    plan_of,
    sent_of,
)

from rig.errors import PlanError
from rig.protocol.token_v2 import FLAG_FIRST, FLAG_LAST
from rig.timing.flows import Selection
from rig.timing.metrics import measure
from rig.timing.metrics.measurement import INFINITE_NS, NO_FLOOR_NS, Measurement, Scene

LOST = INFINITE_NS
WITHIN_ID = {"gap": {"of": "answers", "within": "request_id"}}


def measured(capture: Capture, metric, *, flows=FLOWS, timeout_ns: int = S, sent=None) -> Measurement:
    plan = plan_of({"it": metric}, flows=flows)
    table = capture.table()
    selection = Selection(table, ADDRESSES)
    packets = {name: selection.packets(name, flow) for name, flow in plan.flows.items()}
    scene = Scene(
        packets=packets,
        timeout_ns=timeout_ns,
        end_ns=int(table.time_ns[-1]) if len(table) else 0,
        sent=sent_of(packets, sent or {}),
    )
    return measure(plan.checks["it"], scene)


def long_after(capture: Capture, at_ns: int = 60 * S) -> Capture:
    """One frame far behind, so that every time-out has passed within the capture."""
    capture.arp(at_ns, 1, JETSON, JETSON)
    return capture


# --- response time ----------------------------------------------------------------------------------------------------


def test_response_time_to_first_and_last_datagram() -> None:
    capture = Capture()
    capture.request(0, 1, tokens=3)
    capture.answer(2 * MS, 1, flags=FLAG_FIRST)
    capture.answer(3 * MS, 1, flags=0)
    capture.answer(7 * MS, 1, flags=FLAG_LAST)
    first, last = measured(capture, RESPONSE_TIME), measured(capture, TO_LAST)
    assert (first.value_ns.tolist(), first.number.tolist(), first.reference.tolist()) == ([2 * MS], [2], [1])
    assert (last.value_ns.tolist(), last.number.tolist()) == ([7 * MS], [4])


def test_lost_response_is_infinite_and_shown_by_its_request() -> None:
    capture = Capture()
    capture.request(0, 1)
    capture.request(5 * MS, 2)
    capture.answer(6 * MS, 2)
    result = measured(long_after(capture), RESPONSE_TIME)
    assert result.value_ns.tolist() == [LOST, 1 * MS]
    assert result.floor_ns.tolist() == [LOST, 1 * MS]
    assert result.number.tolist() == [1, 3]
    assert result.reference.tolist() == [0, 2]
    assert result.counts == {"lost": 1}


def test_interleaved_answers_find_their_own_request() -> None:
    capture = Capture()
    for i in range(3):
        capture.request(i * MS, i)
    for i, at in ((2, 3), (0, 4), (1, 6)):
        capture.answer(at * MS, i)
    assert measured(capture, RESPONSE_TIME).value_ns.tolist() == [4 * MS, 5 * MS, 1 * MS]


def test_of_a_response_and_its_copy_the_first_counts() -> None:
    capture = Capture()
    capture.request(0, 1)
    capture.answer(2 * MS, 1, sequence=9)
    capture.answer(3 * MS, 1, sequence=9)
    result = measured(capture, RESPONSE_TIME)
    assert result.value_ns.tolist() == [2 * MS]
    assert result.counts == {"duplicate responses": 1}


def test_copied_request_counts_once_from_its_first_copy_and_its_second_answer_is_counted() -> None:
    capture = Capture()
    capture.request(0, 1, sequence=5)
    capture.request(1 * MS, 1, sequence=5)
    capture.answer(2 * MS, 1)
    capture.answer(3 * MS, 1)
    result = measured(capture, TO_LAST)
    assert result.value_ns.tolist() == [2 * MS]
    assert result.counts == {"duplicate requests": 1, "repeated answers": 1}


def test_retransmitted_request_is_one_exchange() -> None:
    capture = Capture()
    capture.request(0, 1, sequence=5)
    capture.request(10 * MS, 1, sequence=6)
    capture.answer(12 * MS, 1)
    result = measured(capture, RESPONSE_TIME)
    assert result.value_ns.tolist() == [12 * MS]
    assert result.counts == {"repeated requests": 1}


@pytest.mark.parametrize(("delay_ns", "value"), [(5 * MS, 5 * MS), (5 * MS + 1, LOST)])
def test_response_later_than_the_timeout_is_late_and_infinite(delay_ns: int, value: int) -> None:
    capture = Capture()
    capture.request(0, 1)
    capture.answer(delay_ns, 1)
    result = measured(long_after(capture), RESPONSE_TIME, timeout_ns=5 * MS)
    assert result.value_ns.tolist() == [value]
    assert result.counts == ({} if value != LOST else {"late responses": 1})


def test_response_captured_before_its_request_is_a_negative_delay() -> None:
    capture = Capture()
    capture.answer(0, 1)
    capture.request(37, 1)
    result = measured(capture, RESPONSE_TIME)
    assert result.value_ns.tolist() == [-37]
    assert result.counts == {"responses before their request": 1}


def test_response_without_request_is_counted() -> None:
    capture = Capture()
    capture.request(0, 1)
    capture.answer(1 * MS, 1)
    capture.answer(2 * MS, 77)
    assert measured(capture, RESPONSE_TIME).counts == {"responses without a request": 1}


def test_request_near_the_end_of_the_capture_is_undecided_not_lost_for_sure() -> None:
    capture = Capture()
    capture.request(0, 1)
    capture.request(2 * S, 2)
    capture.arp(2 * S + 300 * MS, 1, JETSON, JETSON)
    result = measured(capture, RESPONSE_TIME)
    assert result.value_ns.tolist() == [LOST, LOST]
    assert result.floor_ns.tolist() == [LOST, 300 * MS]
    assert result.counts == {"lost": 2, "undecided at the end of the capture": 1}


def test_answers_to_warm_up_requests_are_no_strays_and_late_ones_behind_the_end_still_count() -> None:
    capture = Capture()
    capture.request(0, 1)
    capture.sentinel(1 * MS, 1)
    capture.answer(2 * MS, 1)
    capture.request(3 * MS, 2)
    capture.sentinel(4 * MS, 2)
    capture.answer(9 * MS, 2)
    result = measured(capture, RESPONSE_TIME)
    assert result.value_ns.tolist() == [6 * MS]
    assert result.counts == {}


def test_board_restart_in_mid_run_keeps_matching_and_starts_a_new_sequence_space() -> None:
    capture = Capture()
    for i in range(4):
        capture.request(i * 10 * MS, i)
    capture.answer(1 * MS, 0, sequence=0)
    capture.answer(11 * MS, 1, sequence=1)
    capture.answer(21 * MS, 2, sequence=0, boot=BOOT + 1)
    capture.answer(31 * MS, 3, sequence=1, boot=BOOT + 1)
    assert measured(capture, RESPONSE_TIME).value_ns.tolist() == [1 * MS] * 4
    assert measured(capture, DUPLICATES).least == 0
    assert measured(capture, REORDERING).least == 0
    assert measured(capture, GAP).value_ns.tolist() == [10 * MS, 10 * MS]


def test_id_used_again_by_another_run_in_the_file_finds_the_latest_request() -> None:
    capture = Capture()
    for run in range(2):
        capture.request(run * 100 * MS, 1, sequence=0, boot=RUNNER + run)
        capture.answer(run * 100 * MS + (run + 1) * MS, 1)
    assert measured(capture, RESPONSE_TIME).value_ns.tolist() == [1 * MS, 2 * MS]


def test_token_v1_matches_over_the_wrap_of_its_16_bit_sequence() -> None:
    capture = Capture()
    for i, sequence in enumerate(range(0xFFFD, 0x10003)):
        capture.v1_request(i * MS, sequence)
        capture.v1_answer(i * MS + (i + 1) * US, sequence)
    result = measured(capture, RESPONSE_TIME, flows=FLOWS_V1)
    assert result.value_ns.tolist() == [(i + 1) * US for i in range(6)]
    assert measured(capture, DUPLICATES, flows=FLOWS_V1).least == 0
    assert measured(capture, REORDERING, flows=FLOWS_V1).least == 0


def test_token_v1_id_that_comes_again_after_65536_requests() -> None:
    capture = Capture()
    for i in range(0x10000 + 2):
        capture.v1_request(i * 100 * US, i)
        capture.v1_answer(i * 100 * US + 10 * US, i)
    result = measured(capture, RESPONSE_TIME, flows=FLOWS_V1)
    assert result.denominator == 0x10000 + 2
    assert set(result.value_ns.tolist()) == {10 * US}


def test_token_v1_answer_in_several_datagrams_ends_with_its_last_token() -> None:
    capture = Capture()
    capture.v1_request(0, 1, tokens=5)
    capture.v1_answer(1 * MS, 1, [1, 2])
    capture.v1_answer(2 * MS, 1, [3, 4])
    capture.v1_answer(3 * MS, 1, [3, 4])  # a copy fills no hole
    capture.v1_answer(4 * MS, 1, [5])
    capture.v1_answer(5 * MS, 1, [6])  # more than was asked for
    capture.v1_request(10 * MS, 2, tokens=5)
    capture.v1_answer(11 * MS, 2, [1, 2])
    capture = long_after(capture)
    assert measured(capture, RESPONSE_TIME, flows=FLOWS_V1).value_ns.tolist() == [1 * MS, 1 * MS]
    to_last = measured(capture, TO_LAST, flows=FLOWS_V1)
    assert to_last.value_ns.tolist() == [4 * MS, LOST]
    assert to_last.counts == {"lost": 1, "duplicate responses": 1}
    assert measured(capture, LOSS, flows=FLOWS_V1).number.tolist() == [7]
    assert measured(capture, DUPLICATES, flows=FLOWS_V1).number.tolist() == [4]


def test_by_order_without_loss_pairs_one_to_one() -> None:
    capture = Capture()
    for i in range(3):
        capture.request(i * MS, i)
        capture.answer(i * MS + 2_500 * US, 99)
    result = measured(capture, BY_ORDER, flows=FLOWS_RAW)
    assert result.value_ns.tolist() == [2_500 * US] * 3
    assert result.counts == {}


def test_by_order_a_loss_in_a_closed_loop_stays_one_loss() -> None:
    capture = Capture()
    for at, answered in ((0, True), (10, False), (200, True), (210, True)):
        capture.request(at * MS, at)
        if answered:
            capture.answer((at + 1) * MS, at)
    result = measured(long_after(capture), BY_ORDER, flows=FLOWS_RAW, timeout_ns=100 * MS)
    assert result.value_ns.tolist() == [MS, LOST, MS, MS]
    assert result.floor_ns.tolist() == [MS, LOST, MS, MS]
    assert not any("upper bounds" in note for note in result.notes)


def test_by_order_a_loss_among_open_requests_makes_later_delays_upper_bounds() -> None:
    capture = Capture()
    for i in range(4):
        capture.request(i * 10 * MS, i)
        if i != 1:
            capture.answer(i * 10 * MS + MS, i)
    result = measured(long_after(capture), BY_ORDER, flows=FLOWS_RAW, timeout_ns=100 * MS)
    assert result.value_ns.tolist() == [MS, 11 * MS, 11 * MS, LOST]
    assert result.floor_ns.tolist() == [MS, NO_FLOOR_NS, NO_FLOOR_NS, LOST]
    assert "2 delays are upper bounds" in result.notes[0]


def test_by_order_a_stray_response_among_open_requests_proves_nothing() -> None:
    capture = Capture()
    for at in (0, 1):
        capture.request(at * MS, at)
    for at in (2, 3, 4):
        capture.answer(at * MS, at)
    result = measured(long_after(capture), BY_ORDER, flows=FLOWS_RAW)
    assert result.floor_ns.tolist() == [NO_FLOOR_NS] * 2
    assert "stray" in result.unprovable


@pytest.mark.parametrize("metric", [RESPONSE_TIME, TO_LAST, BY_ORDER, LOSS])
@pytest.mark.parametrize("flows", [FLOWS, FLOWS_V1, FLOWS_RAW])
def test_a_side_without_any_packet_is_all_lost_or_nothing(metric, flows) -> None:
    if flows is FLOWS_RAW and metric is not BY_ORDER:
        return
    asked, answered = Capture(), Capture()
    for i in range(3):
        if flows is FLOWS_V1:
            asked.v1_request(i, i)
            answered.v1_answer(i, i)
        else:
            asked.request(i, i)
            answered.answer(i, i)
    lost = measured(long_after(asked), metric, flows=flows)
    assert (lost.denominator, lost.value_ns.tolist()) == (3, [LOST] * 3)
    assert measured(long_after(answered), metric, flows=flows).denominator == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.one_of(st.none(), st.integers(-5, 60))), min_size=1, max_size=60),
    st.randoms(use_true_random=False),
)
def test_response_times_are_those_that_were_made_whatever_is_lost_or_overtaken(steps, rng) -> None:
    capture = Capture()
    at, expected, numbers = 0, [], list(range(1000, 1000 + len(steps)))
    rng.shuffle(numbers)
    for (step, delay), request_id in zip(steps, numbers, strict=True):
        at += step * MS
        capture.request(at, request_id)
        if delay is not None:
            capture.answer(at + delay * MS + 1, request_id)
        late = delay is None or delay * MS + 1 > 50 * MS
        expected.append(LOST if late else delay * MS + 1)
    result = measured(long_after(capture), RESPONSE_TIME, timeout_ns=50 * MS)
    assert result.value_ns.tolist() == expected
    lost = sum(delay is None for _, delay in steps)
    assert result.counts.get("lost", 0) == lost
    assert result.counts.get("late responses", 0) == sum(value == LOST for value in expected) - lost


# --- gap --------------------------------------------------------------------------------------------------------------


def test_gap_of_a_flow_leaves_copies_out() -> None:
    capture = Capture()
    capture.answer(0, 1, sequence=0)
    capture.answer(3 * MS, 2, sequence=1)
    capture.answer(4 * MS, 2, sequence=1)
    capture.answer(10 * MS, 3, sequence=2)
    result = measured(capture, GAP)
    assert result.value_ns.tolist() == [3 * MS, 7 * MS]
    assert result.number.tolist() == [2, 4]
    assert result.reference.tolist() == [1, 2]
    assert result.counts == {"further copies left out": 1}


def test_gap_within_an_answer_never_spans_two_answers() -> None:
    capture = Capture()
    for at, request_id in ((0, 1), (1, 2), (4, 1), (9, 2), (10, 1)):
        capture.answer(at * MS, request_id, flags=0)
    result = measured(capture, WITHIN_ID)
    assert result.value_ns.tolist() == [4 * MS, 8 * MS, 6 * MS]
    assert (np.diff(result.time_ns) >= 0).all()


def test_gap_of_a_plain_flow_needs_no_protocol() -> None:
    capture = Capture()
    for at in (0, 2, 5):
        capture.from_board(at * MS, b"no token")
    assert measured(capture, GAP, flows=FLOWS_RAW).value_ns.tolist() == [2 * MS, 3 * MS]


# --- loss -------------------------------------------------------------------------------------------------------------


def test_unanswered_and_incomplete_answers_are_losses() -> None:
    capture = Capture()
    for i in range(4):
        capture.request(i * MS, i, tokens=2)
    capture.answer(1 * MS, 0, tokens=2)
    capture.answer(2 * MS, 1, flags=FLAG_FIRST)  # its last datagram is lost
    capture.answer(3 * MS, 2, flags=FLAG_LAST)  # its first one is
    result = measured(long_after(capture), LOSS)
    assert (result.least, result.most, result.denominator) == (3, 3, 4)
    assert result.number.tolist() == [2, 3, 4]
    assert result.counts == {"unanswered": 2, "incomplete answers": 1}


def test_a_second_answer_does_not_fill_the_hole_of_the_first() -> None:
    capture = Capture()
    capture.request(0, 1, tokens=2)
    capture.answer(1 * MS, 1, flags=FLAG_LAST)
    capture.answer(2 * MS, 1, flags=FLAG_FIRST)
    capture.answer(3 * MS, 1, flags=FLAG_LAST)
    assert measured(long_after(capture), LOSS).least == 1


def test_an_answer_whose_last_datagram_overtook_another_is_complete() -> None:
    capture = Capture()
    capture.request(0, 1, tokens=3)
    capture.answer(1 * MS, 1, sequence=0, flags=FLAG_FIRST)
    capture.answer(2 * MS, 1, sequence=2, flags=FLAG_LAST)
    capture.answer(3 * MS, 1, sequence=1, flags=0)
    assert measured(long_after(capture), LOSS).least == 0
    assert measured(long_after(capture), REORDERING).least == 1


def test_an_error_reply_is_no_answer() -> None:
    capture = Capture()
    capture.request(0, 1)
    capture.error(1 * MS, 1)
    assert measured(long_after(capture), LOSS).least == 1


def test_a_copy_never_hides_a_loss() -> None:
    capture = Capture()
    capture.answer(0, 1, sequence=0)
    capture.answer(1, 1, sequence=0)
    capture.answer(2, 3, sequence=2)
    result = measured(capture, {"loss": {"of": "answers"}}, sent={"answers": 3})
    assert (result.least, result.most, result.denominator) == (1, 1, 3)


def test_without_a_counter_sequence_holes_prove_loss_but_never_zero() -> None:
    capture = Capture()
    capture.answer(0, 1, sequence=0xFFFF_FFFF)
    capture.answer(1, 2, sequence=2)
    result = measured(capture, {"loss": {"of": "answers"}})
    assert (result.least, result.most) == (2, None)


def test_more_seen_than_counted_does_not_reconcile() -> None:
    capture = Capture()
    capture.answer(0, 1)
    capture.answer(1, 2)
    result = measured(capture, {"loss": {"of": "answers"}}, sent={"answers": 1})
    assert (result.least, result.most) == (0, None)
    assert "do not reconcile" in result.notes[0]


def test_requests_that_the_sender_counted_but_nobody_saw_leave_the_loss_open() -> None:
    capture = Capture()
    capture.request(0, 1)
    capture.answer(1, 1)
    result = measured(long_after(capture), LOSS, sent={"requests": 3})
    assert (result.least, result.most, result.denominator) == (0, 2, 3)


# --- duplicates: RFC 5560 section 5.3 ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrivals", "fraction", "replicated"),
    [
        ((1, 2, 3, 4), 0.0, 0.0),
        ((1, 1, 2, 2, 3, 3, 4, 4), 1.0, 1.0),
        ((1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4), 2.0, 1.0),
        ((1, 1, 1, 2, 3, 3, 3, 4), 1.0, 0.5),
        ((1, 2, 3, 4, 1, 2, 3, 4), 1.0, 1.0),
        ((1, 2, 3, 4, 4, 3, 2, 1), 1.0, 1.0),
    ],
)
def test_duplication_fraction_and_replicated_rate_of_rfc_5560(arrivals, fraction, replicated) -> None:
    capture = Capture()
    for at, sequence in enumerate(arrivals):
        capture.answer(at, sequence, sequence=sequence)
    result = measured(capture, DUPLICATES)
    assert result.denominator == 4
    assert result.least / result.denominator == fraction
    assert result.counts.get("replicated packets", 0) / result.denominator == replicated


def test_a_duplicate_names_its_first_copy() -> None:
    capture = Capture()
    capture.answer(0, 1, sequence=0)
    capture.answer(1 * MS, 2, sequence=1)
    capture.answer(4 * MS, 1, sequence=0)
    result = measured(capture, DUPLICATES)
    assert (result.number.tolist(), result.reference.tolist(), result.value_ns.tolist()) == ([3], [1], [4 * MS])


# --- reordering: RFC 4737 ---------------------------------------------------------------------------------------------


def test_reordered_packets_of_the_rfc_4737_example() -> None:
    capture = Capture()
    for at, sequence in enumerate((1, 2, 3, 7, 8, 9, 4, 5, 6)):
        capture.answer(at * MS, sequence, sequence=sequence)
    result = measured(capture, REORDERING)
    assert (result.least, result.denominator) == (3, 9)
    assert result.number.tolist() == [7, 8, 9]
    assert result.reference.tolist() == [4, 4, 4]  # all three were overtaken by packet 7 first
    assert result.value_ns.tolist() == [3 * MS, 4 * MS, 5 * MS]
    assert result.counts["largest extent (packets)"] == 5


def test_a_late_copy_is_a_duplicate_not_a_reordered_packet() -> None:
    capture = Capture()
    for at, sequence in enumerate((1, 2, 3, 1)):
        capture.answer(at, sequence, sequence=sequence)
    assert measured(capture, REORDERING).least == 0
    assert measured(capture, DUPLICATES).least == 1


def test_loss_alone_is_no_reordering() -> None:
    capture = Capture()
    for at, sequence in enumerate((1, 5, 9, 200)):
        capture.answer(at, sequence, sequence=sequence)
    assert measured(capture, REORDERING).least == 0


def test_reordering_over_the_wrap_is_found_once() -> None:
    capture = Capture()
    for at, sequence in enumerate((0xFFFF_FFFE, 0, 0xFFFF_FFFF, 1)):
        capture.answer(at, at, sequence=sequence)
    result = measured(capture, REORDERING)
    assert result.number.tolist() == [3]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), min_size=1, max_size=80))
def test_reordering_equals_the_definition_applied_packet_by_packet(packets) -> None:
    capture = Capture()
    expected, highest, seen = [], {}, set()
    for at, (sequence, boot) in enumerate(packets):
        capture.answer(at, 1, sequence=sequence, boot=boot)
        if (sequence, boot) in seen:
            continue
        seen.add((sequence, boot))
        if sequence < highest.get(boot, -1):
            expected.append(at + 1)
        highest[boot] = max(highest.get(boot, -1), sequence)
    assert measured(capture, REORDERING).number.tolist() == expected


# --- plans that cannot be measured ------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [RESPONSE_TIME, WITHIN_ID, DUPLICATES, REORDERING])
def test_metrics_that_need_headers_say_so_for_a_plain_flow(metric) -> None:
    capture = Capture()
    capture.request(0, 1)
    capture.answer(1, 1)
    with pytest.raises(PlanError, match="no token protocol"):
        measured(capture, metric, flows=FLOWS_RAW)


@pytest.mark.parametrize(
    "metric", [RESPONSE_TIME, BY_ORDER, GAP, WITHIN_ID, LOSS, {"loss": {"of": "answers"}}, DUPLICATES, REORDERING]
)
def test_an_empty_capture_measures_nothing(metric) -> None:
    result = measured(Capture(), metric)
    assert (len(result.value_ns), result.denominator) == (0, 0)
