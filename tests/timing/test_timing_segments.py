"""Matching over TCP: a handshake, bare acknowledgements and retransmissions are no requests."""

from __future__ import annotations

import random
import socket
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from timing_captures import ADDRESSES, BOARD, JETSON, MS, plan_of

from rig.capture.reader import read_capture
from rig.timing.flows import Dissected, Selection
from rig.timing.metrics import measure
from rig.timing.metrics.measurement import Measurement, Scene
from rig.timing.segments import repeats
from rig.timing.table import FrameTable

S = 1_000_000_000
FLOWS: dict[str, Any] = {"requests": {"tcp.dstport": 502}, "answers": {"tcp.srcport": 502}}
KEYED = {name: {**flow, "key": {"offset": 0, "bytes": 2}} for name, flow in FLOWS.items()}
START = 2**32 - 8
"""Sequence numbers wrap in mid-conversation."""


class Connection:
    """Frames of one TCP connection, made byte by byte. Times in ms."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []

    def segment(
        self,
        at_ms: float,
        to_board: bool,
        sequence: int,
        payload: bytes = b"",
        options: bytes = b"",
        *,
        syn: bool = False,
    ) -> None:
        src, dst = (JETSON, BOARD) if to_board else (BOARD, JETSON)
        ports = (40000, 502) if to_board else (502, 40000)
        words = 5 + len(options) // 4
        tcp = struct.pack(">HHIIBBHHH", *ports, (START + sequence) % 2**32, 0, words << 4, 0x10 | 2 * syn, 8192, 0, 0)
        body = tcp + options + payload
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 1, 0, 64, 6, 0)
        frame = bytes(12) + b"\x08\x00" + head + socket.inet_aton(src) + socket.inet_aton(dst) + body
        self.frames.append((round(at_ms * MS), frame.ljust(60, b"\0")))

    def read(self, folder: Path) -> FrameTable:
        records = b"".join(
            struct.pack("<IIII", *divmod(S + at_ns, S), len(frame), len(frame)) + frame
            for at_ns, frame in sorted(self.frames, key=lambda one: one[0])
        )
        path = folder / "tcp.pcap"
        path.write_bytes(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1) + records)
        return read_capture(path)


def talk() -> Connection:
    """Handshake, three polls of which the second is sent again, both answers of the third sent again, and the end."""
    made = Connection()
    stamps = bytes.fromhex("0101080a0000000100000002")
    made.segment(0, True, -1, options=bytes.fromhex("020405b40402080a000000010000000001030307"), syn=True)
    made.segment(0.5, False, -1, options=bytes.fromhex("020405b4"), syn=True)
    made.segment(1, True, 0)
    for i, at in enumerate((10, 20, 30)):
        made.segment(at, True, 4 * i, struct.pack(">HH", i, 0), stamps)
        if i == 1:
            made.segment(at + 2, True, 4 * i, struct.pack(">HH", i, 0), stamps)
        made.segment(at + 3, False, 6 * i)
        made.segment(at + 5, False, 6 * i, struct.pack(">HHH", i, 0, 0), stamps)
        if i == 2:
            made.segment(at + 6, False, 6 * i, struct.pack(">HHH", i, 0, 0), stamps)
        made.segment(at + 7, True, 4 * (i + 1))
    made.segment(40, True, 12)
    made.segment(41, False, 18)
    return made


def measured(table: FrameTable, metric: dict[str, Any], flows: dict[str, Any], passes: Any = None) -> Measurement:
    plan = plan_of({"it": metric}, flows=flows)
    selection = Selection(table, ADDRESSES, Dissected(passes=passes or {}))
    packets = {name: selection.packets(name, flow) for name, flow in plan.flows.items()}
    return measure(plan.checks["it"], Scene(packets=packets, timeout_ns=S, end_ns=int(table.time_ns[-1]) + 2 * S))


def response_time(how: str) -> dict[str, Any]:
    return {"response_time": {"request": "requests", "response": "answers", "match": how}}


def test_by_order_only_new_data_asks_and_answers(tmp_path: Path) -> None:
    table = talk().read(tmp_path)
    result = measured(table, response_time("order"), FLOWS)
    assert result.value_ns.tolist() == [5 * MS] * 3
    assert result.floor_ns.tolist() == [5 * MS] * 3
    assert result.unprovable == ""
    lost = measured(table, {"loss": {"of": "requests", "answered_by": "answers", "match": "order"}}, FLOWS)
    assert (lost.least, lost.most, lost.denominator) == (0, 0, 3)
    assert lost.counts == {"TCP segments without new data": 13}


def test_by_key_a_retransmission_after_the_answer_asks_nothing(tmp_path: Path) -> None:
    made = talk()
    made.segment(27, True, 4, struct.pack(">HH", 1, 0))
    result = measured(made.read(tmp_path), response_time("key"), KEYED)
    assert result.value_ns.tolist() == [5 * MS] * 3
    assert result.counts["TCP segments without new data"] == 3


def test_a_filter_that_picks_only_segments_without_data_means_them(tmp_path: Path) -> None:
    table = talk().read(tmp_path)
    flows = {
        "requests": {"tcp.dstport": 502, "filter": "tcp.flags.syn == 1"},
        "answers": {"tcp.srcport": 502, "filter": "tcp.flags.syn == 1"},
    }
    handshake = {"tcp.flags.syn == 1": table.number <= 2}
    assert measured(table, response_time("order"), flows, handshake).value_ns.tolist() == [MS // 2]
    every = {name: {**flow, "filter": "tcp"} for name, flow in FLOWS.items()}
    everything = {"tcp": np.ones(len(table), np.bool_)}
    assert measured(table, response_time("order"), every, everything).value_ns.tolist() == [5 * MS] * 3


def numbers_of_repeats(made: Connection, folder: Path) -> list[int]:
    table = made.read(folder)
    return table.number[repeats(table, np.arange(len(table)))].tolist()


def test_a_segment_repeats_when_all_its_octets_were_sent_before(tmp_path: Path) -> None:
    made = Connection()
    for at, sequence, length in ((0, 0, 4), (1, 8, 4), (2, 4, 4), (3, 0, 4), (4, 4, 8), (5, 10, 4), (6, 9, 5)):
        made.segment(at, True, sequence, bytes(length))
    made.segment(0.5, False, 0, bytes(4))  # the other direction counts for itself
    assert numbers_of_repeats(made, tmp_path) == [5, 6, 8]


def test_a_keep_alive_with_an_octet_asks_nothing(tmp_path: Path) -> None:
    made = talk()
    for at in (15, 25, 37):
        made.segment(at, True, 4 * ((at + 5) // 10 - 1) - 1, b"\0")
    result = measured(made.read(tmp_path), response_time("order"), FLOWS)
    assert (result.value_ns.tolist(), result.unprovable) == ([5 * MS] * 3, "")


def test_a_further_connection_between_the_same_ports_repeats_nothing(tmp_path: Path) -> None:
    made = Connection()
    made.segment(0, True, -1, syn=True)
    made.segment(1, True, 0, bytes(1000))
    made.segment(10, True, 499, syn=True)
    made.segment(11, True, 500, bytes(10))  # of another connection, though such numbers were used
    made.segment(12, True, 499, syn=True)  # sent again, as it was not answered
    made.segment(13, True, 500, bytes(10))
    assert numbers_of_repeats(made, tmp_path) == [6]


@pytest.mark.parametrize("seed", range(20))
def test_repeats_are_those_of_counting_octets(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    made = Connection()
    sent: set[int] = set()
    wanted = []
    for number in range(1, 300):
        begin = rng.randrange(60) if rng.random() < 0.5 else max(sent, default=0) + rng.choice((1, 1, 1, 2, 5))
        octets = range(begin, begin + rng.choice((1, 1, 2, 7, 20)))
        if sent.issuperset(octets):
            wanted.append(number)
        sent.update(octets)
        made.segment(number, True, begin, bytes(len(octets)))
    assert numbers_of_repeats(made, tmp_path) == wanted
