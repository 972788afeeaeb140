"""Triage pairs packets without known headers as a check with `match: order` does, so that both tell the same losses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from wire_captures import BOARD, JETSON, MS, S, Wire

from rig.capture.reader import read_capture
from rig.plan.metrics import ResponseTime
from rig.plan.model import Flow
from rig.timing.flows import Selection
from rig.timing.metrics.measurement import Scene
from rig.timing.metrics.response_time import response_time
from rig.triage.exchange_model import Exchanges
from rig.triage.exchanges import exchanges_of


def both_ways(wire: Wire, folder: Path, timeout_ns: int = S) -> tuple[Exchanges, list[int]]:
    """(exchanges of the triage, response times of the metric)."""
    table = read_capture(wire.write(folder / "raw.pcapng"))
    selection = Selection(table, {"board": BOARD, "jetson": JETSON})
    exchanges = exchanges_of(selection, BOARD, JETSON, timeout_ns, planned=None)
    assert exchanges is not None
    flows = {"asks": Flow(src="jetson", dst="board"), "says": Flow(src="board", dst="jetson")}
    packets = {name: selection.packets(name, flow) for name, flow in flows.items()}
    metric = ResponseTime(request="asks", response="says", match="order")
    measured = response_time(metric, Scene(packets, timeout_ns, int(table.time_ns[-1])))
    return exchanges, measured.value_ns.tolist()


def test_requests_in_flight_at_once_are_all_answered(tmp_path: Path) -> None:
    wire = Wire(1)
    for i in range(60):
        for k in range(4):
            wire.to_board(i * 20 * MS + k * MS, b"poll")
            wire.from_board(i * 20 * MS + (10 + k) * MS, b"data")
    exchanges, values = both_ways(wire, tmp_path)
    assert not len(exchanges.lost)
    assert exchanges.response_ns.tolist() == values == [10 * MS] * 240
    assert exchanges.answers.owner.tolist() == exchanges.first.tolist() == list(range(240))


def test_what_the_board_sends_beyond_an_answer_belongs_to_the_request_before(tmp_path: Path) -> None:
    wire = Wire(1)
    wire.from_board(0, b"hello")
    for at in (10, 20):
        wire.to_board(at * MS, b"poll")
        for later in (2, 3, 4):
            wire.from_board((at + later) * MS, b"data")
    exchanges, values = both_ways(wire, tmp_path)
    assert exchanges.response_ns.tolist() == values == [2 * MS] * 2
    assert exchanges.answers.owner.tolist() == [-1, 0, 0, 0, 1, 1, 1]
    assert np.flatnonzero(exchanges.answers.last).tolist() == exchanges.final.tolist() == [1, 4]


@pytest.mark.parametrize(("timeout_ns", "lost"), [(S, [2]), (5 * MS, [0])])
def test_a_request_is_open_for_the_time_out(tmp_path: Path, timeout_ns: int, lost: list[int]) -> None:
    wire = Wire(1)
    for at in (0, 10, 20):
        wire.to_board(at * MS, b"poll")
        if at:
            wire.from_board((at + 3) * MS, b"data")
    exchanges, values = both_ways(wire, tmp_path, timeout_ns)
    assert exchanges.lost.tolist() == lost
    assert exchanges.response_ns.tolist() == values


def test_sockets_of_one_host_are_served_apart(tmp_path: Path) -> None:
    wire = Wire(1)
    for i in range(5):
        wire.udp(i * 20 * MS, JETSON, b"poll", 40000, 5005)
        wire.udp(i * 20 * MS + MS, JETSON, b"poll", 40001, 5005)
        wire.udp(i * 20 * MS + 3 * MS, BOARD, b"data", 5005, 40001)
    exchanges, values = both_ways(wire, tmp_path)
    assert exchanges.lost.tolist() == [0, 2, 4, 6, 8]
    assert exchanges.response_ns.tolist() == values
