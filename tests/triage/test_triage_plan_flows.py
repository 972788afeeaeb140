"""Captures of other protocols with a plan: only what the plan names is a request; nobody is accused for the rest."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest
from wire_captures import BOARD, JETSON, MS, S, Wire

from rig.bench.load import load_bench
from rig.plan.load import load_plan_bytes
from rig.triage.case import Case, case_of_capture, samples_of
from rig.triage.diagnosis import Cause, diagnose

BENCH = load_bench(Path(__file__).resolve().parents[2] / "benches" / "emulated.yaml")
ASKS = "  answer-time:\n    response_time: {request: requests, response: answers, match: order}\n"
LOSS = "  no-loss:\n    loss: {of: requests, answered_by: answers, match: order}\n"
GAPS = "  gaps:\n    gap: {of: requests}\n"
EACH, COUNT = "    limits: {each: {max: 100 ms}}\n", "    limits: {count: {max: 0}}\n"
PORT = 514


def case_of(wire: Wire, folder: Path, checks: str = LOSS + COUNT, port: int = PORT) -> Case:
    """A capture as a plan about UDP port `port` sees it."""
    text = f"plan: other\nflows:\n  requests: {{udp.dstport: {port}}}\n  answers: {{udp.srcport: {port}}}\nchecks:\n"
    plan = load_plan_bytes((text + checks).encode(), folder / "other.plan.yaml")
    return case_of_capture(wire.write(folder / "made.pcapng"), plan, bench=BENCH)


def accused(case: Case) -> list[Cause]:
    return [cause for cause in diagnose(case).causes if cause.score >= 0.5 and cause.rule.side == "board"]


def foreign(wire: Wire, at: int, src: str, dst: str, sport: int, dport: int) -> None:
    """A datagram between ends that no bench knows."""
    datagram = struct.pack(">HHHH", sport, dport, 12, 0) + b"data"
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(datagram), len(wire.frames), 0, 64, 17, 0)
    frame = bytes(12) + b"\x08\x00" + head + socket.inet_aton(src) + socket.inet_aton(dst) + datagram
    wire.frames.append((at, frame.ljust(60, b"\0")))


@pytest.mark.parametrize("checks", [LOSS + COUNT, ASKS + EACH])
def test_ends_that_share_one_address_have_no_direction(tmp_path: Path, checks: str) -> None:
    wire = Wire(1)
    for i in range(30):
        foreign(wire, i * 100 * MS, "127.0.0.1", "127.0.0.1", 40000, PORT)
        foreign(wire, i * 100 * MS + MS, "127.0.0.1", "127.0.0.1", PORT, 40000)
    case = case_of(wire, tmp_path, checks)
    assert case.exchanges is None
    assert diagnose(case).causes == ()


def test_packets_that_the_plan_does_not_name_are_no_requests(tmp_path: Path) -> None:
    wire = Wire(2)
    for i in range(30):
        wire.udp(i * 100 * MS, JETSON, b"something else", 40000, 9999)
    wire.udp(4 * S, BOARD, b"hello", 7000, 7000)
    case = case_of(wire, tmp_path)
    assert case.exchanges is None
    assert diagnose(case).first is None


def test_of_mixed_traffic_only_what_the_plan_names_is_paired(tmp_path: Path) -> None:
    wire = Wire(3)
    for i in range(20):
        wire.udp(i * 100 * MS, JETSON, b"ask", 40000, PORT)
        wire.udp(i * 100 * MS + 20 * MS, JETSON, b"log line", 40000, 9999)
        wire.udp(i * 100 * MS + 30 * MS, BOARD, b"answer", PORT, 40000)
    case = case_of(wire, tmp_path)
    assert case.exchanges is not None
    assert len(case.exchanges.asks) == 20
    assert not len(case.exchanges.lost)


@pytest.mark.parametrize("arp", [True, False])
def test_a_silent_board_is_named_by_what_the_capture_shows_of_it(tmp_path: Path, arp: bool) -> None:
    wire = Wire(4)
    if arp:
        wire.arp(0, 1, JETSON, BOARD)
        wire.arp(MS, 2, BOARD, JETSON)
    else:
        wire.udp(0, BOARD, b"hello", 7000, 7000)
    for i in range(30):
        wire.udp(100 * MS + i * 100 * MS, JETSON, b"ask", 40000, PORT)
    (cause,) = [one for one in accused(case_of(wire, tmp_path)) if one.name == "board-silent"]
    said = [clue.text for clue in cause.support.for_it]
    assert "none of 30 requests was answered" in said
    assert ("the board answers ARP: its network runs" in said) is arp
    assert ("the board sends other frames (1): its network runs" in said) is not arp


def test_a_capture_of_one_direction_accuses_nobody(tmp_path: Path) -> None:
    wire = Wire(5)
    for i in range(30):
        wire.udp(i * 100 * MS, JETSON, b"ask", 40000, PORT)
    case = case_of(wire, tmp_path)
    assert [(one.name, one.score) for one in diagnose(case).causes if one.name == "board-silent"] == [
        ("board-silent", 0.45)
    ]
    assert accused(case) == []


def test_a_capture_that_ends_before_an_answer_is_due_accuses_nobody(tmp_path: Path) -> None:
    wire = Wire(6)
    wire.arp(0, 1, JETSON, BOARD)
    wire.arp(MS, 2, BOARD, JETSON)
    wire.udp(100 * MS, JETSON, b"ask", 40000, PORT)
    assert accused(case_of(wire, tmp_path)) == []


def test_a_plan_that_asks_for_no_answer_accuses_nobody_of_silence(tmp_path: Path) -> None:
    wire = Wire(7)
    wire.udp(0, BOARD, b"hello", 7000, 7000)
    for i in range(60):
        wire.udp(i * 50 * MS, JETSON, b"sensor reading", 40000, PORT)
    case = case_of(wire, tmp_path, GAPS + EACH)
    assert not case.expects_answers
    assert accused(case) == []


def test_requests_of_the_plan_tell_who_is_the_board(tmp_path: Path) -> None:
    """The service has the higher port and another pair of ends talks more: the packets alone would be misread."""
    wire = Wire(8)
    for i in range(20):
        foreign(wire, i * 100 * MS, "192.0.2.1", "192.0.2.9", 1000, 50000)
        foreign(wire, i * 100 * MS + MS, "192.0.2.9", "192.0.2.1", 50000, 1000)
        for k in range(5):
            foreign(wire, i * 100 * MS + 10 * MS + k * MS, "192.0.2.3", "192.0.2.4", 4000, 53)
    case = case_of(wire, tmp_path, port=50000)
    assert dict(case.addresses) == {"board": "192.0.2.9", "jetson": "192.0.2.1"}
    assert case.exchanges is not None
    assert len(case.exchanges.answered) == 20
    assert accused(case) == []


def test_an_error_about_a_datagram_for_somebody_else_is_no_fault_of_the_board(tmp_path: Path) -> None:
    wire = Wire(10)
    for i in range(10):
        wire.udp(i * 100 * MS, JETSON, b"ask", 40000, PORT)
        if i < 9:
            wire.udp(i * 100 * MS + MS, BOARD, b"answer", PORT, 40000)
    for target, believed in (("192.0.2.9", False), (BOARD, True)):
        quoted = struct.pack(">BBHHHBBH", 0x45, 0, 31, 1, 0, 64, 17, 0) + socket.inet_aton(JETSON)
        quoted += socket.inet_aton(target) + struct.pack(">HHHH", 40000, PORT, 11, 0)
        wire.ip(950 * MS, BOARD, JETSON, 1, b"\x03\x03" + bytes(6) + quoted)
        assert ([cause.name for cause in accused(case_of(wire, tmp_path))] == ["port-unreachable"]) is believed


@pytest.mark.parametrize("kind", ["a fragment", "an ICMP error"])
def test_trouble_of_other_traffic_is_shown_and_not_believed(tmp_path: Path, kind: str) -> None:
    wire = Wire(9)
    if kind == "a fragment":
        wire.ip(0, BOARD, JETSON, 17, bytes(300), fragment=185)
    else:
        wire.ip(0, BOARD, JETSON, 1, b"\x03\x03" + bytes(22) + socket.inet_aton(BOARD) + bytes(8))
    found = diagnose(case_of(wire, tmp_path))
    assert [cause.score for cause in found.causes] == [0.4]
    assert found.first is None


def test_requests_are_paired_by_the_plans_key(tmp_path: Path) -> None:
    """Answers that overtake each other, one that never came, one after the time-out and one that came twice."""
    wire = Wire(3)
    took_ms = {0: (30,), 1: (5,), 2: (), 3: (1200,), 4: (7, 9)}
    for i in range(50):
        wire.to_board(i * 10 * MS, struct.pack(">H", i) + b"ask")
        for after_ms in took_ms.get(i, (20,)):
            wire.from_board((i * 10 + after_ms) * MS, struct.pack(">H", i) + b"say")
    flows = "  requests: {udp.dstport: 5005, key: {bytes: 2}}\n  answers: {udp.srcport: 5005, key: {bytes: 2}}\n"
    text = f"plan: other\nflows:\n{flows}checks:\n{ASKS.replace('order', 'key')}{EACH}"
    plan = load_plan_bytes(text.encode(), tmp_path / "other.plan.yaml")
    case = case_of_capture(wire.write(tmp_path / "made.pcapng"), plan, bench=BENCH)
    exchanges = case.exchanges
    assert exchanges is not None
    assert exchanges.lost.tolist() == [2, 3]
    measured = samples_of(case)["answer-time"]
    assert exchanges.response_ns.tolist() == measured.value_ns.tolist()
    assert (exchanges.response_ns[[0, 1, 4, 5]] // MS).tolist() == [30, 5, 7, 20]
    owners = exchanges.answers.owner.tolist()
    assert (owners.count(2), owners.count(3), owners.count(4), owners.count(-1)) == (0, 1, 2, 0)
