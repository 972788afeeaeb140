"""Nobody is accused for what others do on the link, or for what happened before packets were measured."""

from __future__ import annotations

import json
import socket
import struct
from pathlib import Path

import pytest
from made_records import change_run, make_record
from wire_captures import BOARD, JETSON, MAC, MS, US, Fate, Wire, talk

from rig.timing.verdict import Verdict
from rig.triage.case import Case, case_of_capture, case_of_record
from rig.triage.diagnosis import Diagnosis, diagnose

OTHERS = ("192.168.9.1", "192.168.9.2")


def lossy(wire: Wire) -> None:
    """A tenth of the answers is lost in the link."""
    talk(wire, 200, lambda i, at: Fate(lost_out=i % 10 == 3))


def foreign(wire: Wire, at: int, proto: int, body: bytes, fragment: int = 0, identification: int = 7) -> None:
    """A packet between hosts that are neither board nor Jetson."""
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), identification, fragment, 64, proto, 0)
    frame = bytes(12) + b"\x08\x00" + head + b"".join(map(socket.inet_aton, OTHERS)) + body
    wire.frames.append((at, frame))


def unreachable(wire: Wire, at: int, sender: str, port: int) -> None:
    """`sender` refuses a datagram that came from the other end's port 40000, or 5005 of the board."""
    other, source = (JETSON, 40000) if sender == BOARD else (BOARD, 5005)
    quoted = struct.pack(">BBHHHBBH", 0x45, 0, 60, 1, 0, 64, 17, 0) + socket.inet_aton(other)
    quoted += socket.inet_aton(sender) + struct.pack(">HHHH", source, port, 40, 0)
    wire.ip(at, sender, other, 1, struct.pack(">BBHI", 3, 3, 0, 0) + quoted)


def of_capture(wire: Wire, folder: Path) -> Diagnosis:
    return diagnose(case_of_capture(wire.write(folder / "made.pcapng")))


def scored(found: Diagnosis) -> dict[str, float]:
    return {cause.name: cause.score for cause in found.causes}


def first_of(case: Case) -> str | None:
    first = diagnose(case).first
    return first.name if first is not None else None


@pytest.mark.parametrize("sender", [BOARD, JETSON])
@pytest.mark.parametrize("port", [137, 5353])
def test_an_icmp_error_about_a_port_of_no_exchange_accuses_nobody(tmp_path: Path, sender: str, port: int) -> None:
    wire = Wire(1)
    talk(wire, 100)
    unreachable(wire, 100 * MS, sender, port)
    assert of_capture(wire, tmp_path).causes == ()
    wire = Wire(1)
    lossy(wire)
    unreachable(wire, 100 * MS, sender, port)
    found = of_capture(wire, tmp_path)
    assert found.first is not None
    assert found.first.name == "path-loss-from-board"
    assert "port-unreachable" not in scored(found)


def test_icmp_errors_count_from_the_start_sentinel_to_the_end_sentinel(tmp_path: Path) -> None:
    """A board whose service is not up yet refuses probes, and a runner that is gone what comes after the end."""
    wire = Wire(1)
    talk(wire, 100)
    end = max(at for at, _ in wire.frames)
    for at, sender, port in ((1, BOARD, 5005), (end + 50 * MS, JETSON, 40000)):
        unreachable(wire, at, sender, port)
    assert of_capture(wire, tmp_path).causes == ()
    unreachable(wire, 100 * MS, JETSON, 40000)
    assert scored(of_capture(wire, tmp_path)) == {"port-unreachable": 0.55}


def test_an_icmp_error_whose_quote_was_cut_is_about_nobody_knows_what(tmp_path: Path) -> None:
    wire = Wire(1)
    talk(wire, 100)
    wire.ip(100 * MS, BOARD, JETSON, 1, struct.pack(">BBHI", 3, 3, 0, 0) + bytes(12))
    assert of_capture(wire, tmp_path).causes == ()


BOOT = ("rig-fw variant=zero_copy build=00", "link up", "link down", "link up", "ready")


def test_a_link_that_goes_while_the_board_boots_is_no_cause(tmp_path: Path) -> None:
    assert first_of(case_of_record(make_record(tmp_path / "001", log=BOOT))) is None
    assert first_of(case_of_record(make_record(tmp_path / "002", log=BOOT, make=lossy, received=180))) == (
        "path-loss-from-board"
    )


def test_a_link_that_goes_under_load_is_the_cause(tmp_path: Path) -> None:
    # The run began a second before the first frame, its load 5 ms after it; a line is told every 100 ms.
    log = (*["."] * 11, "link down", "link up")
    assert first_of(case_of_record(make_record(tmp_path / "001", log=log))) == "link-down"
    # At the end of a load that the console's clock alone tells of: the capture has a clock of its own.
    record = make_record(tmp_path / "002", log=log)
    bench = json.loads((record / "run.json").read_text())["bench"]
    change_run(record, bench={**bench, "capture": {"point": "jetson"}}, started_utc="2031-01-01T00:00:00.000Z")
    assert first_of(case_of_record(record)) == "link-down"
    change_run(record, phases=[])
    assert first_of(case_of_record(record)) is None


def test_a_lone_fragment_between_other_hosts_accuses_nobody(tmp_path: Path) -> None:
    datagram = struct.pack(">HHHH", 2049, 2049, 8 + 1480, 0) + bytes(1472)
    wire = Wire(1)
    talk(wire, 100)
    foreign(wire, 100 * MS, 17, datagram, 0x2000)
    assert of_capture(wire, tmp_path).causes == ()
    wire = Wire(1)
    lossy(wire)
    foreign(wire, 100 * MS, 17, datagram, 0x2000)
    found = of_capture(wire, tmp_path)
    assert found.first is not None
    assert found.first.name == "path-loss-from-board"
    assert "fragment-lost" not in scored(found)


def test_a_lone_fragment_of_the_board_is_shown_among_whole_datagrams_in_two_and_more_parts(tmp_path: Path) -> None:
    wire = Wire(1)
    talk(wire, 60, lambda i, at: Fate(tokens=358 if i % 2 else 900))
    for i in range(20):
        foreign(wire, (20 + i) * MS, 17, struct.pack(">HHHH", 1, 1, 1480 + 8, 0) + bytes(1472), 0x2000, i)
        foreign(wire, (20 + i) * MS + 100 * US, 17, bytes(8), 185, i)
    assert "fragment-lost" not in scored(of_capture(wire, tmp_path))
    wire.board_sequence = 0x7777
    wire.ip(200 * MS + 321, BOARD, JETSON, 17, bytes(300), fragment=185)
    case = case_of_capture(wire.write(tmp_path / "made.pcapng"))
    (lone,) = [cause for cause in diagnose(case).causes if cause.name == "fragment-lost"]
    (clue,) = lone.support.for_it
    assert clue.text.startswith("1 fragmented datagrams between board and Jetson")
    at = sorted(at for at, _ in wire.frames).index(200 * MS + 321)
    assert clue.frames == (at + 1,)


def test_large_datagrams_of_other_hosts_are_not_the_boards(tmp_path: Path) -> None:
    wire = Wire(1)
    talk(wire, 100)
    for i in range(30):
        foreign(wire, (100 + 10 * i) * MS, 17, struct.pack(">HHHH", 2049, 2049, 1488, 0) + bytes(1472), 0x2000, i)
        foreign(wire, (100 + 10 * i) * MS + 100 * US, 17, bytes(8), 185, i)
    assert of_capture(wire, tmp_path).causes == ()


def test_a_merged_frame_of_another_connection_is_no_trouble_of_the_exchanges(tmp_path: Path) -> None:
    wire = Wire(1)
    talk(wire, 100)
    segment = struct.pack(">HHIIBBHHH", 22, 50000, 1, 1, 0x50, 0x10, 1000, 0, 0) + bytes(9000)
    foreign(wire, 100 * MS, 6, segment)
    wire.ip(110 * MS, JETSON, BOARD, 6, segment)
    assert all(len(mac) == 6 for mac in MAC.values())
    assert of_capture(wire, tmp_path).causes == ()


@pytest.mark.parametrize(("asked", "score"), [(-800 * MS, None), (100 * MS, 0.85)])
def test_arp_answers_are_late_under_load_and_not_before(tmp_path: Path, asked: int, score: float | None) -> None:
    wire = Wire(1)
    talk(wire, 100)
    wire.arp(asked, 1, JETSON, BOARD)
    wire.arp(asked + 400 * MS, 2, BOARD, JETSON)
    assert scored(of_capture(wire, tmp_path)).get("arp-late") == score


@pytest.mark.parametrize("outcome", ["interrupted", "running", "completed"])
def test_whoever_ended_a_run_ended_its_runner(tmp_path: Path, outcome: str) -> None:
    def broken_off(wire: Wire) -> None:
        talk(wire, 100)
        wire.frames = sorted(wire.frames)[:-2]

    record = make_record(tmp_path / "001", make=broken_off, outcome=outcome)
    events = (record / "jetson.jsonl").read_text().splitlines(keepends=True)
    (record / "jetson.jsonl").write_text("".join(events[:-1]))
    case = case_of_record(record)
    assert case.result is not None
    assert case.result.verdict is Verdict.INCONCLUSIVE
    assert first_of(case) == ("jetson-ended-early" if outcome == "completed" else "run-cut-short")
