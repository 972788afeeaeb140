"""Conversations: an answer to one client is none to another, and answers that come from elsewhere are still found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_timing_metrics import measured
from timing_captures import BOARD, JETSON, MS, Capture, S

from rig.protocol import token_v2
from rig.protocol.token_v2 import ANSWER, FLAG_FIRST, FLAG_LAST, REQUEST, Header
from rig.timing.metrics.conversations import conversations
from rig.timing.metrics.measurement import INFINITE_NS, NO_FLOOR_NS
from rig.timing.metrics.owners import owners
from rig.timing.metrics.queueing import pair
from rig.timing.table import PROTO_UDP, FlowKey

LOST = INFINITE_NS
KEYED: dict[str, Any] = {
    "requests": {"udp.dstport": 5005, "key": {"offset": 0, "bytes": 2}},
    "answers": {"udp.srcport": 5005, "key": {"offset": 0, "bytes": 2}},
}
TOKENS = {
    "requests": {"udp.dstport": 5005, "protocol": "token-v2"},
    "answers": {"udp.srcport": 5005, "protocol": "token-v2"},
}
OTHER = "10.77.0.21"


def response_time(how: str) -> dict[str, Any]:
    return {"response_time": {"request": "requests", "response": "answers", "match": how}}


def loss(how: str) -> dict[str, Any]:
    return {"loss": {"of": "requests", "answered_by": "answers", "match": how}}


def two_clients(*, tokens: bool = False) -> Capture:
    """Jetson (answered after 2 ms) and another client (never answered) ask with the same ids, 1 ms apart."""
    capture = Capture()
    for i in range(5):
        for client, at_ms in ((JETSON, 20 * i), (OTHER, 20 * i + 1)):
            ask, say = i.to_bytes(2, "big"), i.to_bytes(2, "big")
            if tokens:
                ask = token_v2.encode(Header(type=REQUEST, request_id=i, sequence=i), token_v2.encode_request(1, [7]))
                header = Header(type=ANSWER, flags=FLAG_FIRST | FLAG_LAST, request_id=i, sequence=i)
                say = token_v2.encode(header, token_v2.encode_tokens([7]))
            capture.udp(at_ms * MS, client, BOARD, 40000, 5005, ask)
            if client == JETSON:
                capture.udp((at_ms + 2) * MS, BOARD, client, 5005, 40000, say)
    capture.arp(60 * S, 2, BOARD, JETSON)
    return capture


@pytest.mark.parametrize(("how", "flows"), [("key", KEYED), ("order", KEYED), ("request_id", TOKENS)])
def test_a_client_that_is_never_answered_is_lost_beside_one_that_is(how: str, flows: dict[str, Any]) -> None:
    capture = two_clients(tokens=how == "request_id")
    time = measured(capture, response_time(how), flows=flows)
    assert time.value_ns.tolist() == [2 * MS, LOST] * 5
    assert time.floor_ns.tolist() == [2 * MS, LOST] * 5
    lost = measured(capture, loss(how), flows=flows)
    assert (lost.least, lost.most, lost.denominator) == (5, 5, 10)
    assert lost.number.tolist() == [3, 6, 9, 12, 15]


@pytest.mark.parametrize("how", ["key", "order"])
def test_a_client_served_out_of_turn_has_its_own_delay(how: str) -> None:
    capture = Capture()
    for client, at_ms, answer_ms in ((JETSON, 0, 9), (OTHER, 7, 8)):
        capture.udp(at_ms * MS, client, BOARD, 40000, 5005, b"\0\1")
        capture.udp(answer_ms * MS, BOARD, client, 5005, 40000, b"\0\1")
    assert measured(capture, response_time(how), flows=KEYED).value_ns.tolist() == [9 * MS, 1 * MS]


def test_by_order_a_loss_in_one_conversation_leaves_the_others_exact() -> None:
    capture = Capture()
    for i in range(3):
        capture.udp(10 * i * MS, JETSON, BOARD, 40000, 5005, b"")
        capture.udp((10 * i + 1) * MS, OTHER, BOARD, 40000, 5005, b"")
        capture.udp((10 * i + 3) * MS, BOARD, OTHER, 5005, 40000, b"")
        if i:
            capture.udp((10 * i + 4) * MS, BOARD, JETSON, 5005, 40000, b"")
    capture.arp(60 * S, 2, BOARD, JETSON)
    result = measured(capture, response_time("order"), flows=KEYED, timeout_ns=100 * MS)
    assert result.value_ns.tolist() == [14 * MS, 2 * MS, 14 * MS, 2 * MS, LOST, 2 * MS]
    assert result.floor_ns.tolist() == [NO_FLOOR_NS, 2 * MS, NO_FLOOR_NS, 2 * MS, LOST, 2 * MS]


def test_by_order_a_stray_in_one_conversation_leaves_the_others_provable() -> None:
    capture = Capture()
    for client, times in ((JETSON, (1, 2)), (OTHER, (3, 4, 5))):
        for at_ms in (0, 0):
            capture.udp(at_ms * MS, client, BOARD, 40000, 5005, b"")
        for at_ms in times:
            capture.udp(at_ms * MS, BOARD, client, 5005, 40000, b"")
    result = measured(capture, response_time("order"), flows=KEYED)
    assert result.floor_ns.tolist() == [1 * MS, 2 * MS, NO_FLOOR_NS, NO_FLOOR_NS]
    assert "stray" in result.unprovable
    assert result.counts == {"responses without a request": 1}


# --- what a conversation is -------------------------------------------------------------------------------------------


def key(src: str, sport: int, dst: str, dport: int, *vlans: int) -> FlowKey:
    return FlowKey(vlans, src, dst, PROTO_UDP, sport, dport)


def partners(asked: list[FlowKey], answered: list[FlowKey], *others: FlowKey) -> list[list[int]]:
    """Per request which of the responses are of its conversation; others: what else the capture shows."""
    index = np.arange(len(asked) + len(answered), dtype=np.int32)
    requests, responses = conversations([*asked, *answered, *others], index[: len(asked)], index[len(asked) :])
    return [np.flatnonzero(responses == number).tolist() for number in requests]


@pytest.mark.parametrize(
    ("asked", "answered", "expected"),
    [
        pytest.param(
            [key("j", 1, "b", 9), key("j", 2, "b", 9)],
            [key("b", 9, "j", 2), key("b", 9, "j", 1)],
            [[1], [0]],
            id="a port of its own for each request",
        ),
        pytest.param(
            [key("j", 1, "b", 9), key("j", 2, "b", 9)],
            [key("b", 9, "j", 1)],
            [[0], []],
            id="one of two ports is never answered",
        ),
        pytest.param(
            [key("j", 1, "b", 9, 10), key("j", 1, "b", 9, 20)],
            [key("b", 9, "j", 1, 10)],
            [[0], []],
            id="the same addresses on two VLANs",
        ),
        pytest.param(
            [key("j", 1, "b", 9)], [key("b", 9, "j", 1, 10)], [[0]], id="a mirror port tags one direction only"
        ),
        pytest.param(
            [key("j", 1, "b", 9), key("j", 1, "c", 9)],
            [key("b", 9, "j", 1, 10)],
            [[0], []],
            id="one of two boards answers, and the mirror port tags one direction only",
        ),
        pytest.param(
            [key("j", 1, "b", 9), key("k", 1, "b", 9)],
            [key("b", 9, "j", 7), key("b", 9, "k", 7)],
            [[0], [1]],
            id="answers go to a fixed port",
        ),
        pytest.param(
            [key("j", 1, "b", 69), key("k", 1, "b", 69)],
            [key("b", 50, "j", 1), key("b", 51, "k", 1)],
            [[0], [1]],
            id="answers leave from another port",
        ),
        pytest.param(
            [key("j", 1, "239.0.0.1", 9), key("k", 1, "239.0.0.1", 9)],
            [key("b", 9, "j", 1), key("c", 9, "j", 1)],
            [[0, 1], []],
            id="two ask a group, and one is answered",
        ),
        pytest.param([key("s", 1, "g", 9)], [key("g", 5, "a", 6)], [[0]], id="a gateway sends on to somebody else"),
        pytest.param([key("j", 1, "b", 9)], [key("j", 1, "b", 9)], [[0]], id="one direction, seen at two places"),
        pytest.param(
            [key("j", 1, "b", 9), key("k", 1, "b", 9)],
            [key("b", 9, "j", 1), key("x", 5, "y", 6)],
            [[0], []],
            id="a stranger answers nobody",
        ),
    ],
)
def test_a_conversation_is_as_narrow_as_both_directions_show(
    asked: list[FlowKey], answered: list[FlowKey], expected: list[list[int]]
) -> None:
    assert partners(asked, answered) == expected


def test_what_was_sent_to_another_who_asks_answers_nobody_else() -> None:
    asked, answered = [key("j", 1, "b", 9)], [key("b", 9, "k", 1)]
    assert partners(asked, answered, key("k", 1, "b", 9)) == [[]]
    assert partners(asked, answered, key("k", 2, "b", 9)) == [[0]]


# --- ids and queues ---------------------------------------------------------------------------------------------------


def test_ids_that_wrap_at_32_bits_find_their_requests() -> None:
    ids = np.array([2**32 - 2, 2**32 - 1, 0, 1], np.uint32)
    here, time = np.zeros(4, np.int64), np.arange(4, dtype=np.int64) * MS
    assert owners(ids, time, ids, time + 1, here, here).tolist() == [0, 1, 2, 3]
    strange = np.array([2**32 - 3, 2, 1, 2**32 - 1], np.uint32)
    assert owners(ids, time, strange, time + 1, here, here).tolist() == [-1, -1, 3, 1]
    capture = Capture()
    for i, number in enumerate(ids.tolist()):
        capture.request(i * MS, number)
        capture.answer(i * MS + 37, number)
    assert measured(capture, response_time("request_id")).value_ns.tolist() == [37] * 4


def test_an_id_belongs_to_its_conversation() -> None:
    time = np.arange(2, dtype=np.int64)
    here_and_there = np.array([0, 1])
    same, following = np.array([7, 7], np.uint32), np.array([7, 8], np.uint32)
    assert owners(same, time, same, time + 9, here_and_there, here_and_there[::-1]).tolist() == [1, 0]
    assert owners(same, time, same, time + 9, here_and_there, np.array([0, 2])).tolist() == [0, -1]
    assert owners(following, time, following, time + 9, here_and_there, here_and_there).tolist() == [0, 1]
    assert owners(following, time, following, time + 9, here_and_there, here_and_there[::-1]).tolist() == [-1, -1]


def by_definition(asked_ns: list[int], answered_ns: list[int], timeout_ns: int) -> list[int | None]:
    """Response per request, looked for anew for each response: the oldest request still open owns it."""
    found: list[int | None] = [None] * len(asked_ns)
    for index, at_ns in enumerate(answered_ns):
        open_now = [i for i, asked in enumerate(asked_ns) if found[i] is None and asked <= at_ns <= asked + timeout_ns]
        # Answered ones behind it closed all before them.
        open_now = [i for i in open_now if all(later is None for later in found[i:])]
        if open_now:
            found[open_now[0]] = index
    return found


packets_of = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=25).map(sorted)


@settings(max_examples=150, deadline=None)
@given(packets_of, packets_of, st.integers(1, 15))
def test_queues_are_those_of_each_conversation_alone(
    asked: list[tuple[int, int]], answered: list[tuple[int, int]], timeout_ns: int
) -> None:
    asked_ns, asked_in = (np.array([one[i] for one in asked], np.int64) for i in (0, 1))
    answered_ns, answered_in = (np.array([one[i] for one in answered], np.int64) for i in (0, 1))
    pairs = pair(asked_ns, answered_ns, asked_in, answered_in, timeout_ns)
    for number in range(4):
        mine, theirs = np.flatnonzero(asked_in == number), np.flatnonzero(answered_in == number)
        expected = by_definition(asked_ns[mine].tolist(), answered_ns[theirs].tolist(), timeout_ns)
        assert pairs.response[mine].tolist() == [-1 if i is None else theirs[i] for i in expected]
        taken = [i for i in expected if i is not None]
        for index, response in enumerate(theirs.tolist()):
            early = len(mine) > 0 and answered_ns[response] < asked_ns[mine[0]]
            assert pairs.stray[response] == (index not in taken and not early)
            if index in taken:
                assert pairs.owner[response] == mine[expected.index(index)]
