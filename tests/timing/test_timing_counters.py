"""Counters and sequence numbers of the senders: what they prove of a flow, and what copies, other clients, narrow
selectors and answers after the end sentinel must not change."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from timing_captures import (
    ADDRESSES,
    BOARD,
    BOOT,
    COUNTED_LOSS,
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
    T0,
    US,
    Capture,
    S,
    count_of,
    each,
    plan_of,
    ratio,
    run,
)

from rig.protocol import token_v1, token_v2
from rig.protocol.token_v2 import ACKNOWLEDGE, ANSWER, FLAG_FIRST, FLAG_LAST, REQUEST, SENTINEL, Header
from rig.timing.evidence import Evidence, Ledger
from rig.timing.flows import Dissected
from rig.timing.judge import judge
from rig.timing.table import PROTO_UDP, FlowKey, FrameTable
from rig.timing.verdict import CheckResult, PointResult

COUNT = {"count": (COUNTED_LOSS, [count_of(0)])}
UNANSWERED = {"loss": (LOSS, [count_of(0)])}
OTHER = "10.77.0.21"


def verdict(result: PointResult, name: str = "count") -> str:
    return str(result.check(name).verdict)


def only(result: PointResult, name: str = "count") -> CheckResult:
    return result.check(name)


class Segment:
    """A board with one sequence counter for all its clients, as the firmware has it.

    to_board, from_board: the VLAN tags of each appearance of a frame of that direction, 10 us apart.
    """

    def __init__(self, to_board: tuple[tuple[int, ...], ...] = ((),), from_board: tuple[tuple[int, ...], ...] = ((),)):
        self.capture = Capture()
        self.to_board, self.from_board = to_board, from_board
        self.number = 100
        self.sent = 0
        self.received = 0
        self.asked: dict[tuple[str, int], int] = {}

    def frame(self, at_ns: int, src: str, sport: int, dst: str, dport: int, payload: bytes) -> None:
        for index, vlans in enumerate(self.to_board if dst == BOARD else self.from_board):
            key = FlowKey(vlans, src, dst, PROTO_UDP, sport, dport)
            self.capture.frames.append((T0 + at_ns + index * 10 * US, PROTO_UDP, key, payload, len(payload)))

    def ask(self, at_ns: int, request_id: int, client: tuple[str, int] = (JETSON, 40000), shown: bool = True) -> None:
        self.received += 1
        number = self.asked[client] = self.asked.get(client, 0) + 1
        boot = RUNNER + client[1]
        header = Header(type=REQUEST, request_id=request_id, sequence=number, boot_id=boot)
        if shown:
            self.frame(at_ns, *client, BOARD, 5005, token_v2.encode(header, token_v2.encode_request(1, [7])))

    def say(self, at_ns: int, request_id: int, client: tuple[str, int] = (JETSON, 40000), shown: bool = True) -> None:
        flags = FLAG_FIRST | FLAG_LAST
        header = Header(type=ANSWER, flags=flags, request_id=request_id, sequence=self.number, boot_id=BOOT)
        self.number += 1
        self.sent += 1
        if shown:
            self.frame(at_ns, BOARD, 5005, *client, token_v2.encode(header, token_v2.encode_tokens([7])))

    def sentinel(self, at_ns: int, kind: int, counters: dict[str, int] | None = None) -> None:
        """Answered after 1 ms, with the counters as they are unless told otherwise."""
        client = (JETSON, 40000)
        self.asked[client] = self.asked.get(client, 0) + 1
        asking = token_v2.sentinel(kind, sequence=self.asked[client], boot_id=RUNNER + client[1])
        self.frame(at_ns, *client, BOARD, 5005, asking)
        values = {"rx_requests": self.received, "tx_answers": self.sent, **(counters or {})}
        words = [values.get(name, 0) for name in token_v2.SENTINEL_COUNTERS]
        flags = {1: FLAG_FIRST, 2: FLAG_LAST}[kind]
        header = Header(type=SENTINEL, flags=flags, request_id=0xFFFF_FFFF - kind, sequence=self.number, boot_id=BOOT)
        self.number += 1
        payload = token_v2.encode(header, struct.pack("<8I", *words))
        self.frame(at_ns + MS, BOARD, 5005, *client, payload)

    def end(self, at_ns: int = 60 * S) -> Capture:
        self.capture.arp(at_ns, 2, BOARD, JETSON)
        return self.capture


def between_sentinels(*, lost: int = 0, late: int = 0, count: int = 10, **shown: Any) -> Capture:
    """`count` requests; answers from the second on are lost, and the last ones sent after the end sentinel's answer."""
    segment = Segment(**shown)
    segment.sentinel(0, 1)
    for i in range(count):
        segment.ask((10 + 10 * i) * MS, i + 1)
        if i < count - late:
            segment.say((12 + 10 * i) * MS, i + 1, shown=not 1 <= i <= lost)
    segment.sentinel(5 * S, 2)
    for i in range(count - late, count):
        segment.say(6 * S + i * MS, i + 1)
    return segment.end()


# --- the board's counter ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lost", "late", "expected"),
    [(0, 0, "PASS"), (0, 2, "PASS"), (1, 0, "FAIL"), (1, 1, "FAIL"), (2, 3, "FAIL")],
)
def test_an_answer_after_the_end_sentinels_hides_no_lost_one(lost: int, late: int, expected: str) -> None:
    result = run(between_sentinels(lost=lost, late=late), COUNT, requests=10)
    assert verdict(result) == expected
    assert only(result).n == 10 - late
    assert only(result).counts.get("lost", 0) == lost


def test_an_answer_sent_before_the_end_sentinel_and_captured_behind_it_is_not_lost() -> None:
    segment = Segment()
    segment.sentinel(0, 1)
    for i in range(4):
        segment.say((10 + i) * MS, i + 1)
    segment.say(2 * S, 5)  # overtaken by the sentinel's answer
    segment.sentinel(1 * S, 2)
    assert verdict(run(segment.end(), COUNT)) == "PASS"


def test_a_lost_answer_is_an_infinite_one_way_delay_beside_one_after_the_end_sentinels() -> None:
    capture = Capture()
    capture.sentinel(0, 1, answered_at=MS)
    for i in range(11):
        at_ns = (6 * S if i == 10 else 0) + (10 + 10 * i) * MS
        capture.request(at_ns, i + 1)
        if i == 4:
            capture.sequence["board"] += 1
            continue
        if i == 10:
            capture.sentinel(5 * S, 2, answered_at=5 * S + MS, counters=(10, 0, 10, 0, 0, 0, 1, 0))
        capture.answer(at_ns + 3 * MS, i + 1, t_rx_ns=S + at_ns + MS, t_send_ns=S + at_ns + 2 * MS)
    capture.arp(60 * S, 2, BOARD, JETSON)
    delay = {"one_way_delay": {"of": "answers", "opposite": "requests"}}
    result = run(capture, {"count": (delay, [each(S)])})
    assert (verdict(result), only(result).counts) == ("FAIL", {"lost": 1})


def test_a_counter_that_the_sequence_numbers_do_not_bear_out_proves_nothing() -> None:
    segment = Segment()
    segment.sentinel(0, 1)
    for i in range(9):
        segment.say((10 + i) * MS, i + 1)
    segment.sentinel(1 * S, 2, {"tx_answers": 10})  # one more than it numbered, as of an answer in token-v1
    result = run(segment.end(), COUNT)
    assert verdict(result) == "INCONCLUSIVE"
    assert "do not reconcile" in only(result).notes[0]


@pytest.mark.parametrize(
    ("lost", "late", "expected"),
    [(0, 0, "PASS"), (0, 2, "PASS"), (1, 0, "FAIL"), (1, 1, "INCONCLUSIVE"), (2, 1, "FAIL")],
)
def test_token_v1_numbers_no_answers_so_a_late_one_leaves_open_when_it_was_sent(
    lost: int, late: int, expected: str
) -> None:
    capture = Capture()
    capture.sentinel(0, 1, answered_at=MS)
    for i in range(10):
        capture.v1_request((10 + 10 * i) * MS, i + 1)
        if lost <= i < 10 - late:
            capture.v1_answer((12 + 10 * i) * MS, i + 1)
    capture.sentinel(5 * S, 2, answered_at=5 * S + MS, counters=(10, 0, 10 - late, 0, 0, 0, 1, 0))
    for i in range(late):
        capture.v1_answer(6 * S + i * MS, 11 - late + i)
    capture.arp(60 * S, 2, BOARD, JETSON)
    result = run(capture, COUNT, flows=FLOWS_V1, protocol="token-v1", requests=10)
    assert verdict(result) == expected


@pytest.mark.parametrize(("lost", "expected"), [((), "PASS"), ((2,), "FAIL"), ((7,), "FAIL")])
def test_acknowledgements_and_answers_are_counted_together(lost: tuple[int, ...], expected: str) -> None:
    capture = Capture()
    capture.sentinel(0, 1, answered_at=MS)
    for i in range(10):
        capture.request((10 + 10 * i) * MS, i + 1)
        if i in lost:
            capture.sequence["board"] += 1
        else:
            capture.answer((12 + 10 * i) * MS, i + 1, kind=ACKNOWLEDGE if i < 5 else ANSWER)
    capture.sentinel(5 * S, 2, answered_at=5 * S + MS, counters=(10, 0, 5, 5, 0, 0, 1, 0))
    result = run(capture, COUNT, requests=10)
    assert (verdict(result), only(result).n) == (expected, 10)


# --- flows that the counter does not count ----------------------------------------------------------------------------

OTHER_SERVICE: dict[str, dict[str, Any]] = {
    "raw": {"from": "board", "to": "jetson", "udp.srcport": 502},
    "tokens of another boot": {"from": "board", "to": "jetson", "udp.srcport": 502, "protocol": "token-v2"},
    "both services": {"from": "board", "to": "jetson"},
    "the Jetson's": {"from": "jetson", "to": "board", "udp.dstport": 502},
}


@pytest.mark.parametrize("flow", OTHER_SERVICE)
@pytest.mark.parametrize("lost", [0, 2])
def test_a_counter_that_is_complete_proves_nothing_of_packets_that_it_does_not_count(flow: str, lost: int) -> None:
    segment = Segment()
    segment.sentinel(0, 1)
    for i in range(10):
        at_ns = (10 + 10 * i) * MS
        segment.ask(at_ns, i + 1)
        segment.say(at_ns + MS, i + 1)
        header = Header(type=ANSWER, flags=FLAG_FIRST | FLAG_LAST, request_id=i, sequence=i, boot_id=BOOT + 1)
        if i >= lost:
            segment.frame(at_ns + 2 * MS, JETSON, 40500, BOARD, 502, b"read")
            segment.frame(at_ns + 3 * MS, BOARD, 502, JETSON, 40500, token_v2.encode(header, bytes(4)))
    segment.sentinel(5 * S, 2)
    evidence = Evidence(ledger=Ledger(requests_sent=10))
    flows = {**FLOWS, "other": OTHER_SERVICE[flow]}
    result = run(segment.end(), {"count": ({"loss": {"of": "other"}}, [count_of(0)])}, evidence, flows=flows)
    assert verdict(result) == "INCONCLUSIVE"
    assert "does not count all that is in the flow" in only(result).notes[0]


# --- flows that hold only some of it ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("lost", "expected"), [(0, "PASS"), (1, "INCONCLUSIVE")])
def test_a_filtered_flow_is_not_charged_with_what_its_filter_left_out(lost: int, expected: str) -> None:
    table = between_sentinels(lost=lost).table()
    flows = {**FLOWS, "answers": {**FLOWS["answers"], "filter": "x"}}
    plan = plan_of({"count": COUNTED_LOSS}, flows=flows)
    passes = np.arange(len(table)) % 3 != 0
    result = judge(
        table, plan, {"count": [count_of(0)]}, Evidence(), ADDRESSES, 0, "emulated", dissected=Dissected({"x": passes})
    )
    assert verdict(result) == expected
    assert only(result).counts.get("lost", 0) == 0


def two_clients(*, lost: int | None = None, sentinels: bool) -> Capture:
    segment = Segment()
    if sentinels:
        segment.sentinel(0, 1)
    for i in range(20):
        client = ((JETSON, 40000), (OTHER, 41000))[i % 2]
        segment.ask((10 + 10 * i) * MS, i // 2 + 1, client)
        segment.say((11 + 10 * i) * MS, i // 2 + 1, client, shown=i != lost)
    if sentinels:
        segment.sentinel(5 * S, 2)
    return segment.end()


TO_ALL = {**FLOWS, "answers": {"from": "board", "udp.srcport": 5005, "protocol": "token-v2"}}


@pytest.mark.parametrize(
    ("flows", "lost", "expected"),
    [
        (TO_ALL, None, "PASS"),
        (TO_ALL, 6, "FAIL"),
        (FLOWS, None, "PASS"),
        (FLOWS, 6, "INCONCLUSIVE"),  # the flow's own, or the other client's: the counter does not say
    ],
)
def test_one_counter_serves_all_clients_of_the_board(flows: dict[str, Any], lost: int | None, expected: str) -> None:
    result = run(two_clients(lost=lost, sentinels=True), COUNT, flows=flows)
    assert verdict(result) == expected


@pytest.mark.parametrize(
    ("flows", "lost", "expected"),
    [(TO_ALL, None, (0, 20)), (TO_ALL, 6, (1, 20)), (FLOWS, None, (0, 10)), (FLOWS, 6, (0, 9))],
)
def test_numbers_of_another_clients_answers_are_no_holes(
    flows: dict[str, Any], lost: int | None, expected: tuple[int, int]
) -> None:
    result = run(two_clients(lost=lost, sentinels=False), COUNT, flows=flows)
    assert (only(result).counts.get("lost", 0), only(result).n) == expected
    assert verdict(result) == ("FAIL" if expected[0] else "INCONCLUSIVE")


@pytest.mark.parametrize("sentinels", [True, False])
@pytest.mark.parametrize(("flows", "expected"), [(FLOWS, "INCONCLUSIVE"), (TO_ALL, "FAIL")])
def test_answers_to_another_client_that_are_all_lost_are_not_missing_from_this_ones(
    flows: dict[str, Any], expected: str, sentinels: bool
) -> None:
    segment = Segment()
    if sentinels:
        segment.sentinel(0, 1)
    for i in range(20):
        client = ((JETSON, 40000), (OTHER, 41000))[i % 2]
        segment.ask((10 + 10 * i) * MS, i // 2 + 1, client)
        segment.say((11 + 10 * i) * MS, i // 2 + 1, client, shown=i % 2 == 0)
    segment.say(300 * MS, 99)
    if sentinels:
        segment.sentinel(5 * S, 2)
    result = run(segment.end(), COUNT, flows=flows)
    assert verdict(result) == expected
    assert only(result).counts.get("lost", 0) == (10 if expected == "FAIL" else 0)


def test_answers_to_two_clients_are_one_sequence_in_gaps_and_order() -> None:
    checks = {"gap": (GAP, [each(10 * MS)]), "order": (REORDERING, [count_of(0)])}
    result = run(two_clients(sentinels=False), checks, flows=TO_ALL)
    assert [verdict(result, name) for name in checks] == ["PASS", "PASS"]
    assert result.check("gap").n == 19
    raw = run(two_clients(sentinels=False), {"gap": checks["gap"]}, flows={**FLOWS_RAW, "answers": {"from": "board"}})
    assert raw.check("gap").n == 19


def test_order_is_judged_among_packets_to_the_same_receiver() -> None:
    segment = Segment()
    for i, at_ms in enumerate((1, 3, 2, 6, 5, 4)):  # alternately to either client, so 3 and 2, 6 and 5 are no pairs
        segment.say(at_ms * MS, i, ((JETSON, 40000), (OTHER, 41000))[i % 2])
    result = run(segment.end(), {"order": (REORDERING, [count_of(0)])}, flows=TO_ALL)
    assert only(result, "order").counts == {"reordered": 1, "largest extent (packets)": 1}
    assert only(result, "order").violations[0].value_ns == 2 * MS


def test_a_hole_that_a_late_packet_or_a_sentinel_fills_is_none() -> None:
    capture = Capture()
    capture.sentinel(-10 * MS, 1)
    capture.sequence["board"] = 50
    capture.answer(0, 1)
    late = capture.sequence["board"]
    capture.sequence["board"] += 1
    capture.error(1 * MS, 9)
    capture.answer(2 * MS, 3)
    capture.sentinel(10 * MS, 2)
    capture.answer(20 * MS, 2, sequence=late)
    result = run(capture, COUNT)
    assert (only(result).counts, only(result).n) == ({"seen": 2}, 2)


def test_token_v1_has_no_holes_because_an_answer_has_the_number_of_its_request() -> None:
    capture = Capture()
    for i in (1, 2, 5, 9):
        capture.v1_answer(i * MS, i)
    result = run(capture, COUNT, flows=FLOWS_V1, protocol="token-v1")
    assert (verdict(result), only(result).counts) == ("INCONCLUSIVE", {"seen": 4})


@pytest.mark.parametrize(("share", "expected"), [("10.5", "INCONCLUSIVE"), ("10", "INCONCLUSIVE"), ("9.9", "FAIL")])
def test_without_a_counter_a_ratio_is_over_what_was_seen_and_the_holes(share: str, expected: str) -> None:
    capture = Capture()
    for number in range(100):
        if number % 10 != 5:
            capture.answer(number * MS, number, sequence=number)
    result = run(capture, {"count": (COUNTED_LOSS, [ratio(Fraction(share) / 100)])})
    assert (verdict(result), only(result).n) == (expected, 100)


# --- requests of the runner -------------------------------------------------------------------------------------------


def test_another_clients_requests_do_not_stand_in_for_those_that_were_not_seen() -> None:
    segment = Segment()
    segment.sentinel(0, 1)
    for i in range(10):
        client = (JETSON, 40000 + i % 2)
        segment.ask((10 + i) * MS, i + 1, client)
        segment.say((20 + i) * MS, i + 1, client)
    segment.sentinel(5 * S, 2)
    evidence = Evidence(ledger=Ledger(requests_sent=10))
    result = run(segment.end(), UNANSWERED, evidence, requests=10)
    assert verdict(result, "loss") == "INCONCLUSIVE"
    assert only(result, "loss").counts == {"requests not seen": 5}


def test_copies_of_requests_do_not_stand_in_for_those_that_never_left() -> None:
    capture = Capture()
    capture.sentinel(0, 1, answered_at=MS)
    for i in range(5):
        for copy in range(2):
            capture.request((10 + 10 * i) * MS + copy, i + 1, sequence=i + 1)
        capture.answer((12 + 10 * i) * MS, i + 1)
        capture.arp((2 + i) * S, 1, JETSON, BOARD)
    result = run(capture, UNANSWERED, Evidence(ledger=Ledger(requests_sent=10)), requests=10)
    assert verdict(result, "loss") == "FAIL"
    assert only(result, "loss").counts["requests that never left (ARP unanswered)"] == 5


# --- the ledger -------------------------------------------------------------------------------------------------------


def test_equal_ids_of_two_clients_do_not_hide_what_the_capture_lost() -> None:
    segment = Segment()
    segment.sentinel(0, 1)
    for i in range(20):
        client = (JETSON, 40000 + i % 2)
        segment.ask((10 + 10 * i) * MS, i // 2 + 1, client, shown=i not in (4, 5, 8, 9, 12))
        segment.say((11 + 10 * i) * MS, i // 2 + 1, client)
    segment.sentinel(5 * S, 2)
    result = run(segment.end(), UNANSWERED)
    assert verdict(result, "loss") == "INCONCLUSIVE"
    assert "received 20 requests, the capture holds 15" in result.findings[0].sentence


def test_a_copied_request_that_was_captured_twice_explains_two_answers_and_no_loss_of_another() -> None:
    segment = Segment()
    segment.sentinel(0, 1)
    segment.ask(10 * MS, 1)
    segment.ask(10 * MS + 1, 1)  # the copy of a network before the capture point, numbered or not
    segment.say(12 * MS, 1)
    segment.say(13 * MS, 1)
    segment.ask(20 * MS, 2, shown=False)
    segment.say(22 * MS, 2)
    segment.sentinel(5 * S, 2)
    result = run(segment.end(), UNANSWERED)
    assert [finding.name for finding in result.findings] == ["capture-loss"]


class WithHeaders(Capture):
    """Headers differ from frame to frame, but not between the appearances of one, within 50 us."""

    def table(self, *given: Any) -> FrameTable:
        table = super().table(*given)
        data, offsets = bytearray(), []
        for begin, length, time_ns in zip(table.payload_off, table.payload_len, table.time_ns, strict=True):
            data += f"{time_ns // (50 * US):028}".encode()
            offsets.append(len(data))
            data += table.data[int(begin) : int(begin) + int(length)]
        return replace(table, data=bytes(data), payload_off=np.array(offsets, np.uint64))


@pytest.mark.parametrize("protocol", ["token-v1", "token-v2"])
@pytest.mark.parametrize(
    ("tags", "frames_twice", "count"),
    [(((), ()), False, 20), (((), ()), True, 6), (((), (7,)), False, 6), (((7,), (), (7,), ()), False, 20)],
    ids=["twice", "known to", "with and without tag", "both"],
)
@pytest.mark.parametrize("unseen", [0, 3])
def test_a_capture_that_shows_requests_twice_lacks_no_fewer_of_them(
    tags: tuple[tuple[int, ...], ...], frames_twice: bool, count: int, unseen: int, protocol: str
) -> None:
    segment = Segment(tags, tags)
    segment.capture = WithHeaders()
    segment.sentinel(0, 1)
    for i in range(count):
        at_ns = (10 + 10 * i) * MS
        if protocol == "token-v2":
            segment.ask(at_ns, i + 1, shown=i >= unseen)
            segment.say(at_ns + MS, i + 1)
        else:
            if i >= unseen:
                segment.frame(at_ns, JETSON, 40000, BOARD, 5005, token_v1.encode(i, [4]))
            segment.frame(at_ns + MS, BOARD, 5005, JETSON, 40000, token_v1.encode(i, [1, 2, 3, 4]))
    segment.sentinel(5 * S, 2, {"rx_requests": count, "tx_answers": count})
    flows = FLOWS if protocol == "token-v2" else FLOWS_V1
    evidence = Evidence(frames_twice=frames_twice, ledger=Ledger(requests_sent=count, answers_received=count))
    checks = {"time": (RESPONSE_TIME, [each(5 * MS)])}
    result = run(segment.end(), checks, evidence, flows=flows, protocol=protocol, requests=count)
    lost = [finding.sentence for finding in result.findings if finding.name == "capture-loss"]
    assert verdict(result, "time") == ("INCONCLUSIVE" if unseen else "PASS")
    assert len(lost) == (unseen > 0)
    assert all(f"received {count} requests, the capture holds {count - unseen}" in sentence for sentence in lost)


@pytest.mark.parametrize("protocol", ["token-v1", "token-v2"])
@pytest.mark.parametrize("answered", [1, 2])
def test_requests_doubled_on_the_way_are_received_twice_whether_both_are_answered_or_not(
    answered: int, protocol: str
) -> None:
    segment = Segment(to_board=((), ()))
    segment.capture = WithHeaders()
    segment.sentinel(0, 1)
    for i in range(20):
        at_ns = (10 + 10 * i) * MS
        if protocol == "token-v2":
            segment.ask(at_ns, i + 1)
        else:
            segment.frame(at_ns, JETSON, 40000, BOARD, 5005, token_v1.encode(i, [4]))
        for again in range(answered):
            then_ns = at_ns + MS + again * 100 * US
            if protocol == "token-v2":
                segment.say(then_ns, i + 1)
            else:
                segment.frame(then_ns, BOARD, 5005, JETSON, 40000, token_v1.encode(i, [1, 2, 3, 4]))
    segment.sentinel(5 * S, 2, {"rx_requests": 40, "tx_answers": 20 * answered})
    flows = FLOWS if protocol == "token-v2" else FLOWS_V1
    evidence = Evidence(ledger=Ledger(requests_sent=20))
    result = run(segment.end(), UNANSWERED, evidence, flows=flows, protocol=protocol, requests=20)
    assert (verdict(result, "loss"), result.findings) == ("PASS", ())


@pytest.mark.parametrize("protocol", ["token-v1", "token-v2"])
@pytest.mark.parametrize("others", [0, 5])
def test_answers_to_another_client_of_the_jetson_do_not_stand_in_for_those_that_the_capture_lost(
    others: int, protocol: str
) -> None:
    segment = Segment()
    segment.sentinel(0, 1)
    for i in range(10):
        for at_ns, port in [((10 + 10 * i) * MS, 40000), ((13 + 10 * i) * MS, 41000)][: 1 + (i < others)]:
            shown = port != 40000 or i not in (2, 5, 7)
            if protocol == "token-v2":
                segment.ask(at_ns, i + 1, (JETSON, port))
                segment.say(at_ns + MS, i + 1, (JETSON, port), shown=shown)
                continue
            segment.received, segment.sent = segment.received + 1, segment.sent + 1
            segment.frame(at_ns, JETSON, port, BOARD, 5005, token_v1.encode(i, [4]))
            if shown:
                segment.frame(at_ns + MS, BOARD, 5005, JETSON, port, token_v1.encode(i, [1, 2, 3, 4]))
    segment.sentinel(5 * S, 2)
    flows = FLOWS if protocol == "token-v2" else FLOWS_V1
    evidence = Evidence(ledger=Ledger(requests_sent=10, answers_received=10))
    result = run(segment.end(), UNANSWERED, evidence, flows=flows, protocol=protocol, requests=10)
    assert verdict(result, "loss") == "INCONCLUSIVE"
    assert "received 10 answers, the capture holds 7" in result.findings[0].sentence


def stalled_board(answer_ns: int) -> Capture:
    """The last of 20 answers comes at `answer_ns` after the end sentinel, whose own answer follows 1 ms later."""
    segment = Segment()
    segment.sentinel(0, 1)
    for i in range(20):
        segment.ask((10 + 10 * i) * MS, i + 1)
        if i < 19:
            segment.say((11 + 10 * i) * MS, i + 1)
    segment.say(3 * S + answer_ns, 20)
    segment.sentinel(3 * S, 2)
    return segment.end()


@pytest.mark.parametrize("answer_ns", [-1, MS // 2, 200 * MS])
def test_an_answer_behind_the_end_sentinel_that_the_runner_got_is_no_capture_loss(answer_ns: int) -> None:
    evidence = Evidence(sentinels=True, ledger=Ledger(requests_sent=20, answers_received=20))
    result = run(stalled_board(answer_ns), UNANSWERED, evidence, requests=20)
    assert (verdict(result, "loss"), result.findings) == ("FAIL", ())


# --- copies in other VLANs --------------------------------------------------------------------------------------------

TWICE: dict[str, Any] = {"to_board": ((), (7,)), "from_board": ((), (7,))}
CROSSED: dict[str, Any] = {"to_board": ((), (7,)), "from_board": ((7,), ())}
ONE_WAY: dict[str, Any] = {"to_board": ((),), "from_board": ((7,), ())}


@pytest.mark.parametrize("shown", [TWICE, CROSSED, ONE_WAY], ids=["alike", "crossed", "one way"])
@pytest.mark.parametrize("lost", [0, 1, 5])
def test_a_copy_with_other_vlan_tags_hides_no_loss_and_is_none(shown: dict[str, Any], lost: int) -> None:
    checks = {**COUNT, **UNANSWERED, "time": (RESPONSE_TIME, [each(5 * MS)])}
    evidence = Evidence(sentinels=True, ledger=Ledger(requests_sent=10))
    result = run(between_sentinels(lost=lost, **shown), checks, evidence, requests=10)
    assert [verdict(result, name) for name in checks] == (["FAIL"] if lost else ["PASS"]) * 3
    assert [result.check(name).n for name in checks] == [10, 10, 10]
    assert only(result).counts.get("lost", 0) == only(result, "loss").counts.get("unanswered", 0) == lost


def test_a_copy_with_other_vlan_tags_proves_no_duplication_but_a_second_with_the_same_does() -> None:
    checks = {"copies": (DUPLICATES, [count_of(0)])}
    result = run(between_sentinels(**TWICE), checks)
    assert verdict(result, "copies") == "INCONCLUSIVE"
    assert only(result, "copies").counts["copies with other VLAN tags"] == 10
    result = run(between_sentinels(to_board=((),), from_board=((), (7,), (7,))), checks)
    assert verdict(result, "copies") == "FAIL"


def test_token_v1_copies_with_other_vlan_tags_are_copies() -> None:
    segment = Segment(**CROSSED)
    for i in range(3):
        segment.frame(10 * i * MS, JETSON, 40000, BOARD, 5005, token_v1.encode(i, [4]))
        segment.frame(10 * i * MS + 2 * MS, BOARD, 5005, JETSON, 40000, token_v1.encode(i, [1, 2, 3, 4]))
    checks = {"time": (RESPONSE_TIME, [each(2 * MS)]), **UNANSWERED}
    result = run(segment.end(), checks, flows=FLOWS_V1, protocol="token-v1")
    assert [(verdict(result, name), result.check(name).n) for name in checks] == [("PASS", 3), ("PASS", 3)]


def test_a_client_that_asks_two_boards_with_one_id_asks_twice() -> None:
    capture = Capture()
    for number, board in enumerate((BOARD, OTHER)):
        ask = Header(type=REQUEST, request_id=1, sequence=number, boot_id=RUNNER)
        say = Header(type=ANSWER, flags=FLAG_FIRST | FLAG_LAST, request_id=1, sequence=1, boot_id=BOOT + number)
        at_ns = 10 * number * MS
        capture.udp(at_ns, JETSON, board, 40000, 5005, token_v2.encode(ask, token_v2.encode_request(1, [7])))
        if board == BOARD:
            capture.udp(at_ns + MS, board, JETSON, 5005, 40000, token_v2.encode(say, token_v2.encode_tokens([7])))
    capture.arp(60 * S, 2, BOARD, JETSON)
    flows = {
        "requests": {"udp.dstport": 5005, "protocol": "token-v2"},
        "answers": {"udp.srcport": 5005, "protocol": "token-v2"},
    }
    result = run(capture, UNANSWERED, flows=flows)
    assert (verdict(result, "loss"), only(result, "loss").n) == ("FAIL", 2)


# --- all of it at random ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_loss_against_the_counter_is_what_was_lost_whatever_else_happens(seed: int) -> None:
    """Clients, copies, VLANs, error replies and answers before and after the sentinels, in any mixture."""
    dice = random.Random(seed)
    tags = (((),), ((), (7,)), ((7,), ()), ((), ()))
    segment = Segment(dice.choice(tags), dice.choice(tags))
    segment.number = dice.choice((0, 0xFFFF_FFF0, 77))
    for i in range(dice.randrange(3)):
        segment.say(-(20 - i) * MS, 900 + i)
    segment.sentinel(0, 1)
    lost = sent = 0
    for i in range(dice.randrange(1, 25)):
        client = dice.choice(((JETSON, 40000), (JETSON, 40001), (OTHER, 40000)))
        segment.ask((10 + 10 * i) * MS, i + 1, client)
        if dice.random() < 0.1:
            segment.number = (segment.number + 1) % 2**32  # an error reply that is lost is no lost answer
        shown = dice.random() < 0.8
        segment.say((11 + 10 * i) * MS + dice.randrange(15) * MS, i + 1, client, shown=shown)
        segment.number %= 2**32
        sent, lost = sent + 1, lost + (not shown)
    segment.sentinel(5 * S, 2)
    for i in range(dice.randrange(3)):
        segment.say(6 * S + i * MS, 950 + i)
    result = run(segment.end(), COUNT, flows=TO_ALL)
    assert (only(result).n, only(result).counts.get("lost", 0)) == (sent, lost)
    assert verdict(result) == ("FAIL" if lost else "PASS")
