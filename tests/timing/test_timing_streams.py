"""TTFT, ITL and TPOT, bursts, throughput, n-reordering, late time and extent, and matching by a key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from timing_captures import (
    ADDRESSES,
    BOARD,
    FLOWS,
    FLOWS_RAW,
    FLOWS_V1,
    JETSON,
    MS,
    US,
    Capture,
    S,
    count_of,
    each,
    plan_of,
    run,
)

from rig.errors import PlanError
from rig.plan.bounds import CountBound, LateBound, RateBound
from rig.protocol.token_v2 import FLAG_FIRST, FLAG_LAST
from rig.timing.evidence import Evidence
from rig.timing.flows import Dissected, Selection
from rig.timing.limits import LimitSpec
from rig.timing.metrics import measure
from rig.timing.metrics.measurement import INFINITE_NS, Decoding, Measurement, Scene


def measured(
    capture: Capture, metric, *, flows=FLOWS, e_ns: int = 0, decoding=None, dissected=None, window=(None, None), skip=0
) -> Measurement:
    plan = plan_of({"it": {**metric, "skip_first": skip}}, flows=flows)
    table = capture.table()
    selection = Selection(table, ADDRESSES, dissected)
    packets = {name: selection.packets(name, flow) for name, flow in plan.flows.items()}
    scene = Scene(packets, S, int(table.time_ns[-1]), window_ns=window, e_ns=e_ns, decoding=decoding)
    return measure(plan.checks["it"], scene)


# --- tokens -----------------------------------------------------------------------------------------------------------


def streamed() -> Capture:
    """Ten tokens in chunks of 4, 4 and 2, at 10, 14 and 15 ms after the request."""
    capture = Capture()
    capture.request(0, 1, tokens=10)
    capture.answer(10 * MS, 1, flags=FLAG_FIRST, tokens=4)
    capture.answer(14 * MS, 1, flags=0, tokens=4)
    capture.answer(15 * MS, 1, flags=FLAG_LAST, tokens=2)
    capture.arp(5 * S, 1, JETSON, JETSON)
    return capture


def test_wire_figures_count_tokens_not_datagrams() -> None:
    ttft = {"ttft": {"source": "wire", "request": "requests", "response": "answers"}}
    assert measured(streamed(), ttft).value_ns.tolist() == [10 * MS]
    assert measured(streamed(), {"itl": {"source": "wire", "of": "answers"}}).value_ns.tolist() == [MS, 500 * US]
    tpot = measured(streamed(), {"tpot": {"source": "wire", "of": "answers"}})
    assert tpot.value_ns.tolist() == [555_556]  # 5 ms / 9, rounded up
    assert (tpot.number.tolist(), tpot.reference.tolist()) == ([4], [2])


def test_a_request_whose_answer_holds_no_token_has_an_infinite_ttft() -> None:
    capture = Capture()
    capture.request(0, 1)
    capture.answer(MS, 1, tokens=0)
    capture.arp(5 * S, 1, JETSON, JETSON)
    ttft = {"ttft": {"source": "wire", "request": "requests", "response": "answers"}}
    assert measured(capture, ttft).value_ns.tolist() == [INFINITE_NS]


def test_tpot_needs_the_whole_answer() -> None:
    capture = Capture()
    capture.answer(0, 1, flags=FLAG_FIRST, tokens=4)
    capture.answer(MS, 1, flags=0, tokens=4)
    result = measured(capture, {"tpot": {"source": "wire", "of": "answers"}})
    assert (len(result.value_ns), result.counts) == (0, {"answers without their last datagram": 1})


def test_without_token_counts_the_wire_says_nothing_per_token() -> None:
    with pytest.raises(PlanError, match="how many tokens"):
        measured(streamed(), {"itl": {"source": "wire", "of": "answers"}}, flows=FLOWS_RAW)


def test_jetson_figures_come_from_its_own_stamps_and_are_shown_by_the_request() -> None:
    capture = Capture()
    capture.request(0, 1)
    capture.request(MS, 2)
    decoding = Decoding(
        np.array([1, 2], np.uint32), np.array([100, 200]), np.array([0, 3, 4]), np.array([130, 150, 190, 260])
    )

    def of(metric: str, flow: str) -> Measurement:
        return measured(capture, {metric: {"source": "jetson", flow: "requests"}}, decoding=decoding)

    assert of("ttft", "request").value_ns.tolist() == [30, 60]
    assert of("itl", "of").value_ns.tolist() == [20, 40]
    assert of("tpot", "of").value_ns.tolist() == [30]
    assert of("ttft", "request").number.tolist() == [1, 2]


def test_capture_drops_do_not_excuse_what_the_jetson_measured_itself() -> None:
    capture = Capture()
    capture.request(0, 1)
    capture.arp(5 * S, 1, JETSON, JETSON)
    metric = {"ttft": {"source": "jetson", "request": "requests"}}
    result = run(capture, {"ttft": (metric, [])}, Evidence(drops={"isb": 3}))
    (finding,) = result.findings
    assert finding.explains == ()


# --- bursts and rates -------------------------------------------------------------------------------------------------


def answers_at(*times_ns: int, tokens: int = 1) -> Capture:
    capture = Capture()
    for index, at_ns in enumerate(times_ns):
        capture.answer(at_ns, index, tokens=tokens)
    return capture


def test_burst_is_half_open_and_doubtful_within_e_of_its_beginning() -> None:
    capture = answers_at(0, 1 * MS, 2 * MS)
    result = measured(capture, {"burst": {"of": "answers", "within": "1 ms"}}, e_ns=1)
    assert result.value_ns.tolist() == [1, 1, 1]
    assert result.ceiling is not None
    assert result.ceiling.tolist() == [1, 2, 2]
    wider = measured(capture, {"burst": {"of": "answers", "within": "1000001 ns"}}, e_ns=1)
    assert (wider.value_ns.tolist(), wider.floor_ns.tolist()) == ([1, 2, 2], [1, 1, 1])


@pytest.mark.parametrize(("most", "e_ns", "expected"), [(2, 0, "PASS"), (1, 0, "FAIL"), (1, 10, "INCONCLUSIVE")])
def test_burst_limit(most: int, e_ns: int, expected: str) -> None:
    capture = answers_at(0, 995, 5 * MS)
    check = ({"burst": {"of": "answers", "within": "1 us"}}, [LimitSpec("packets", CountBound(max=most))])
    assert str(run(capture, {"burst": check}, e_ns=e_ns).check("burst").verdict) == expected


def test_throughput_per_interval_counts_full_intervals_from_the_start_sentinel() -> None:
    capture = answers_at(1 * MS, 9 * MS, 10 * MS, 25 * MS)
    from timing_captures import T0

    metric = {"throughput": {"of": "answers", "per": "10 ms"}}
    result = measured(capture, metric, window=(T0, T0 + 29 * MS))
    assert result.value_ns.tolist() == [2 * 56 * 8 * 100, 56 * 8 * 100]
    assert (result.reference.tolist(), result.number.tolist()) == ([1, 3], [2, 3])
    frame = measured(capture, {"throughput": {"of": "answers", "layer": "frame"}}, window=(T0, T0 + 100 * MS))
    assert frame.value_ns.tolist() == [4 * 98 * 8 * 10]


def test_only_the_first_packet_opens_a_window_without_start_sentinel() -> None:
    capture = answers_at(0, 0, 0, 10 * MS)
    result = measured(capture, {"throughput": {"of": "answers"}})
    assert result.value_ns.tolist() == [3 * 56 * 8 * 100]
    assert (result.reference.tolist(), result.number.tolist()) == ([2], [4])


@pytest.mark.parametrize(
    ("bound", "drops", "expected"),
    [
        ({"min": 44_800}, 0, "PASS"),
        ({"min": 44_801}, 0, "FAIL"),
        ({"min": 44_801}, 1, "INCONCLUSIVE"),
        ({"max": 89_600}, 0, "PASS"),
        ({"max": 89_599}, 1, "FAIL"),  # what is missing would only add
    ],
)
def test_throughput_limit(bound: dict[str, int], drops: int, expected: str) -> None:
    capture = answers_at(0, 1 * MS, 2 * MS, 15 * MS, 21 * MS)
    spec = LimitSpec("rate", RateBound.model_construct(**{"min": None, "max": None, **bound}))
    check = ({"throughput": {"of": "answers", "per": "10 ms"}}, [spec])
    result = run(capture, {"rate": check}, Evidence(drops={"isb": drops}))
    assert str(result.check("rate").verdict) == expected


# --- reordering -------------------------------------------------------------------------------------------------------


def in_sequence(*numbers: int, every_ns: int = MS) -> Capture:
    capture = Capture()
    for index, number in enumerate(numbers):
        capture.answer(index * every_ns, number, sequence=number)
    return capture


def test_n_reordering_of_rfc_4737_section_5_3() -> None:
    capture = in_sequence(1, 2, 3, 7, 8, 9, 4, 5, 6)
    for n, frames in ((None, [7, 8, 9]), (1, [7]), (3, [7]), (4, [])):
        result = measured(capture, {"reordering": {"of": "answers", **({"n": n} if n else {})}})
        assert result.number.tolist() == frames, n


def test_extent_and_late_time_go_back_to_the_earliest_overtaker() -> None:
    result = measured(in_sequence(1, 2, 3, 7, 8, 9, 4, 5, 6), {"reordering": {"of": "answers"}})
    assert result.extent is not None
    assert (result.extent.tolist(), result.value_ns.tolist()) == ([3, 4, 5], [3 * MS, 4 * MS, 5 * MS])
    assert result.reference.tolist() == [4, 4, 4]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (LimitSpec("extent", CountBound(max=5)), "PASS"),
        (LimitSpec("extent", CountBound(max=4)), "FAIL"),
        (LimitSpec("late", LateBound.model_construct(max=5 * MS)), "PASS"),
        (LimitSpec("late", LateBound.model_construct(max=4 * MS)), "FAIL"),
    ],
)
def test_limits_of_extent_and_late_time(spec: LimitSpec, expected: str) -> None:
    capture = in_sequence(1, 2, 3, 7, 8, 9, 4, 5, 6)
    assert str(run(capture, {"order": ({"reordering": {"of": "answers"}}, [spec])}).check("order").verdict) == expected


def test_limits_of_extent_and_late_time_hold_when_nothing_is_reordered() -> None:
    specs = [LimitSpec("extent", CountBound(max=0)), LimitSpec("late", LateBound.model_construct(max=0))]
    result = run(in_sequence(1, 2, 3), {"order": ({"reordering": {"of": "answers"}}, specs)}, e_ns=US)
    assert str(result.check("order").verdict) == "PASS"


@pytest.mark.parametrize(("late_ns", "expected"), [(999, "INCONCLUSIVE"), (1_000, "FAIL")])
def test_a_late_time_below_e_never_proves_reordering(late_ns: int, expected: str) -> None:
    capture = in_sequence(2, 1, every_ns=late_ns)
    checks = {
        "order": ({"reordering": {"of": "answers"}}, [count_of(0)]),
        "extent": ({"reordering": {"of": "answers"}}, [LimitSpec("extent", CountBound(max=0))]),
    }
    result = run(capture, checks, e_ns=1_000)
    assert [str(result.check(name).verdict) for name in checks] == [expected] * 2


# --- skipped samples --------------------------------------------------------------------------------------------------


def test_first_samples_can_be_left_out() -> None:
    result = measured(answers_at(0, 1 * MS, 3 * MS, 6 * MS), {"gap": {"of": "answers"}}, skip=1)
    assert result.value_ns.tolist() == [2 * MS, 3 * MS]
    assert (result.denominator, result.counts) == (2, {"left out at the start": 1})


# --- matching by key --------------------------------------------------------------------------------------------------

BY_KEY = {"response_time": {"request": "requests", "response": "answers", "match": "key"}}
KEYED: dict[str, Any] = {name: {**flow, "key": {"offset": 1, "bytes": 2}} for name, flow in FLOWS_RAW.items()}


def keyed(*packets: tuple[int, str, int]) -> Capture:
    """(time in ms, `ask` or `say`, 16-bit key) → datagrams of a protocol that is not ours."""
    capture = Capture()
    for at_ms, kind, key in packets:
        payload = b"\x01" + key.to_bytes(2, "big") + b"rest"
        (capture.to_board if kind == "ask" else capture.from_board)(at_ms * MS, payload)
    capture.arp(60 * S, 2, BOARD, JETSON)
    return capture


def test_payload_bytes_match_whatever_the_order() -> None:
    capture = keyed((0, "ask", 7), (1, "ask", 8), (3, "say", 8), (9, "say", 7), (10, "ask", 9))
    result = measured(capture, BY_KEY, flows=KEYED)
    assert result.value_ns.tolist() == [9 * MS, 2 * MS, INFINITE_NS]


def test_a_key_comes_again_after_a_wrap_and_a_retransmission_is_no_new_request() -> None:
    capture = keyed(
        (0, "ask", 65_535), (2, "say", 65_535), (3, "ask", 0), (4, "ask", 0), (6, "say", 0), (7, "say", 0),
        (2_000, "ask", 65_535), (2_005, "say", 65_535), (2_006, "say", 1),
    )  # fmt: skip
    result = measured(capture, BY_KEY, flows=KEYED)
    assert result.value_ns.tolist() == [2 * MS, 3 * MS, 5 * MS]
    assert dict(result.counts) == {"repeated requests": 1, "duplicate responses": 1, "responses without a request": 1}


def test_a_late_response_is_lost_and_counted() -> None:
    result = measured(keyed((0, "ask", 1), (1_001, "say", 1)), BY_KEY, flows=KEYED)
    assert result.value_ns.tolist() == [INFINITE_NS]
    assert dict(result.counts) == {"late responses": 1}


def test_packets_too_short_for_the_key_are_counted() -> None:
    capture = keyed((0, "ask", 1), (1, "say", 1))
    capture.to_board(5 * MS, b"\x01")
    result = measured(capture, BY_KEY, flows=KEYED)
    assert (len(result.value_ns), dict(result.counts)) == (1, {"requests without a key": 1})


def test_loss_by_key() -> None:
    metric = {"loss": {"of": "requests", "answered_by": "answers", "match": "key"}}
    result = measured(keyed((0, "ask", 1), (1, "say", 1), (2, "ask", 2)), metric, flows=KEYED)
    assert (result.least, result.denominator) == (1, 2)


LOSS_BY_KEY = {"loss": {"of": "requests", "answered_by": "answers", "match": "key"}}


def test_requests_with_one_key_that_nobody_answers_are_each_lost() -> None:
    polls = [(at, kind, 7) for n in range(100) for at, kind in ((10 * n, "ask"), (10 * n + 2, "say"))]
    silence = [(1_000 + 10 * n, "ask", 7) for n in range(900)]
    lost = measured(keyed(*polls, *silence), LOSS_BY_KEY, flows=KEYED)
    assert (lost.least, lost.most, lost.denominator) == (900, 900, 1_000)
    times = measured(keyed(*polls, *silence), BY_KEY, flows=KEYED).value_ns
    assert (len(times), np.count_nonzero(times == INFINITE_NS)) == (1_000, 900)


def test_a_repeated_request_that_is_answered_leaves_open_whether_one_was_lost() -> None:
    capture = keyed((0, "ask", 1), (500, "ask", 1), (600, "say", 1), (2_000, "ask", 2), (2_001, "say", 2))
    lost = measured(capture, LOSS_BY_KEY, flows=KEYED)
    assert (lost.least, lost.most, lost.denominator) == (0, 1, 3)
    assert measured(capture, BY_KEY, flows=KEYED).value_ns.tolist() == [600 * MS, MS]


def test_a_response_belongs_to_the_earliest_request_of_its_key_that_it_is_in_time_for() -> None:
    capture = keyed((0, "ask", 1), (800, "ask", 1), (900, "ask", 1), (1_200, "say", 1))
    result = measured(capture, BY_KEY, flows=KEYED)
    assert result.value_ns.tolist() == [INFINITE_NS, 400 * MS]
    lost = measured(capture, LOSS_BY_KEY, flows=KEYED)
    assert (lost.least, lost.most, lost.denominator) == (1, 2, 3)


def test_requests_of_one_key_that_were_open_together_prove_no_time() -> None:
    """Which answer is whose is open where a key is used anew too early; that both were answered is not."""
    twice = keyed((0, "ask", 1), (5, "ask", 1), (6, "say", 1), (500, "say", 1))
    early = keyed((0, "ask", 1), (5, "ask", 1), (6, "say", 1), (7, "ask", 1), (500, "say", 1), (501, "say", 1))
    for capture in (twice, early):
        assert "open together with another" in measured(capture, BY_KEY, flows=KEYED).unprovable
    lost = measured(twice, LOSS_BY_KEY, flows=KEYED)
    assert (lost.least, lost.most, lost.denominator) == (0, 0, 2)
    later = keyed((0, "ask", 1), (5, "ask", 1), (6, "say", 1), (2_000, "ask", 1), (2_001, "say", 1))
    assert measured(later, BY_KEY, flows=KEYED).unprovable == ""


def test_no_requests_have_no_keys() -> None:
    result = measured(keyed((0, "say", 1)), BY_KEY, flows=KEYED)
    assert (len(result.value_ns), result.unprovable) == (0, "")


@pytest.mark.parametrize("match", ["order", "key"])
def test_a_packet_of_both_flows_does_not_answer_itself(match: str) -> None:
    """NTP: both ends use one port. Ten were asked, two never answered."""
    capture = Capture()
    for n in range(10):
        capture.udp(n * S, JETSON, BOARD, 123, 123, bytes([n]))
        if n % 5:
            capture.udp(n * S + 30 * MS, BOARD, JETSON, 123, 123, bytes([n]))
    capture.arp(60 * S, 2, BOARD, JETSON)
    key = {"key": {"bytes": 1}}
    flows = {"requests": {"udp.dstport": 123, **key}, "answers": {"udp.srcport": 123, **key}}
    checks: dict[str, Any] = {
        "time": ({"response_time": {"request": "requests", "response": "answers", "match": match}}, [each(20 * MS)]),
        "lost": ({"loss": {"of": "requests", "answered_by": "answers", "match": match}}, [count_of(0)]),
    }
    result = run(capture, checks, flows=flows)
    assert [str(result.check(name).verdict) for name in checks] == ["INCONCLUSIVE"] * 2
    assert "18 packets are in both `requests` and `answers`" in result.findings[0].sentence
    apart = {"requests": {"from": "jetson", **flows["requests"]}, "answers": {"from": "board", **flows["answers"]}}
    assert [str(run(capture, checks, flows=apart).check(name).verdict) for name in checks] == ["FAIL"] * 2


def test_fields_and_filters_that_wireshark_gave() -> None:
    capture = keyed((0, "ask", 1), (1, "ask", 2), (2, "say", 1), (3, "say", 2))
    flows = {name: {**flow, "key": {"field": "x.id"}, "filter": "x"} for name, flow in FLOWS_RAW.items()}
    dissected = Dissected(
        {"x": np.array([True, False, True, True, False])},
        {"x.id": np.array([(0, 4), (1, 5), (2, 4), (3, 4)], np.int64)},
    )
    result = measured(capture, BY_KEY, flows=flows, dissected=dissected)
    assert result.value_ns.tolist() == [2 * MS]
    assert dict(result.counts) == {"duplicate responses": 1}


def test_flows_without_a_key_cannot_be_matched_by_it() -> None:
    with pytest.raises(PlanError, match="no key"):
        measured(keyed((0, "ask", 1)), BY_KEY, flows=FLOWS_V1)
