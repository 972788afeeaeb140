"""The link relay: moves every frame between the emulator and the bench segment, and imposes the impairments.

A process of its own inside the bench. To the bench it is the far end of the cable at `board-port` (AF_PACKET on the
veth peer), to the emulator the peer of its datagram netdev. Copies go to the SPAN port (both directions: what goes to
the board as it arrives here, what comes from it as it leaves for the bench) and to the two taps, one direction each.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import time
from dataclasses import dataclass

from rig.emulation.impair import Schedule, rule_from_json
from rig.emulation.linux import be_punctual, set_process_name
from rig.emulation.messages import DisconnectedError, Message, failed, ok, receive_message, send_message

# linux/if_ether.h, linux/if_packet.h, linux/socket.h
_ETH_P_ALL = 0x0003
_SOL_PACKET, _PACKET_STATISTICS, _PACKET_AUXDATA, _PACKET_IGNORE_OUTGOING = 263, 6, 8, 23
_TP_STATUS_VLAN_VALID, _TP_STATUS_VLAN_TPID_VALID = 1 << 4, 1 << 6
_SO_RCVBUFFORCE = 33
_TPACKET_AUXDATA = struct.Struct("IIIHHHH")  # status, len, snaplen, mac, net, vlan_tci, vlan_tpid

_FRAME_MAX = 65_536
_BURST = 16
"""Frames taken from one socket before timers are looked at again."""
_SPIN_NS = 60_000
"""The kernel wakes a sleeper this much late; a timer sleeps shorter and waits the rest in a loop."""


@dataclass(frozen=True)
class RelayPorts:
    """Interfaces in the relay's namespace, each the hidden end of a veth pair. mirror_copies: how often the mirror port
    shows each frame; a switch that mirrors both sides of a port shows it twice."""

    wire: str = "board-wire"
    mirror: str = "mirror0-in"
    to_board_tap: str = "tap-a-in"
    from_board_tap: str = "tap-b-in"
    mirror_copies: int = 1


def run_relay(control: socket.socket, emulator: socket.socket, ports: RelayPorts) -> None:
    """Serve until `control` is closed. `emulator` is the connected datagram socket of the emulator's netdev."""
    set_process_name("rig-relay")
    be_punctual()
    with _Relay(control, emulator, ports) as relay:
        relay.serve()


class _Relay:
    def __init__(self, control: socket.socket, emulator: socket.socket, ports: RelayPorts) -> None:
        self._control = control
        self._emulator = emulator
        self._emulator.setblocking(False)
        self._stack = contextlib.ExitStack()
        self._wire = self._stack.enter_context(_packet_socket(ports.wire, receive=True))
        self._mirrors = (self._stack.enter_context(_packet_socket(ports.mirror)),) * ports.mirror_copies
        self._tap_to = self._stack.enter_context(_packet_socket(ports.to_board_tap))
        self._tap_from = self._stack.enter_context(_packet_socket(ports.from_board_tap))
        self._to_board = Schedule("to-board")
        self._from_board = Schedule("from-board")
        self._waiting: list[bytes] = []  # for room in the emulator's socket
        self._counts = {"copies": 0, "copy_errors": 0, "link_down": 0, "kernel_drops": 0, "waits_for_emulator": 0}
        self._late_max_ns = 0

    def __enter__(self) -> _Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def serve(self) -> None:
        inputs = [self._wire, self._emulator, self._control]
        while True:
            timeout = self._sleep_s()
            outputs = [self._emulator] if self._waiting else []
            readable, writable, _ = select.select(inputs, outputs, [], timeout)
            if writable:
                waiting, self._waiting = self._waiting, []
                self._send_to_emulator(waiting)
            if self._wire in readable:
                self._take_from_bench()
            if self._emulator in readable:
                self._take_from_emulator()
            if self._control in readable:
                try:
                    request, _ = receive_message(self._control)
                    send_message(self._control, self._answer(request))
                except DisconnectedError:
                    return
            self._release_due()

    def _sleep_s(self) -> float | None:
        times = [due for due in (self._to_board.due_ns(), self._from_board.due_ns()) if due is not None]
        if not times:
            return None
        return max(0, min(times) - time.monotonic_ns() - _SPIN_NS) / 1e9

    def _take_from_bench(self) -> None:
        for _ in range(_BURST):
            try:
                data, ancillary, _, _ = self._wire.recvmsg(_FRAME_MAX, 64)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ENETDOWN:  # reported once, after the link was taken down
                    return
                raise
            now_ns = time.monotonic_ns()
            frame = _with_vlan_tag(data, ancillary)
            self._copy(frame, *self._mirrors, self._tap_to)
            self._to_board.arrive(now_ns, frame)
            self._send_to_emulator(self._to_board.release(now_ns))

    def _take_from_emulator(self) -> None:
        for _ in range(_BURST):
            try:
                frame = self._emulator.recv(_FRAME_MAX)
            except (BlockingIOError, ConnectionResetError, ConnectionRefusedError):
                return
            now_ns = time.monotonic_ns()
            self._from_board.arrive(now_ns, frame)
            self._send_to_bench(self._from_board.release(now_ns))

    def _release_due(self) -> None:
        for schedule, send in ((self._to_board, self._send_to_emulator), (self._from_board, self._send_to_bench)):
            due_ns = schedule.due_ns()
            if due_ns is None:
                continue
            now_ns = time.monotonic_ns()
            if due_ns - now_ns > _SPIN_NS:
                continue
            while now_ns < due_ns:
                now_ns = time.monotonic_ns()
            self._late_max_ns = max(self._late_max_ns, now_ns - due_ns)
            send(schedule.release(now_ns))

    def _send_to_emulator(self, frames: list[bytes]) -> None:
        if self._waiting:
            self._waiting += frames
            return
        for index, frame in enumerate(frames):
            try:
                self._emulator.send(frame)
            except BlockingIOError:  # it has not read yet what fills the socket's buffer
                self._counts["waits_for_emulator"] += 1
                self._waiting = frames[index:]
                return
            except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
                self._counts["link_down"] += 1

    def _send_to_bench(self, frames: list[bytes]) -> None:
        for frame in frames:
            try:
                self._wire.send(frame)
            except OSError as error:
                if error.errno not in (errno.ENETDOWN, errno.ENOBUFS, errno.EMSGSIZE):
                    raise
                self._counts["link_down" if error.errno == errno.ENETDOWN else "copy_errors"] += 1
                continue
            self._copy(frame, *self._mirrors, self._tap_from)

    def _copy(self, frame: bytes, *ports: socket.socket) -> None:
        for port in ports:
            try:
                port.send(frame)
                self._counts["copies"] += 1
            except OSError:
                self._counts["copy_errors"] += 1

    def _answer(self, request: Message) -> Message:
        if request["op"] == "rules":
            rules = [rule_from_json(fields) for fields in request["rules"]]
            self._to_board.set_rules(rules)
            self._from_board.set_rules(rules)
            return ok()
        if request["op"] == "counters":
            return ok(counters=self._counters())
        if request["op"] == "forget":  # the board lost power: what waits for its port is gone
            self._waiting.clear()
            return ok()
        return failed(f"the relay knows no operation {request['op']!r}")

    def _counters(self) -> Message:
        # PACKET_STATISTICS starts again from zero at each reading.
        drops = struct.unpack("II", self._wire.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1]
        self._counts["kernel_drops"] += drops
        late_max_ns, self._late_max_ns = self._late_max_ns, 0
        return {
            "to-board": self._to_board.counters.as_dict() | {"in_flight": self._to_board.in_flight()},
            "from-board": self._from_board.counters.as_dict() | {"in_flight": self._from_board.in_flight()},
            **self._counts,
            "late_max_ns": late_max_ns,
        }


def _packet_socket(interface: str, *, receive: bool = False) -> socket.socket:
    """A packet(7) socket on one interface, without what other sockets send there."""
    protocol = socket.htons(_ETH_P_ALL) if receive else 0
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    if receive:
        sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        sock.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        try:
            sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 4 << 20)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)  # capped by net.core.rmem_max
    sock.bind((interface, socket.ntohs(protocol)))
    sock.setblocking(False)
    return sock


def _with_vlan_tag(data: bytes, ancillary: list[tuple[int, int, bytes]]) -> bytes:
    """The frame as it was on the wire: the kernel moves an outer VLAN tag out of the frame into the control message."""
    for level, kind, payload in ancillary:
        if level == _SOL_PACKET and kind == _PACKET_AUXDATA and len(payload) >= _TPACKET_AUXDATA.size:
            status, _, _, _, _, tci, tpid = _TPACKET_AUXDATA.unpack_from(payload)
            if status & _TP_STATUS_VLAN_VALID:
                tag = struct.pack(">HH", tpid if status & _TP_STATUS_VLAN_TPID_VALID else 0x8100, tci)
                return data[:12] + tag + data[12:]
    return data
