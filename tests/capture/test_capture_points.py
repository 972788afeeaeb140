"""Capture points: what each kind says of itself, the tap's two interfaces, and frames on the wrong one."""

from __future__ import annotations

import os
import select
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from capture_files import T0, epb, ethernet, idb, ipv4, shb, udp

from rig.bench.load import load_bench
from rig.bench.model import CapturePoint
from rig.capture.points import POINTS, capture_point
from rig.capture.reader import read_capture
from rig.capture.recorder import Recorder, check_capture
from rig.deadline import Deadline
from rig.errors import BenchError, CaptureError
from rig.protocol import token_v2
from rig.timing.direction import wrong_way

BOARD, JETSON = bytes([192, 0, 2, 10]), bytes([192, 0, 2, 20])
TAP = capture_point(CapturePoint(point="tap", to_board="seen0", from_board="spare1"))

_SEND = """
import socket, sys
packet = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
packet.bind((sys.argv[1], 0))
for line in sys.stdin:
    packet.send(bytes.fromhex(line))
"""


def frame(payload: bytes, *, to_board: bool) -> bytes:
    ends = {"src": JETSON, "dst": BOARD} if to_board else {"src": BOARD, "dst": JETSON}
    ports = {"sport": 40000, "dport": 5005} if to_board else {"sport": 5005, "dport": 40000}
    return ethernet(ipv4(udp(payload, **ports), **ends))


def returned(kind: int) -> bytes:
    header = token_v2.decode_header(token_v2.sentinel(kind))
    return token_v2.encode(header, struct.pack("<8I", *range(8)))


class Tap:
    """Two veth pairs of the private namespace as a tap: send0 feeds seen0 (to the board), spare0 feeds spare1."""

    def __init__(self, segment: Any, folder: Path) -> None:
        self._segment = segment
        self._frames = folder / "frames"
        segment.ip("link", "set", "spare0", "up")
        segment.ip("link", "set", "spare1", "up")

    def to_board(self, *payloads: bytes) -> None:
        self._segment.send(*(frame(payload, to_board=True) for payload in payloads))

    def from_board(self, *payloads: bytes) -> None:
        self._frames.write_text("".join(frame(payload, to_board=False).hex() + "\n" for payload in payloads))
        command = f'exec "$0" -c "$1" spare0 < {self._frames}'
        done = self._segment.host.run(["sh", "-c", command, sys.executable, _SEND], Deadline.after(30))
        assert done.returncode == 0, done.stderr


@pytest.fixture
def tap(segment: Any, tmp_path: Path) -> Tap:
    return Tap(segment, tmp_path)


# --- kinds ------------------------------------------------------------------------------------------------------------


def test_every_point_of_a_bench_file_has_a_kind() -> None:
    named = CapturePoint.model_fields["point"].annotation.__args__  # type: ignore[union-attr]
    assert sorted(POINTS) == sorted(named)


def test_a_tap_has_one_interface_per_direction_and_the_board_s_comes_first() -> None:
    assert (TAP.interfaces, TAP.directions) == (("seen0", "spare1"), ("to-board", "from-board"))
    assert (TAP.wire, TAP.on_jetson, TAP.duplicates) == (True, False, False)


def test_only_the_jetson_s_stamps_precede_the_wire() -> None:
    assert [kind for kind, point in POINTS.items() if not point.wire] == ["jetson"]
    point = capture_point(CapturePoint(point="jetson", interface="eth0"))
    assert (point.on_jetson, point.interfaces) == (True, ("eth0",))
    assert "before it reaches the wire" in point.stamps


def test_known_duplication_is_the_bench_file_s_to_say() -> None:
    assert capture_point(CapturePoint(point="mirror", interface="m", duplication=True)).duplicates
    assert not capture_point(CapturePoint(point="mirror", interface="m")).duplicates


HARDWARE = """\
bench: lab
uncertainty: {declared: 20 us}
board:
  serial: {port: /dev/ttyS0}
  identity: {name: lab, mac: '02:00:00:00:00:03', address: 192.0.2.10}
jetson:
  host: orin
  user: rig
  host_key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f
  bench_address: 192.0.2.20
capture: %s
"""


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ("{point: tap, to_board: a0}", "11:1: the capture point `tap` needs `from_board`"),
        ("{point: tap, interface: a0}", "`interface` has no meaning for the capture point `tap`"),
        ("{point: tap, to_board: a0, from_board: a0}", "`a0` is `to_board` already"),
        ("{point: tap, to_board: a0, from_board: 'x y'}", "`x y` is neither an interface name"),
        ("{point: inline, to_board: a0}", "`to_board` has no meaning for the capture point `inline`"),
        ("{point: jetson}", "the capture point `jetson` needs `interface`"),
        ("{interface: this-is-much-too-long}", "is neither an interface name"),
    ],
)
def test_interfaces_that_do_not_fit_the_point_are_faults_with_their_place(
    tmp_path: Path, section: str, complaint: str
) -> None:
    path = tmp_path / "bench.yaml"
    path.write_text(HARDWARE % section)
    with pytest.raises(BenchError) as caught:
        load_bench(path)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("section", ["{point: tap, to_board: a0, from_board: b0}", "{point: jetson, interface: eth0}"])
def test_a_tap_and_the_jetson_s_own_interface_can_be_said(tmp_path: Path, section: str) -> None:
    path = tmp_path / "bench.yaml"
    path.write_text(HARDWARE % section)
    capture = load_bench(path).capture
    assert capture is not None
    assert len(capture_point(capture).interfaces) == len(capture_point(capture).directions)


# --- the tap ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("drained_by_sentinel")
def test_both_sides_of_a_tap_are_one_file_with_one_clock(tap: Tap, segment: Any, tmp_path: Path) -> None:
    path = tmp_path / "capture.pcapng"
    with Recorder(segment.host, TAP, path) as recorder:
        recorder.start(Deadline.after(30))
        for index in range(20):
            tap.to_board(b"Q%d" % index)
            tap.from_board(b"A%d" % index)
        tap.to_board(token_v2.sentinel(token_v2.SENTINEL_END))
        tap.from_board(returned(token_v2.SENTINEL_END))
        recorder.drain(Deadline.after(30))
        report = recorder.stop(Deadline.after(30))
    assert report.sound, report
    assert report.drained == "end-sentinel"
    assert [(one.name, one.direction, one.received) for one in report.interfaces] == [
        ("seen0", "to-board", 21),
        ("spare1", "from-board", 21),
    ]
    table = read_capture(path)
    # Sent in turns, so sorted by the one clock the interfaces alternate.
    assert table.interface.tolist() == [0, 1] * 21
    assert wrong_way(table, TAP.directions, "192.0.2.10") is None


def test_the_board_s_answer_alone_does_not_prove_the_other_side_s_tail(tap: Tap, segment: Any, tmp_path: Path) -> None:
    with Recorder(segment.host, TAP, tmp_path / "capture.pcapng") as recorder:
        recorder.start(Deadline.after(30))
        tap.from_board(returned(token_v2.SENTINEL_END))
        recorder.drain(Deadline.after(30))
        assert [seen.kind for seen in recorder.sentinels] == [token_v2.SENTINEL_END]
        assert recorder.stop(Deadline.after(30)).drained == "quiet-time"


def test_a_tap_with_one_side_missing_is_refused_by_name(segment: Any) -> None:
    point = capture_point(CapturePoint(point="tap", to_board="seen0", from_board="gone0"))
    with pytest.raises(CaptureError, match="there is no interface 'gone0'"):
        check_capture(segment.host, point, Deadline.after(30))


# --- frames on the wrong side -----------------------------------------------------------------------------------------


def tapped(tmp_path: Path, *frames: tuple[int, bool]) -> Any:
    """A capture of a tap: (interface, goes to the board) of each frame."""
    blocks = [
        epb(T0 + index * 1000, frame(b"x", to_board=to_board), interface=interface)
        for index, (interface, to_board) in enumerate(frames)
    ]
    path = tmp_path / "tap.pcapng"
    path.write_bytes(shb() + idb(name=b"tap-a") + idb(name=b"tap-b") + b"".join(blocks))
    return read_capture(path)


def test_frames_on_their_own_side_are_no_finding(tmp_path: Path) -> None:
    table = tapped(tmp_path, (0, True), (1, False), (0, True))
    assert wrong_way(table, ("to-board", "from-board"), "192.0.2.10") is None


def test_swapped_cables_are_told_from_a_tap_that_shows_both_directions(tmp_path: Path) -> None:
    swapped = wrong_way(tapped(tmp_path, (1, True), (0, False)), ("to-board", "from-board"), "192.0.2.10")
    assert swapped is not None
    assert not swapped.joined
    assert "1 of 1 frames on tap-a (there for to-board)" in swapped.finding.detail
    assert "swapped" in swapped.finding.detail

    joined = wrong_way(tapped(tmp_path, (0, True), (0, False), (1, False)), ("to-board", "from-board"), "192.0.2.10")
    assert joined is not None
    assert joined.joined
    assert joined.finding.kind == "wrong-interface"
    assert "1 of 2 frames on tap-a" in joined.finding.detail
    assert "the first is frame 2" in joined.finding.detail


def test_an_interface_for_both_directions_has_no_wrong_side(tmp_path: Path) -> None:
    assert wrong_way(tapped(tmp_path, (0, True), (0, False)), ("both", "both"), "192.0.2.10") is None


# --- a killed controller ----------------------------------------------------------------------------------------------

# Stands for a dumpcap that users may run: the kernel takes the parent-death signal from programs with capabilities.
_UNBOUND = """
import ctypes, time
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
print("unbound", flush=True)
time.sleep(1000)
"""
_CONTROLLER = """
import sys
import time
from pathlib import Path
from rig.bench.host import LocalHost
output = Path(sys.argv[1])
child = LocalHost().spawn([sys.executable, "-c", sys.argv[2]], stdout=output, stderr=output)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_a_recorder_that_the_kernel_would_not_end_ends_with_a_killed_controller(tmp_path: Path) -> None:
    output = tmp_path / "output"
    root = Path(__file__).resolve().parents[2]
    controller = subprocess.Popen(
        [sys.executable, "-c", _CONTROLLER, output, _UNBOUND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root
    )
    assert controller.stdout is not None
    assert controller.stdin is not None
    child = os.pidfd_open(int(controller.stdout.readline()))
    end = time.monotonic() + 30
    while "unbound" not in output.read_text():
        assert time.monotonic() < end
        time.sleep(0.01)
    controller.kill()
    controller.wait()
    controller.stdin.close()
    controller.stdout.close()
    assert select.select([child], [], [], 30.0)[0], "it still runs"
    os.close(child)
