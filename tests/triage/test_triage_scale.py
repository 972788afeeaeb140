"""Long outages and sweeps of a network: as many steps as there are packets, and the same answers as step by step."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from wire_captures import BOARD, JETSON, MS, US, Fate, Wire, talk

from rig.capture.reader import read_capture
from rig.timing.table import FlowKey
from rig.triage.case import case_of_capture
from rig.triage.control import arp_exchanges
from rig.triage.rules.outage import Outage, outages
from rig.triage.rules.path import _loss_split

HOSTS = [BOARD, JETSON, "10.77.0.9", "10.77.0.7"]


def arp(wire: Wire, at: int, operation: int, sender: str, target: str) -> None:
    packet = struct.pack(">HHBBH", 1, 0x0800, 6, 4, operation) + bytes(6) + socket.inet_aton(sender)
    frame = bytes(12) + b"\x08\x06" + packet + bytes(6) + socket.inet_aton(target)
    wire.frames.append((at, frame.ljust(60, b"\0")))


@pytest.mark.parametrize("seed", range(5))
def test_a_who_has_is_answered_by_what_comes_before_the_next_one(tmp_path: Path, seed: int) -> None:
    chance = np.random.default_rng(seed)
    wire = Wire(seed)
    said = []
    for at in range(0, 300 * MS, MS):
        operation, one, other = int(chance.integers(1, 3)), *(HOSTS[i] for i in chance.integers(0, len(HOSTS), 2))
        arp(wire, at, operation, one, other)
        said.append((operation, one, other))
    expected = []
    for i, (operation, one, other) in enumerate(said):
        if operation == 1 and one != other:
            ends = (j for j in range(i + 1, len(said)) if said[j] in ((1, one, other), (2, other, one)))
            end = next(ends, None)
            answered = end is not None and said[end][0] == 2
            expected.append((i + 1, one, other, end + 1 if answered and end is not None else None))
    found = arp_exchanges(read_capture(wire.write(tmp_path / "made.pcapng")))
    assert [(one.number, one.sender, one.target, one.reply_number) for one in found] == expected
    assert all(
        (one.reply_ns is None) if one.reply_number is None else one.reply_ns == (one.reply_number - one.number) * MS
        for one in found
    )


def test_a_sweep_of_a_network_is_read_at_once(tmp_path: Path) -> None:
    wire = Wire(1)
    for k in range(30_000):
        arp(wire, k * 5 * US, 1, "10.77.0.9", f"10.{k >> 16 & 255}.{k >> 8 & 255}.{k & 255}")
    table = read_capture(wire.write(tmp_path / "made.pcapng"))
    begin = time.process_time()
    assert len(arp_exchanges(table)) == 30_000
    assert time.process_time() - begin < 3


@pytest.mark.parametrize("seed", range(5))
def test_outages_are_the_silences_in_which_three_requests_went_unanswered(tmp_path: Path, seed: int) -> None:
    chance = np.random.default_rng(seed)
    silent = np.repeat(chance.random(60) < 0.5, chance.integers(1, 20, 60))
    wire = Wire(seed)
    talk(wire, len(silent), lambda i, at: Fate(lost_in=bool(silent[i])))
    case = case_of_capture(wire.write(tmp_path / "made.pcapng"))
    assert case.exchanges is not None
    table, asks = case.table, case.exchanges.asks
    mine = [bool(index >= 0 and table.flows[index].src == BOARD) for index in table.flow]
    heard = [int(at) for at, one in zip(table.time_ns, mine, strict=True) if one]
    edges = [case.origin_ns, *heard, int(table.time_ns[-1])]
    expected = []
    for index, (begin, end) in enumerate(itertools.pairwise(edges)):
        inside = [i for i in case.exchanges.lost if begin <= asks.time_ns[i] < end]
        if len(inside) >= 3 and end - begin >= 60 * MS:
            numbers = tuple(int(asks.number[i]) for i in inside[:6])
            expected.append(Outage(begin - case.origin_ns, end - begin, len(inside), numbers, index == len(heard)))
    assert len(expected) > 3
    assert outages(case) == tuple(sorted(expected, key=lambda outage: -outage.length_ns))
    split = _loss_split(case)
    assert split is not None
    spans = [(case.origin_ns + gap.start_ns, case.origin_ns + gap.start_ns + gap.length_ns) for gap in expected]
    apart = [i for i in case.exchanges.lost if not any(a <= asks.time_ns[i] <= b for a, b in spans)]
    assert split[2].tolist() == apart


class Counted:
    """What `outages` looks at of a case, without a capture: a request every 10 ms, of which a share is lost."""

    def __init__(self, count: int, lost: NDArray[np.bool_]) -> None:
        at = np.arange(count) * 10 * MS
        flow = np.zeros(np.count_nonzero(~lost), np.int32)
        self.table = SimpleNamespace(flows=(FlowKey((), BOARD, JETSON, 17, 1, 1),), flow=flow, time_ns=at[~lost] + MS)
        asks = SimpleNamespace(time_ns=at, number=np.arange(count))
        self.exchanges = SimpleNamespace(asks=asks, lost=np.flatnonzero(lost))
        self.addresses, self.expects_answers, self.origin_ns = {"board": BOARD}, True, 0


def test_very_many_silences_are_told_apart_at_once() -> None:
    lost = np.random.default_rng(1).random(300_000) < 0.4
    case: Any = Counted(len(lost), lost)
    begin = time.process_time()
    assert len(outages(case)) > 1000
    assert time.process_time() - begin < 2
