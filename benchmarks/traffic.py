"""Captures for benchmarks: exchanges of the token protocol over eight UDP flows, made by the million in seconds.

Of 40 frames 32 are plain IPv4/UDP (two pairs of flows), 4 carry a VLAN tag, 2 are IPv6/UDP and 2 are TCP; the mean
frame has 180 bytes. The frames of one period always lie in the same places, so that only what changes (times, numbers,
checksums) is written anew, for all periods at once.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rig.emulation import network
from rig.protocol import token_v2

T0_NS: Final = 1_700_000_000_000_000_000
BOARD, JETSON = network.BOARD_ADDRESS, network.JETSON_ADDRESS
BOARD6, JETSON6 = "2001:db8::10", "2001:db8::20"
REQUEST_TOKENS, ANSWER_TOKENS = 8, 34
VLAN: Final = 42
PERIODS_AT_ONCE: Final = 5_000


@dataclass(frozen=True)
class Pair:
    """Two flows that answer each other: name, board's UDP port, VLAN or None, IP version."""

    name: str
    port: int
    vlan: int | None = None
    version: int = 4


PAIRS: Final = (
    Pair("first", 5005),
    Pair("second", 5006),
    Pair("tagged", 5007, vlan=VLAN),
    Pair("six", 5008, version=6),
)
_PERIOD: Final = (0, 1) * 8 + (2,) * 2 + (3,) + (-1,)
"""Pairs of a period's exchanges, as indices of PAIRS; -1 is a TCP exchange."""


def write_tokens(path: Path, frames: int, *, seed: int = 1, lost: float = 1e-4) -> None:
    """A pcapng file of about `frames` frames, of which a share of answers is lost."""
    rng = np.random.default_rng(seed)
    layout = _Layout()
    with path.open("wb") as file:
        file.write(_head())
        time_ns = T0_NS
        done = 0
        periods = frames // layout.frames
        while done < periods:
            count = min(PERIODS_AT_ONCE, periods - done)
            octets, time_ns = layout.fill(count, done, time_ns, rng)
            kept = np.ones((count, layout.frames), np.bool_)
            kept[:, layout.answers] = rng.random((count, len(layout.answers))) >= lost
            file.write(octets[np.repeat(kept, layout.sizes, axis=1)].tobytes())
            done += count


def write_smallest(path: Path, frames: int) -> None:
    """A pcapng file of UDP frames of minimum size (60 bytes without their check sequence), to and fro, 672 ns apart."""
    there = _udp_frame(Pair("", 5005), b"\0" * 18, to_board=True)
    back = _udp_frame(Pair("", 5005), b"\0" * 18, to_board=False)
    template = np.frombuffer(_block(there) + _block(back), np.uint8)
    with path.open("wb") as file:
        file.write(_head())
        for begin in range(0, frames, 200_000):
            count = min(200_000, frames - begin) // 2
            octets = np.tile(template, (count, 1))
            _stamp(octets, 0, T0_NS + (begin + 2 * np.arange(count, dtype=np.int64)) * 672)
            _stamp(octets, len(template) // 2, T0_NS + (begin + 1 + 2 * np.arange(count, dtype=np.int64)) * 672)
            file.write(octets.tobytes())


class _Layout:
    """One period's bytes, and where in them the changing fields are."""

    def __init__(self) -> None:
        blocks: list[bytes] = []
        self.answers: list[int] = []
        self._tokens: list[tuple[int, int, int, int, int | None]] = []
        """(offset of the header, pair, exchange of that pair within the period, frame, an answer's request frame)."""
        self._per_period = [_PERIOD.count(index) for index in range(len(PAIRS))]
        seen = [0] * len(PAIRS)
        # Two exchanges at a time overlap: request, request, answer, answer.
        for first in range(0, len(_PERIOD), 2):
            two = _PERIOD[first : first + 2]
            numbers = []
            for pair in two:
                numbers.append(seen[pair] if pair >= 0 else 0)
                if pair >= 0:
                    seen[pair] += 1
            asked = len(blocks)
            for answer in (False, True):
                for at, (pair, number) in enumerate(zip(two, numbers, strict=True)):
                    if answer:
                        self.answers.append(len(blocks))
                    if pair < 0:
                        blocks.append(_block(_tcp_frame(to_board=not answer)))
                        continue
                    payload = _payload(answer)
                    frame = _udp_frame(PAIRS[pair], payload, to_board=not answer)
                    header = sum(map(len, blocks)) + 28 + len(frame) - len(payload)
                    self._tokens.append((header, pair, number, len(blocks), asked + at if answer else None))
                    blocks.append(_block(frame))
        self.frames = len(blocks)
        self.sizes = np.array([len(block) for block in blocks])
        self._starts = np.cumsum(self.sizes) - self.sizes
        self._template = np.frombuffer(b"".join(blocks), np.uint8)

    def fill(self, count: int, done: int, time_ns: int, rng: np.random.Generator) -> tuple[NDArray[np.uint8], int]:
        """`count` periods' bytes after `done` earlier ones, from `time_ns` on, and the time after them."""
        octets = np.tile(self._template, (count, 1))
        steps = rng.gamma(2.0, 5_000.0, (count, self.frames)).astype(np.int64) + 700
        times = time_ns + np.cumsum(steps.ravel()).reshape(steps.shape)
        for at, start in enumerate(self._starts):
            _stamp(octets, int(start), times[:, at])
        for header, pair, number, frame, request in self._tokens:
            if request is None:  # the Jetson's clock
                _put(octets, header + 36, (times[:, frame] - T0_NS + 86_400_000_000_000 - 400).astype("<u8"))
            else:  # the board's
                _put(octets, header + 20, (times[:, request] - T0_NS + 5_000_000_000 + 300).astype("<u8"))
                _put(octets, header + 28, (times[:, request] - T0_NS + 5_000_000_000 + 400).astype("<u8"))
                _put(octets, header + 36, (times[:, frame] - T0_NS + 5_000_000_000 - 300).astype("<u8"))
            exchange = (done + np.arange(count, dtype=np.int64)) * self._per_period[pair] + number
            _put(octets, header + 4, exchange.astype("<u4"))
            _put(octets, header + 8, exchange.astype("<u4"))
        rows = [memoryview(row) for row in octets]  # type: ignore[arg-type]
        for header, *_ in self._tokens:
            sums = [zlib.crc32(b"\0\0\0\0", zlib.crc32(row[header : header + 48])) for row in rows]
            _put(octets, header + 48, np.array(sums, "<u4"))
        return octets, int(times[-1, -1])


def _put(octets: NDArray[np.uint8], at: int, values: NDArray[np.unsignedinteger[Any]]) -> None:
    size = values.dtype.itemsize
    octets[:, at : at + size] = np.ascontiguousarray(values).view(np.uint8).reshape(-1, size)


def _stamp(octets: NDArray[np.uint8], block: int, time_ns: NDArray[np.int64]) -> None:
    _put(octets, block + 12, (time_ns >> 32).astype(np.uint32))
    _put(octets, block + 16, (time_ns & 0xFFFF_FFFF).astype(np.uint32))


def _payload(answer: bool) -> bytes:
    kind = token_v2.ANSWER if answer else token_v2.REQUEST
    body = 4 * ANSWER_TOKENS if answer else 4 + 4 * REQUEST_TOKENS
    head = struct.pack("<2sBBIIIHHQQQII", b"T2", kind, 3, 0, 0, 7 if answer else 9, body, 0, 0, 0, 0, 200, 0)
    prefix = b"" if answer else struct.pack("<HH", ANSWER_TOKENS, 0)
    return head + prefix + b"\x2a\0\0\0" * ((body - len(prefix)) // 4)


def _udp_frame(pair: Pair, payload: bytes, *, to_board: bool) -> bytes:
    ports = (40000, pair.port) if to_board else (pair.port, 40000)
    segment = struct.pack(">HHHH", *ports, 8 + len(payload), 0) + payload
    return _ethernet(_ip(segment, 17, pair.version, to_board), pair.version, pair.vlan, to_board)


def _tcp_frame(*, to_board: bool) -> bytes:
    ports = (40001, 502) if to_board else (502, 40001)
    segment = struct.pack(">HHIIBBHHH", *ports, 1, 1, 0x50, 0x18, 8192, 0, 0) + b"\x55" * 126
    return _ethernet(_ip(segment, 6, 4, to_board), 4, None, to_board)


def _ip(segment: bytes, proto: int, version: int, to_board: bool) -> bytes:
    if version == 6:
        a, b = (bytes.fromhex("20010db8" + "00" * 11 + last) for last in ("20", "10"))
        src, dst = (a, b) if to_board else (b, a)
        return struct.pack(">IHBB16s16s", 6 << 28, len(segment), proto, 64, src, dst) + segment
    board, jetson = (bytes(map(int, address.split("."))) for address in (BOARD, JETSON))
    src, dst = (jetson, board) if to_board else (board, jetson)
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(segment), 0, 0x4000, 64, proto, 0, src, dst)
    total = sum(struct.unpack(">10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack(">H", ~total & 0xFFFF) + head[12:] + segment


def _ethernet(packet: bytes, version: int, vlan: int | None, to_board: bool) -> bytes:
    a, b = b"\x02\0\0\0\0\x20", b"\x02\0\0\0\0\x10"
    addresses = b + a if to_board else a + b
    tag = b"" if vlan is None else struct.pack(">HH", 0x8100, vlan)
    return addresses + tag + (b"\x08\0" if version == 4 else b"\x86\xdd") + packet


def _block(frame: bytes) -> bytes:
    """An Enhanced Packet Block of interface 0, its time still 0."""
    length = 32 + (len(frame) + 3) // 4 * 4
    return (
        struct.pack("<IIIIIII", 6, length, 0, 0, 0, len(frame), len(frame))
        + frame
        + b"\0" * (-len(frame) % 4)
        + struct.pack("<I", length)
    )


def _head() -> bytes:
    section = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    resolution = struct.pack("<HHB3xHH", 9, 1, 9, 0, 0)
    length = 20 + len(resolution)
    return section + struct.pack("<IIHHI", 1, length, 1, 0, 0) + resolution + struct.pack("<I", length)
