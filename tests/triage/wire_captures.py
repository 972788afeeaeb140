"""Captures made byte by byte: a board clock that is off, noise on every stamp, probes before the load, sentinels around
it, as on a bench. `talk` asks for each exchange what happens to it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rig.protocol import token_v2
from rig.protocol.token_v2 import ANSWER, FLAG_FIRST, FLAG_LAST, REQUEST, SENTINEL, Header

BOARD, JETSON = "10.77.0.10", "10.77.0.20"
MAC = {BOARD: bytes.fromhex("025249470010"), JETSON: bytes.fromhex("025249470020")}
T0 = 1_700_000_000_000_000_000
BOARD_CLOCK = 123_456_789
US, MS, S = 1_000, 1_000_000, 1_000_000_000
BOOT, RUNNER = 0xB007, 0x1E7
TURN = 1 * MS


@dataclass
class Wire:
    """Frames of a capture, in any order of making; times are ns from T0."""

    seed: int
    frames: list[tuple[int, bytes]] = field(default_factory=list)
    board_sequence: int = 0
    jetson_sequence: int = 0
    boot: int = BOOT
    received: int = 0
    sent: int = 0
    last_seen: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def noise(self) -> int:
        return int(self.rng.gamma(2.0, 8_000)) + 30 * US

    def udp(self, at: int, src: str, payload: bytes, sport: int, dport: int) -> None:
        dst = JETSON if src == BOARD else BOARD
        datagram = struct.pack(">HHHH", sport, dport, 8 + len(payload), 0) + payload
        if len(datagram) <= 1480:
            self.ip(at, src, dst, 17, datagram)
            return
        self.ip(at, src, dst, 17, datagram[:1480], fragment=0x2000)
        self.ip(at + 120 * US, src, dst, 17, datagram[1480:], fragment=1480 // 8)

    def ip(self, at: int, src: str, dst: str, proto: int, body: bytes, fragment: int = 0) -> None:
        ends = socket.inet_aton(src) + socket.inet_aton(dst)
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), len(self.frames) & 0xFFFF, fragment, 64, proto, 0)
        if fragment:
            head = head[:4] + struct.pack(">H", self.board_sequence & 0xFFFF) + head[6:]
        frame = MAC[dst] + MAC[src] + b"\x08\x00" + head + ends + body
        self.frames.append((at, frame.ljust(60, b"\0")))

    def arp(self, at: int, operation: int, sender: str, target: str) -> None:
        packet = struct.pack(">HHBBH", 1, 0x0800, 6, 4, operation) + MAC[sender] + socket.inet_aton(sender)
        packet += bytes(6) + socket.inet_aton(target)
        self.frames.append((at, (b"\xff" * 6 + MAC[sender] + b"\x08\x06" + packet).ljust(60, b"\0")))

    def to_board(self, at: int, payload: bytes) -> None:
        self.udp(at, JETSON, payload, 40000, 5005)

    def from_board(self, at: int, payload: bytes) -> None:
        self.udp(at, BOARD, payload, 5005, 40000)

    def sentinel(self, at: int, kind: int) -> None:
        self.to_board(at, token_v2.sentinel(kind, sequence=self.jetson_sequence, boot_id=RUNNER))
        self.jetson_sequence += 1
        arrives = at + self.noise()
        sends = arrives + 60 * US
        header = Header(
            type=SENTINEL,
            flags={1: FLAG_FIRST, 2: FLAG_LAST}.get(kind, 0),
            request_id=0xFFFF_FFFF - kind,
            sequence=self.board_sequence,
            boot_id=self.boot,
            t_rx_ns=arrives + BOARD_CLOCK,
            t_send_ns=sends + BOARD_CLOCK,
        )
        self.board_sequence += 1
        self.from_board(
            sends + self.noise(),
            token_v2.encode(header, struct.pack("<8I", self.received, 0, self.sent, 0, 0, 0, 0, 0)),
        )

    def request(self, at: int, number: int, tokens: int = 16) -> None:
        header = Header(type=REQUEST, request_id=number, sequence=self.jetson_sequence, boot_id=RUNNER)
        self.jetson_sequence += 1
        self.to_board(at, token_v2.encode(header, token_v2.encode_request(tokens, range(8))))

    def answer(
        self,
        sent: int,
        seen: int | None,
        number: int,
        *,
        received: int,
        ready: int,
        first: bool = True,
        last: bool = True,
        tokens: int = 16,
        start: int = 0,
        times: int = 1,
        spoil: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """A datagram that the board sent and that was seen at `seen`; None: it never passed."""
        header = Header(
            type=ANSWER,
            flags=(FLAG_FIRST if first else 0) | (FLAG_LAST if last else 0),
            request_id=number,
            sequence=self.board_sequence,
            boot_id=self.boot,
            t_rx_ns=received + BOARD_CLOCK,
            t_ready_ns=ready + BOARD_CLOCK,
            t_send_ns=sent + BOARD_CLOCK,
        )
        self.board_sequence += 1
        self.sent += 1
        self.received += first
        if seen is not None:  # a driver sends in order
            seen = self.last_seen = max(seen, self.last_seen + 12 * US)
        ids = [(number * 2654435761 + start + i) & 0xFFFF_FFFF for i in range(tokens)]
        payload = token_v2.encode(header, struct.pack(f"<{len(ids)}I", *ids))  # also more than a frame holds
        if spoil is not None:
            payload = spoil(payload)
        for copy in range(times if seen is not None else 0):
            assert seen is not None
            self.from_board(seen + copy * 60 * US, payload)

    def write(self, path: Path, dropped: int = 0) -> Path:
        blocks = [_block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))]
        blocks.append(_block(1, struct.pack("<HHI", 1, 0, 0) + struct.pack("<HHBxxxHH", 9, 1, 9, 0, 0)))
        for at, frame in sorted(self.frames, key=lambda one: one[0]):
            time = T0 + at
            head = struct.pack("<IIIII", 0, time >> 32, time & 0xFFFF_FFFF, len(frame), len(frame))
            blocks.append(_block(6, head + frame + bytes(-len(frame) % 4)))
        if dropped:
            body = struct.pack("<III", 0, 0, 0) + struct.pack("<HHQHH", 5, 8, dropped, 0, 0)
            blocks.append(_block(5, body))
        path.write_bytes(b"".join(blocks))
        return path


def _block(kind: int, body: bytes) -> bytes:
    return struct.pack("<II", kind, 12 + len(body)) + body + struct.pack("<I", 12 + len(body))


@dataclass(frozen=True)
class Fate:
    """What happens to one exchange. there, hold: added to the way in and out, ns. lost_in, lost_out: it vanishes."""

    there: int = 0
    hold: int = 0
    lost_in: bool = False
    lost_out: bool = False
    times: int = 1
    tokens: int = 16
    spoil: Callable[[bytes], bytes] | None = None


def talk(
    wire: Wire,
    count: int,
    fate: Callable[[int, int], Fate] = lambda i, at: Fate(),
    *,
    every: int = 8 * MS,
    times: Iterable[int] | None = None,
) -> Wire:
    """Probes, start sentinel, `count` exchanges of one datagram each, end sentinel. fate(i, send time)."""
    for i in range(3):
        wire.sentinel(i * MS, 3)
    wire.sentinel(5 * MS, 1)
    at = 10 * MS
    asked = list(times) if times is not None else [at + i * every for i in range(count)]
    arrived = 0  # a wire keeps the order
    for i, at in enumerate(asked):
        what = fate(i, at)
        wire.request(at, i + 1, what.tokens)
        if what.lost_in:
            continue
        received = arrived = max(at + wire.noise() + what.there, arrived + 5 * US)
        ready = received + TURN
        sent = ready + 20 * US
        seen = None if what.lost_out else sent + wire.noise() + what.hold
        wire.answer(
            sent, seen, i + 1, received=received, ready=ready, times=what.times, tokens=what.tokens, spoil=what.spoil
        )
    wire.sentinel(asked[-1] + 400 * MS, 2)
    return wire
