"""One-way delay, IPDV, PDV, jitter and board stages: examples of the RFCs, and what an aligned clock can claim."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_captures import ADDRESSES, JETSON, MS, US, Capture, S, plan_of, sent_of

from rig.protocol.token_v2 import FLAG_FIRST, FLAG_LAST
from rig.timing.clock import align
from rig.timing.flows import Selection
from rig.timing.metrics import measure
from rig.timing.metrics.measurement import INFINITE_NS, NO_FLOOR_NS, Measurement, Scene
from rig.timing.metrics.one_way import _smoothed

RFC5481 = (20, 10, 20, 25, 20)
IPDV, PDV, JITTER = {"ipdv": {"of": "answers"}}, {"pdv": {"of": "answers"}}, {"jitter": {"of": "answers"}}
FROM_BOARD = {"one_way_delay": {"of": "answers", "opposite": "requests"}}
TO_BOARD = {"one_way_delay": {"of": "requests", "opposite": "answers"}}
AHEAD = 100 * S
"""The board's clock less the capture's zero, in the tests that align it."""


def measured(capture: Capture, metric, *, e_ns: int = 0, sent=None) -> Measurement:
    plan = plan_of({"it": metric})
    table = capture.table()
    selection = Selection(table, ADDRESSES)
    packets = {name: selection.packets(name, flow) for name, flow in plan.flows.items()}
    return measure(
        plan.checks["it"], Scene(packets, S, int(table.time_ns[-1]), sent=sent_of(packets, sent or {}), e_ns=e_ns)
    )


def delayed(delays_ms: tuple[int, ...], *, skip: frozenset[int] = frozenset(), boot=None) -> Capture:
    """Answers sent every 100 ms of a clock of their own, each captured its delay later."""
    capture = Capture()
    for index, delay in enumerate(delays_ms):
        if index not in skip:
            at = (100 * index + delay) * MS
            stamps = {"t_send_ns": (1_000 + 100 * index) * MS}
            capture.answer(at, index, sequence=index, **stamps, **({"boot": boot[index]} if boot else {}))
    return capture


def exchanges(count: int, out_ns, back_ns, *, drift: float = 0.0, every_ns: int = 10 * MS) -> Capture:
    """Exchanges with the given true delays each way, a turnaround of 3 ms, and a board clock ahead and drifting."""
    capture = Capture()
    for index in range(count):
        asked = index * every_ns
        received, sent = asked + out_ns(index), asked + out_ns(index) + 3 * MS

        def board(at_ns: int) -> int:
            return AHEAD + at_ns + round(at_ns * drift)

        capture.request(asked, index + 1)
        capture.answer(sent + back_ns(index), index + 1, t_rx_ns=board(received), t_send_ns=board(sent))
    capture.arp(count * every_ns + 10 * S, 1, JETSON, JETSON)
    return capture


# --- IPDV, PDV, jitter ------------------------------------------------------------------------------------------------


def test_ipdv_and_pdv_of_rfc_5481_section_4_4() -> None:
    assert measured(delayed(RFC5481), IPDV).value_ns.tolist() == [value * MS for value in (-10, 10, 5, -5)]
    assert measured(delayed(RFC5481), PDV).value_ns.tolist() == [value * MS for value in (10, 0, 10, 15, 10)]


def test_ipdv_is_undefined_beside_a_lost_packet() -> None:
    result = measured(delayed(RFC5481, skip=frozenset({1})), IPDV)
    assert result.value_ns.tolist() == [5 * MS, -5 * MS]
    assert result.counts["without their predecessor"] == 1


def test_ipdv_follows_sending_order_and_jitter_order_of_arrival() -> None:
    capture = delayed((20, 250, 20))  # the second arrives after the third
    assert measured(capture, IPDV).value_ns.tolist() == [230 * MS, -230 * MS]
    # arrival: 20, 20, 250 → D = 0, 230
    assert measured(capture, JITTER).value_ns.tolist() == [0, 0, 230 * MS // 16]


def test_jitter_is_the_estimator_of_rfc_3550() -> None:
    state, expected = 0.0, [0]
    for before, after in pairwise(RFC5481):
        state += (abs(after - before) * MS - state) / 16
        expected.append(round(state))
    assert measured(delayed(RFC5481), JITTER).value_ns.tolist() == expected


@given(st.lists(st.integers(0, 10**9), max_size=1_200))
@settings(max_examples=30, deadline=None)
def test_blockwise_filter_equals_the_recursion(steps: list[int]) -> None:
    state, expected = 0.0, []
    for step in steps:
        state += (step - state) / 16
        expected.append(state)
    assert np.allclose(_smoothed(np.array(steps, np.float64)), expected, rtol=1e-12, atol=1e-6)


def test_a_new_boot_begins_anew() -> None:
    capture = delayed((20, 30, 20, 40), boot=(1, 1, 2, 2))
    assert measured(capture, IPDV).value_ns.tolist() == [10 * MS, 20 * MS]
    assert measured(capture, PDV).value_ns.tolist() == [0, 10 * MS, 0, 20 * MS]
    assert measured(capture, JITTER).value_ns.tolist() == [0, 625 * US, 0, 1_250 * US]


def test_packets_without_a_stamp_are_left_out_and_counted() -> None:
    capture = delayed(RFC5481)
    capture.answer(600 * MS, 9)
    result = measured(capture, PDV)
    assert (len(result.value_ns), result.counts) == (5, {"without a stamp": 1})


# --- one-way delay ----------------------------------------------------------------------------------------------------


def test_one_way_delay_states_half_of_the_unexplained_round_trip() -> None:
    capture = exchanges(200, lambda i: 1 * MS + i % 3 * US, lambda i: 2 * MS + i % 5 * US)
    back, out = measured(capture, FROM_BOARD), measured(capture, TO_BOARD)
    assert back.error_ns >= 1_500 * US
    assert back.error_ns < 1_600 * US
    # What the minima leave open is shared evenly; the truth lies within the error.
    for result, truth in ((back, 2 * MS), (out, 1 * MS)):
        assert np.abs(result.value_ns - truth).max() <= result.error_ns + 5 * US
    assert "drift" in back.notes[0]


@pytest.mark.parametrize("drift", [-80e-6, 0.0, 50e-6, 0.01])
def test_drift_is_found_and_the_error_holds(drift: float) -> None:
    rng = np.random.default_rng(3)
    there, back = (
        rng.exponential(200 * US, 400).astype(int) + 100 * US,
        rng.exponential(50 * US, 400).astype(int) + 40_000,
    )
    capture = exchanges(400, lambda i: int(there[i]), lambda i: int(back[i]), drift=drift)
    result = measured(capture, FROM_BOARD)
    true = back
    assert np.abs(result.value_ns - true).max() <= result.error_ns
    assert result.error_ns < 200 * US


def test_error_widens_the_guard_band_of_every_limit() -> None:
    from timing_captures import each, run

    capture = exchanges(50, lambda i: 1 * MS, lambda i: 2 * MS)
    for limit_ns, verdict in ((6 * MS, "PASS"), (2 * MS, "INCONCLUSIVE")):
        result = run(capture, {"delay": (FROM_BOARD, [each(limit_ns)])})
        assert str(result.check("delay").verdict) == verdict


def test_a_clock_that_did_not_run_evenly_is_refused() -> None:
    capture = Capture()
    for index in range(20):
        jump = 50 * MS if index >= 10 else 0
        at = index * 10 * MS
        capture.request(at, index + 1)
        capture.answer(at + 2 * MS, index + 1, t_rx_ns=AHEAD + at + MS + jump, t_send_ns=AHEAD + at + MS + 1 + jump)
    for index in range(20, 30):
        at = index * 10 * MS
        capture.request(at, index + 1)
        capture.answer(at + 2 * MS, index + 1, t_rx_ns=AHEAD + at + MS, t_send_ns=AHEAD + at + MS + 1)
    result = measured(capture, FROM_BOARD)
    assert len(result.value_ns) == 0
    assert "no even clock" in result.unprovable


def test_what_the_board_sent_and_nobody_saw_is_infinite() -> None:
    result = measured(exchanges(10, lambda i: MS, lambda i: MS), FROM_BOARD, sent={"answers": 12})
    assert result.value_ns.tolist()[-2:] == [INFINITE_NS] * 2
    assert result.counts == {"lost": 2}


def test_a_request_without_answer_proves_nothing_about_its_way() -> None:
    capture = exchanges(10, lambda i: MS, lambda i: MS)
    capture.request(95 * MS, 11)
    result = measured(capture, TO_BOARD)
    assert (result.value_ns[-1], result.floor_ns[-1]) == (INFINITE_NS, NO_FLOOR_NS)


def test_each_boot_has_a_clock_of_its_own() -> None:
    capture = Capture()
    for index in range(20):
        at, ahead, boot = index * 10 * MS, (AHEAD if index < 10 else 7 * S), (1 if index < 10 else 2)
        capture.request(at, index + 1)
        capture.answer(
            at + 5 * MS, index + 1, boot=boot, t_rx_ns=ahead + at + MS, t_send_ns=ahead + at + 3 * MS, sequence=index
        )
    result = measured(capture, FROM_BOARD)
    assert np.abs(result.value_ns - 1_500 * US).max() < 200 * US


def test_pdv_with_the_opposite_flow_is_free_of_drift() -> None:
    capture = exchanges(300, lambda i: MS, lambda i: 2 * MS + i % 2 * US, drift=100e-6)
    plain = measured(capture, PDV)
    aligned = measured(capture, {"pdv": {"of": "answers", "opposite": "requests"}})
    assert plain.value_ns.max() > 250 * US  # 3 s at 100 ppm
    assert np.abs(aligned.value_ns - np.arange(300) % 2 * US).max() <= aligned.error_ns + 1


@given(
    st.integers(-(10**12), 10**12),
    st.floats(-0.015, 0.015),
    st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), min_size=2, max_size=60),
)
@settings(max_examples=80, deadline=None)
def test_the_true_clock_is_always_within_the_error(offset: int, drift: float, delays: list[tuple[int, int]]) -> None:
    out = np.arange(len(delays)) * 10 * MS
    there, home = (np.array(column) for column in zip(*delays, strict=True))
    received = out + there
    back = received + MS + home

    def far(at):  # type: ignore[no-untyped-def]
        return at + offset + np.rint(at * drift).astype(np.int64)

    # The far clock's stamps are those of the true instants; theta is taken at the capture's.
    found = align(out, far(received), far(received + MS), back, int((there + home).min()), e_ns=0)
    assert found is not None
    at = np.concatenate((out, back))
    slack = 2 + abs(drift) * 2 * 10**6  # theta moves while a packet is under way
    assert np.abs(found.theta_ns(at) - (far(at) - at)).max() <= found.error_ns + slack
    assert found.error_ns >= (there + home).min() // 2


# --- inside the board -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "expected"),
    [("whole", [300]), ("inference", [200]), ("send", [100, 150]), ("queue", [40])],
)
def test_board_stages(stage: str, expected: list[int]) -> None:
    capture = Capture()
    capture.answer(MS, 1, flags=FLAG_FIRST, t_rx_ns=1_000, t_ready_ns=1_200, t_send_ns=1_300)
    capture.answer(2 * MS, 1, flags=FLAG_LAST, t_rx_ns=1_000, t_ready_ns=1_500, t_send_ns=1_650, prev_queued_ns=40)
    result = measured(capture, {"turnaround": {"of": "answers", "stage": stage}})
    assert result.value_ns.tolist() == expected
    assert result.far_clock
    if stage == "queue":
        assert (result.number.tolist(), result.reference.tolist()) == ([1], [2])


def test_uncertainty_of_the_capture_has_no_part_in_board_stages() -> None:
    from timing_captures import each, run

    capture = Capture()
    capture.answer(MS, 1, t_rx_ns=1_000, t_ready_ns=1_200, t_send_ns=1_300)
    capture.arp(2 * S, 1, JETSON, JETSON)
    for limit_ns, verdict in ((300, "PASS"), (299, "FAIL")):
        result = run(capture, {"stage": ({"turnaround": {"of": "answers"}}, [each(limit_ns)])}, e_ns=50 * US)
        assert str(result.check("stage").verdict) == verdict
