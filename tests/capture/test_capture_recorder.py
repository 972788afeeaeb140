"""The recorder against real dumpcap on a veth pair in a private network namespace."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from capture_files import T0, epb, idb, shb

from rig.bench.model import CapturePoint
from rig.capture.dumpcap import BLOCK_TIMEOUT_S
from rig.capture.links import carrier_events
from rig.capture.points import capture_point
from rig.capture.reader import read_capture
from rig.capture.recorder import QUIET_S, Recorder, check_capture
from rig.capture.report import CaptureReport
from rig.deadline import Deadline
from rig.errors import CaptureError
from rig.protocol import token_v2

SEEN0 = capture_point(CapturePoint(point="mirror", interface="seen0"))


def udp(payload: bytes, *, to_board: bool = True) -> bytes:
    rig, board = bytes([192, 0, 2, 20]), bytes([192, 0, 2, 10])
    src, dst, ports = (rig, board, (40000, 5005)) if to_board else (board, rig, (5005, 40000))
    segment = struct.pack(">HHHH", *ports, 8 + len(payload), 0) + payload
    header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(segment), 1, 0, 64, 17, 0, src, dst)
    return b"\x02\0\0\0\0\xbb\x02\0\0\0\0\xaa\x08\0" + header + segment


def numbered(index: int) -> bytes:
    return udp(b"N%07d" % index + b"." * 56)


def returned(kind: int) -> bytes:
    header = token_v2.decode_header(token_v2.sentinel(kind))
    return udp(token_v2.encode(header, struct.pack("<8I", *range(8))), to_board=False)


def start_sentinels(segment: Any, recorder: Recorder) -> None:
    segment.send(udp(token_v2.sentinel(token_v2.SENTINEL_START)), returned(token_v2.SENTINEL_START))
    deadline = Deadline.after(30)
    while len(recorder.sentinels) < 2:
        assert not deadline.expired()
        recorder._poll(deadline)
        time.sleep(0.01)


def await_carrier(recorder: Recorder, carrier: bool) -> None:
    """Wait until `ip monitor` has told of it."""
    deadline = Deadline.after(30)
    while [event.carrier for event in carrier_events(recorder._changes.read_text(), recorder._links)][-1:] != [carrier]:
        assert not deadline.expired(), recorder._changes.read_text()
        time.sleep(0.01)


def test_quiet_time_outlasts_what_a_frame_may_lie_in_the_ring() -> None:
    assert QUIET_S >= 2 * BLOCK_TIMEOUT_S


def payloads(path: Path) -> list[bytes]:
    table = read_capture(path)
    return [
        bytes(table.data[int(off) : int(off) + int(cap)])
        for off, cap in zip(table.payload_off, table.payload_cap, strict=True)
    ]


@pytest.mark.usefixtures("drained_by_sentinel")
def test_ten_captures_hold_every_frame_from_ready_to_the_end_sentinel(segment: Any, tmp_path: Path) -> None:
    for index in range(10):
        path = tmp_path / f"{index}.pcapng"
        with Recorder(segment.host, SEEN0, path) as recorder:
            recorder.start(Deadline.after(30))
            segment.send(*(numbered(count) for count in range(200)))
            segment.send(udp(token_v2.sentinel(token_v2.SENTINEL_END)), returned(token_v2.SENTINEL_END))
            recorder.drain(Deadline.after(30))
            report = recorder.stop(Deadline.after(30))
        assert [p for p in payloads(path) if p[:1] == b"N"] == [b"N%07d" % c + b"." * 56 for c in range(200)]
        assert report.sound, report
        assert report.drained == "end-sentinel"
        one = report.interfaces[0]
        assert (report.frames, one.received, one.carried, report.dropped, one.file_dropped) == (202, 202, 202, 0, 0)
        assert list(tmp_path.iterdir()) == [path], "nothing but the capture is left"
        path.unlink()


@pytest.mark.usefixtures("patient")
def test_without_an_end_sentinel_the_quiet_time_saves_the_tail(segment: Any, tmp_path: Path) -> None:
    path = tmp_path / "capture.pcapng"
    with Recorder(segment.host, SEEN0, path) as recorder:
        recorder.start(Deadline.after(30))
        segment.send(*(numbered(count) for count in range(50)))
        recorder.drain(Deadline.after(30))
        report = recorder.stop(Deadline.after(30))
    assert (report.drained, report.frames, report.sound) == ("quiet-time", 50, True)


# Stands in for a dumpcap that gets little processor time; its frames come from LaggingClock.
LAGGING = """
import sys, time
sys.stdout.buffer.write(bytes.fromhex(sys.argv[1]))
sys.stdout.buffer.flush()
print("File: -", file=sys.stderr, flush=True)
try:
    time.sleep(600)
except KeyboardInterrupt:
    summary = "12/0 (pcap:0/dumpcap:0/flushed:0/ps_ifdrop:0) (100.0%)"
    print(f"Packets received/dropped on interface 'seen0': {summary}", file=sys.stderr)
"""


class LaggingClock:
    """The recorder's clock, on which each 0.1 s an old frame comes into the file, 12 in all."""

    def __init__(self, path: Path) -> None:
        self._path, self._now, self._frames = path, 0.0, 0

    def monotonic(self) -> float:
        return self._now

    def time_ns(self) -> int:
        return time.time_ns()

    def sleep(self, seconds: float) -> None:
        self._now += seconds
        if self._frames < 12 and self._now >= 0.1 * (self._frames + 1):
            self._frames += 1
            with self._path.open("ab") as stream:
                stream.write(epb(T0, numbered(0)))


def test_a_dumpcap_that_lags_behind_is_waited_for(
    segment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = [sys.executable, "-c", LAGGING, (shb() + idb()).hex()]
    monkeypatch.setattr("rig.capture.dumpcap.command", lambda _: argv)
    path = tmp_path / "capture.pcapng"
    with Recorder(segment.host, SEEN0, path) as recorder:
        recorder.start(Deadline.after(30))
        monkeypatch.setattr("rig.capture.recorder.time", LaggingClock(path))
        recorder.drain(Deadline.after(30))
        report = recorder.stop(Deadline.after(30))
    assert (report.drained, report.frames) == ("quiet-time", 12)


def test_a_tail_that_must_come_is_waited_for_beyond_the_quiet_time(segment: Any, tmp_path: Path) -> None:
    with Recorder(segment.host, SEEN0, tmp_path / "capture.pcapng") as recorder:
        recorder.start(Deadline.after(30))
        assert recorder._child is not None
        os.kill(recorder._child.pid, signal.SIGSTOP)  # a machine that is busy with other things
        again = threading.Timer(2 * QUIET_S, os.kill, (recorder._child.pid, signal.SIGCONT))
        again.start()
        segment.send(*(numbered(count) for count in range(200)), returned(token_v2.SENTINEL_END))
        recorder.drain(Deadline.after(30), end_answered=True)
        report = recorder.stop(Deadline.after(30))
        again.join()
    assert (report.drained, report.frames, report.sound) == ("end-sentinel", 201, True)


def test_a_tail_that_does_not_come_is_waited_for_until_the_deadline(segment: Any, tmp_path: Path) -> None:
    with Recorder(segment.host, SEEN0, tmp_path / "capture.pcapng") as recorder:
        recorder.start(Deadline.after(30))
        segment.send(numbered(0))
        deadline = Deadline.after(2 * QUIET_S)
        recorder.drain(deadline, end_answered=True)
        assert deadline.expired()
        assert recorder.stop(Deadline.after(30)).drained == "quiet-time"


def test_traffic_that_never_ends_does_not_hold_the_drain_up(segment: Any, tmp_path: Path) -> None:
    with Recorder(segment.host, SEEN0, tmp_path / "capture.pcapng") as recorder:
        recorder.start(Deadline.after(30))
        segment.babble(every_s=0.05, count=2000)
        for _ in range(5):
            segment.send(numbered(0))
        recorder.drain(Deadline.after(30))
        report = recorder.stop(Deadline.after(30))
    assert report.drained == "quiet-time"
    assert 5 < report.frames < 2000


def test_an_unanswered_end_sentinel_does_not_cut_the_drain_short(segment: Any, tmp_path: Path) -> None:
    with Recorder(segment.host, SEEN0, tmp_path / "capture.pcapng") as recorder:
        recorder.start(Deadline.after(30))
        segment.send(udp(token_v2.sentinel(token_v2.SENTINEL_END)))
        recorder.drain(Deadline.after(30))
        report = recorder.stop(Deadline.after(30))
    assert report.drained == "quiet-time"
    assert [(seen.kind, seen.from_board) for seen in report.sentinels] == [(token_v2.SENTINEL_END, False)]


def test_a_stop_without_drain_says_so(segment: Any, tmp_path: Path) -> None:
    with Recorder(segment.host, SEEN0, tmp_path / "capture.pcapng") as recorder:
        recorder.start(Deadline.after(30))
        report = recorder.stop(Deadline.after(30))
    assert (report.drained, report.sound) == ("not", False)


def test_sentinels_are_reported_with_the_boards_counters(segment: Any, tmp_path: Path) -> None:
    with Recorder(segment.host, SEEN0, tmp_path / "capture.pcapng") as recorder:
        recorder.start(Deadline.after(30))
        segment.send(udp(b"T2\x05 no sentinel, whatever it begins with" + b"\0" * 40))
        start_sentinels(segment, recorder)
        recorder.drain(Deadline.after(30))
        report = recorder.stop(Deadline.after(30))
    request, answer = report.sentinels
    assert (request.frame, request.from_board, request.src, request.counters) == (2, False, "192.0.2.20", None)
    assert (answer.frame, answer.from_board, answer.src) == (3, True, "192.0.2.10")
    assert answer.counters == dict(zip(token_v2.SENTINEL_COUNTERS, range(8), strict=True))
    assert request.time_ns < answer.time_ns
    assert CaptureReport.model_validate_json(report.model_dump_json()) == report


def test_a_killed_dumpcap_is_noticed_and_what_it_wrote_is_kept(segment: Any, tmp_path: Path) -> None:
    with Recorder(segment.host, SEEN0, tmp_path / "capture.pcapng") as recorder:
        recorder.start(Deadline.after(30))
        start_sentinels(segment, recorder)
        recorder.check()
        assert recorder._child is not None
        os.kill(recorder._child.pid, signal.SIGKILL)
        recorder._child.wait(Deadline.after(30))
        with pytest.raises(CaptureError, match="dumpcap ended by itself in mid-run with SIGKILL"):
            recorder.check()
        with pytest.raises(CaptureError):
            recorder.drain(Deadline.after(30))
        report = recorder.stop(Deadline.after(30))
    assert (report.ended, report.status, report.sound, report.frames) == ("died", -signal.SIGKILL, False, 2)
    assert report.dropped is None, "nobody counted, so nobody may claim that nothing was lost"


@pytest.mark.usefixtures("patient")
def test_drops_are_reported_and_equal_the_truth(segment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rig.capture.dumpcap.BUFFER_MIB", 2)
    path = tmp_path / "capture.pcapng"
    sent = 20_000
    with Recorder(segment.host, SEEN0, path) as recorder:
        recorder.start(Deadline.after(30))
        start_sentinels(segment, recorder)
        assert recorder._child is not None
        os.kill(recorder._child.pid, signal.SIGSTOP)
        segment.send(numbered(0), times=sent)
        os.kill(recorder._child.pid, signal.SIGCONT)
        recorder.drain(Deadline.after(30))
        report = recorder.stop(Deadline.after(30))
    missing = sent + 2 - len(read_capture(path))
    assert missing > 0, "the ring held everything: the test proves nothing"
    one = report.interfaces[0]
    assert (report.dropped, one.dropped, one.file_dropped) == (missing, missing, missing)
    assert not report.sound
    assert any(finding.kind == "interface-drops" for finding in read_capture(path).findings)


def test_carrier_lost_in_mid_run_is_reported_with_its_time(segment: Any, tmp_path: Path) -> None:
    with Recorder(segment.host, SEEN0, tmp_path / "capture.pcapng") as recorder:
        recorder.start(Deadline.after(30))
        start_sentinels(segment, recorder)
        segment.ip("link", "set", "send0", "down")
        await_carrier(recorder, False)  # the kernel reports a change late and makes one of two that come too soon
        segment.ip("link", "set", "send0", "up")
        await_carrier(recorder, True)
        recorder.drain(Deadline.after(30))
        report = recorder.stop(Deadline.after(30))
    assert [(change.interface, change.carrier) for change in report.carrier] == [("seen0", False), ("seen0", True)]
    assert report.sentinels[0].time_ns < report.carrier[0].time_ns < report.carrier[1].time_ns < report.stopped_ns
    assert report.interfaces[0].carrier_changes == 2
    assert report.interfaces[0].carrier_at_end is True


def test_an_interface_taken_down_in_mid_run_is_noticed(segment: Any, tmp_path: Path) -> None:
    with Recorder(segment.host, SEEN0, tmp_path / "capture.pcapng") as recorder:
        recorder.start(Deadline.after(30))
        segment.ip("link", "set", "seen0", "down")
        await_carrier(recorder, False)
        report = recorder.stop(Deadline.after(30))
    assert "the interface seen0 was taken down" in report.faults
    assert [change.carrier for change in report.carrier] == [False]
    assert not report.sound


def test_an_interface_that_vanishes_in_mid_run_is_noticed(segment: Any, tmp_path: Path) -> None:
    with Recorder(segment.host, SEEN0, tmp_path / "capture.pcapng") as recorder:
        recorder.start(Deadline.after(30))
        segment.ip("link", "del", "seen0")
        report = recorder.stop(Deadline.after(30))
    assert "the interface seen0 is gone" in report.faults
    assert not report.sound


@pytest.mark.parametrize(
    ("interface", "problem"),
    [
        ("eth7", "there is no interface 'eth7' to capture on; there are: .*seen0"),
        ("02:00:00:00:00:ff", "no interface has the MAC address 02:00:00:00:00:ff"),
        ("02:00:00:00:00:cc", "2 interfaces have the MAC address 02:00:00:00:00:cc: spare[01], spare[01]"),
        ("spare0", "the interface spare0 is down"),
    ],
)
def test_a_wrong_interface_is_refused_before_the_run(
    segment: Any, tmp_path: Path, interface: str, problem: str
) -> None:
    point = capture_point(CapturePoint(point="inline", interface=interface))
    with pytest.raises(CaptureError, match=problem):
        check_capture(segment.host, point, Deadline.after(30))
    with Recorder(segment.host, point, tmp_path / "capture.pcapng") as recorder:
        with pytest.raises(CaptureError, match=problem):
            recorder.start(Deadline.after(30))
    assert list(tmp_path.iterdir()) == []


def test_an_interface_is_found_by_its_mac(segment: Any) -> None:
    point = capture_point(CapturePoint(point="inline", interface="02:00:00:00:00:BB"))
    assert [link.name for link in check_capture(segment.host, point, Deadline.after(30))] == ["seen0"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not capture")
def test_a_user_without_permission_is_told_the_exact_fix(segment: Any, tmp_path: Path) -> None:
    if subprocess.run(["getcap", "/usr/bin/dumpcap"], capture_output=True, check=False).stdout:
        pytest.skip("dumpcap has capabilities of its own here")
    segment.host.user = 65534
    with pytest.raises(CaptureError, match="may not capture on seen0") as refused:
        check_capture(segment.host, SEEN0, Deadline.after(30))
    assert "setcap cap_net_raw,cap_net_admin=eip" in str(refused.value)
    with Recorder(segment.host, SEEN0, tmp_path / "capture.pcapng") as recorder:
        with pytest.raises(CaptureError, match="may not capture on seen0"):
            recorder.start(Deadline.after(30))


def test_a_capture_is_never_written_over(segment: Any, tmp_path: Path) -> None:
    path = tmp_path / "capture.pcapng"
    path.write_bytes(b"evidence")
    with Recorder(segment.host, SEEN0, path) as recorder:
        with pytest.raises(Exception, match="exists already"):
            recorder.start(Deadline.after(30))
    assert path.read_bytes() == b"evidence"
