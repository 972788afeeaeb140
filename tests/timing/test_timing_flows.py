"""Selection of flows, the measured window, and sequence spaces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_captures import ADDRESSES, BOARD, BOOT, FLOWS, JETSON, MS, T0, Capture, healthy

from rig.plan.model import Flow
from rig.protocol import token_v2
from rig.protocol.token_v2 import ANSWER, Header
from rig.timing.flows import Selection, Stream
from rig.timing.table import PROTO_UDP, FlowKey
from rig.timing.tokens import Tokens


def flow(**keys) -> Flow:
    return Flow.model_validate({name.replace("_", "."): value for name, value in keys.items()})


def select(capture: Capture, name: str = "answers"):
    return Selection(capture.table(), ADDRESSES).packets(name, Flow.model_validate(FLOWS[name]))


def test_selector_takes_names_addresses_and_ports() -> None:
    capture = Capture()
    capture.udp(0, JETSON, BOARD, 1, 2, b"a")
    capture.udp(1, BOARD, JETSON, 2, 1, b"b")
    capture.udp(2, "10.77.0.99", BOARD, 1, 2, b"c")
    capture.arp(3, 1, JETSON, BOARD)
    selection = Selection(capture.table(), ADDRESSES)
    assert selection.rows(Flow.model_validate({"from": "jetson"})).tolist() == [0]
    assert selection.rows(Flow.model_validate({"from": JETSON, "to": "board"})).tolist() == [0]
    assert selection.rows(flow(udp_dstport=2)).tolist() == [0, 2]
    assert selection.rows(flow(tcp_dstport=2)).tolist() == []
    assert selection.rows(flow(to="board")).tolist() == [0, 2]


def test_sentinels_belong_to_no_flow_and_give_the_window() -> None:
    capture = healthy(3)
    selection = Selection(capture.table(), ADDRESSES)
    assert len(selection.packets("requests", Flow.model_validate(FLOWS["requests"]))) == 3
    assert len(selection.packets("all", Flow.model_validate({"udp.srcport": 5005}))) == 3
    window = selection.window
    assert window.start_ns == T0
    assert (window.start_seen, window.start_answered, window.end_seen, window.end_answered) == (True,) * 4


def test_window_excludes_warm_up_and_what_follows_the_end() -> None:
    capture = Capture()
    capture.answer(0, 1)
    capture.sentinel(10, 1, answered_at=20)
    capture.answer(30, 2)
    capture.sentinel(40, 2, answered_at=50)
    capture.answer(60, 3)
    packets = select(capture)
    assert packets.measured.tolist() == [False, True, False]


def test_repeated_start_sentinel_moves_the_window_but_its_copy_does_not() -> None:
    capture = Capture()
    capture.sentinel(0, 1, sequence=4)
    capture.sentinel(50 * MS, 1, sequence=5, answered_at=51 * MS)
    capture.to_board(60 * MS, token_v2.sentinel(1, sequence=5, boot_id=0x1E7))
    window = Selection(capture.table(), ADDRESSES).window
    assert window.start_ns == T0 + 50 * MS


def test_of_two_runs_in_one_file_the_last_is_measured() -> None:
    capture = Capture()
    for begin in (0, 100):
        capture.sentinel(begin, 1, answered_at=begin + 1)
        capture.answer(begin + 5, 1)
        capture.sentinel(begin + 10, 2, answered_at=begin + 11)
    packets = select(capture)
    assert packets.measured.tolist() == [False, True]


def test_board_counters_between_sentinels_are_differences() -> None:
    capture = Capture()
    capture.sentinel(0, 1, answered_at=1, counters=(20, 1, 20, 0, 0, 0, 1, 5))
    capture.sentinel(10, 2, answered_at=11, counters=(320, 1, 319, 0, 0, 0, 2, 9))
    counters = Selection(capture.table(), ADDRESSES).window.board_counters
    assert (counters["rx_requests"], counters["tx_answers"], counters["rx_bad"]) == (300, 299, 0)


def test_board_counters_of_two_boots_are_not_compared() -> None:
    capture = Capture()
    capture.sentinel(0, 1, answered_at=1, counters=(20, 0, 20, 0, 0, 0, 1, 5))
    capture.sentinel(10, 2, answered_at=11, counters=(3, 0, 3, 0, 0, 0, 1, 5), boot=BOOT + 1)
    assert Selection(capture.table(), ADDRESSES).window.board_counters == {}


def test_foreign_and_damaged_datagrams_and_error_replies_are_counted_not_dropped() -> None:
    capture = Capture()
    capture.answer(0, 1)
    capture.from_board(1, b"hello")
    damaged = bytearray(token_v2.encode(token_v2.Header(type=2, request_id=2), bytes(4)))
    damaged[5] ^= 1
    capture.from_board(2, bytes(damaged))
    capture.error(3, 4)
    packets = select(capture)
    assert len(packets) == 1
    assert packets.set_aside == {"not a token datagram": 1, "header checksum is wrong": 1, "error reply": 1}


def tokens_of(sequence: list[int], boot: list[int], bits: int = 32) -> Tokens:
    count = len(sequence)
    zeros = {name: np.zeros(count, np.uint64) for name in ("t_rx_ns", "t_ready_ns", "t_send_ns")}
    return Tokens(
        row=np.arange(count),
        type=np.full(count, 2, np.uint8),
        first=np.ones(count, bool),
        last=np.ones(count, bool),
        request_id=np.zeros(count, np.uint32),
        sequence=np.array(sequence, np.uint32),
        boot_id=np.array(boot, np.uint32),
        prev_queued_ns=np.zeros(count, np.uint32),
        tokens=np.zeros(count, np.int32),
        answer_tokens=np.zeros(count, np.int32),
        content=np.zeros(count, np.uint64),
        sequence_bits=bits,
        **zeros,
    )


def stream_of(sequence: list[int], boot: list[int] | None = None, bits: int = 32) -> Stream:
    ends = np.zeros(len(sequence), np.int64)
    return Stream.of(ends, ends, tokens_of(sequence, boot or [1] * len(sequence), bits))


@pytest.mark.parametrize(("bits", "top"), [(16, 0xFFFF), (32, 0xFFFF_FFFF)])
def test_sequence_wrap_goes_on_counting_also_with_a_packet_out_of_order(bits: int, top: int) -> None:
    stream = stream_of([top - 1, 0, top, 1], bits=bits)
    assert (stream.extended - stream.extended[0]).tolist() == [0, 2, 1, 3]
    assert stream.first_copy.all()


def test_a_new_boot_is_a_new_sequence_space() -> None:
    stream = stream_of([5, 6, 0, 1, 6], [1, 1, 2, 2, 1])
    assert stream.first_copy.tolist() == [True, True, True, True, False]
    assert stream.original.tolist() == [0, 1, 2, 3, 1]


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.tuples(st.integers(-40, 40), st.integers(0, 2)), min_size=1, max_size=200),
    st.sampled_from([16, 32]),
)
def test_extended_numbers_differ_as_the_sent_ones_did_for_any_order_loss_and_copies(start, moves, bits) -> None:
    sent, boots, at = [], [], {0: start, 1: start // 2, 2: 7}
    for step, boot in moves:
        at[boot] += step
        sent.append(at[boot])
        boots.append(boot)
    stream = stream_of([number % 2**bits for number in sent], boots, bits)
    for boot in set(boots):
        mine = [i for i, owner in enumerate(boots) if owner == boot]
        assert [int(stream.extended[i] - stream.extended[mine[0]]) for i in mine] == [
            sent[i] - sent[mine[0]] for i in mine
        ]
        seen: dict[int, int] = {}
        for i in mine:
            assert bool(stream.first_copy[i]) == (sent[i] not in seen)
            assert int(stream.original[i]) == seen.setdefault(sent[i], i)


VLANS: tuple[tuple[int, ...], ...] = ((5, 6), (5,), (6,), ())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.sampled_from(VLANS), min_size=1, max_size=3, unique=True)),
        min_size=1,
        max_size=12,
    )
)
def test_flow_keys_with_common_datagrams_are_one_sender_named_by_its_fewest_tags(
    sent: list[tuple[int, list[tuple[int, ...]]]],
) -> None:
    capture = Capture()
    joined: list[set[FlowKey]] = []
    for number, (client, shown) in enumerate(sent):
        keys = {FlowKey(vlans, BOARD, JETSON, PROTO_UDP, 5005, 40000 + client) for vlans in shown}
        payload = token_v2.encode(
            Header(type=ANSWER, request_id=1, sequence=number, boot_id=BOOT), token_v2.encode_tokens([7])
        )
        for index, vlans in enumerate(shown):
            key = FlowKey(vlans, BOARD, JETSON, PROTO_UDP, 5005, 40000 + client)
            capture.frames.append((T0 + number * MS + index, PROTO_UDP, key, payload, len(payload)))
        apart = [group for group in joined if not group & keys]
        joined = [*apart, keys.union(*(group for group in joined if group & keys))]
    packets = select(capture)
    flows = packets.table.flows
    for row, sender in zip(packets.row.tolist(), packets.sender.tolist(), strict=True):
        own = flows[packets.table.flow[row]]
        (group,) = (group for group in joined if own in group)
        fewest = min(len(key.vlans) for key in group)
        assert flows[sender] == min((key for key in group if len(key.vlans) == fewest), key=flows.index)
