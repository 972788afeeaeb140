"""token-v2: the rig's own exchange over UDP, little-endian, a 52-byte header before u32 token ids.

Pure: bytes in, values out. The wire format is fixed by docs/architecture.md and tests/vectors/token_v2.json.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from rig.protocol import TokenError

MAGIC: Final = b"T2"
HEADER_LENGTH: Final = 52
DEFAULT_PORT: Final = 5005
MAX_TOKENS: Final = 355
"""Tokens per datagram: 1472 (Ethernet MTU 1500 less IPv4 and UDP headers) less 52, over 4."""

REQUEST, ANSWER, ACKNOWLEDGE, ERROR, SENTINEL = 1, 2, 3, 4, 5
TYPE_NAMES: Final = {
    REQUEST: "request",
    ANSWER: "answer",
    ACKNOWLEDGE: "acknowledge",
    ERROR: "error",
    SENTINEL: "sentinel",
}
FLAG_FIRST, FLAG_LAST = 1, 2

UNKNOWN_TIME: Final = 0
"""Value of a stamp that the sender does not know."""
UNKNOWN_QUEUED: Final = 0xFFFF_FFFF

SENTINEL_START, SENTINEL_END, SENTINEL_PROBE = 1, 2, 3
SENTINEL_COUNTERS: Final = (
    "rx_requests",
    "rx_bad",
    "tx_answers",
    "tx_acks",
    "pushes",
    "tx_err",
    "rx_sentinels",
    "uptime_ms",
)

FIELDS: Final[tuple[tuple[str, str, int], ...]] = (
    ("magic", "2s", 0),
    ("type", "B", 2),
    ("flags", "B", 3),
    ("request_id", "I", 4),
    ("sequence", "I", 8),
    ("boot_id", "I", 12),
    ("payload_length", "H", 16),
    ("reserved", "H", 18),
    ("t_rx_ns", "Q", 20),
    ("t_ready_ns", "Q", 28),
    ("t_send_ns", "Q", 36),
    ("prev_queued_ns", "I", 44),
    ("crc32", "I", 48),
)
"""(name, struct code, offset) of each header field; every decoder, vectorised ones too, is made from this table."""

_HEADER = struct.Struct("<" + "".join(code for _, code, _ in FIELDS))
_COUNTERS = struct.Struct(f"<{len(SENTINEL_COUNTERS)}I")
_REQUEST_PREFIX = struct.Struct("<HH")


@dataclass(frozen=True, kw_only=True)
class Header:
    """One header. Stamps are ns of the sender's monotonic clock, 0 where unknown.

    sequence: per sender and boot. t_rx_ns: request received. t_ready_ns: inference done. t_send_ns: before the
    datagram was handed to the stack. prev_queued_ns: how long the *previous* datagram took from its t_send until it
    was queued, 0xFFFFFFFF unknown.
    """

    type: int
    flags: int = FLAG_FIRST | FLAG_LAST
    request_id: int
    sequence: int = 0
    boot_id: int = 0
    payload_length: int = 0
    t_rx_ns: int = UNKNOWN_TIME
    t_ready_ns: int = UNKNOWN_TIME
    t_send_ns: int = UNKNOWN_TIME
    prev_queued_ns: int = UNKNOWN_QUEUED

    @property
    def first(self) -> bool:
        return bool(self.flags & FLAG_FIRST)

    @property
    def last(self) -> bool:
        return bool(self.flags & FLAG_LAST)

    @property
    def sentinel_kind(self) -> int | None:
        """SENTINEL_START, SENTINEL_END or SENTINEL_PROBE; None for anything else."""
        kind = 0xFFFF_FFFF - self.request_id
        return kind if self.type == SENTINEL and kind in (SENTINEL_START, SENTINEL_END, SENTINEL_PROBE) else None


@dataclass(frozen=True)
class Datagram:
    """A whole UDP payload: sound header and exactly the payload that it declares."""

    header: Header
    payload: bytes

    @property
    def from_board(self) -> bool:
        """True for a sentinel that the board returned (it carries the counters, the runner's carries nothing)."""
        return self.header.type == SENTINEL and len(self.payload) == _COUNTERS.size


_RANGES: Final = {name: (1 << 8 * struct.calcsize(code)) - 1 for name, code, _ in FIELDS if code != "2s"}


def encode_header(header: Header) -> bytes:
    """The 52 bytes with their CRC; TokenError when a field does not fit."""
    for item in fields(header):
        value = getattr(header, item.name)
        if not 0 <= value <= _RANGES[item.name]:
            raise TokenError(item.name, f"{value} does not fit into 0..{_RANGES[item.name]}")
    if header.type not in TYPE_NAMES:
        raise TokenError("type", f"{header.type} is none of {_names()}")
    packed = _HEADER.pack(
        MAGIC,
        header.type,
        header.flags,
        header.request_id,
        header.sequence,
        header.boot_id,
        header.payload_length,
        0,
        header.t_rx_ns,
        header.t_ready_ns,
        header.t_send_ns,
        header.prev_queued_ns,
        0,
    )
    return packed[:-4] + header_crc(packed).to_bytes(4, "little")


def encode(header: Header, payload: bytes = b"") -> bytes:
    """A whole datagram; `payload_length` is set from the payload."""
    return encode_header(replace(header, payload_length=len(payload))) + payload


def header_crc(data: bytes | memoryview) -> int:
    """CRC-32 (zlib) of the header in `data` with its CRC field taken as zero."""
    return zlib.crc32(b"\0\0\0\0", zlib.crc32(data[: HEADER_LENGTH - 4]))


def decode_header(data: bytes | memoryview) -> Header:
    """The header at the start of `data`; TokenError names the first field that is wrong."""
    if len(data) < HEADER_LENGTH:
        raise TokenError("length", f"{len(data)} bytes, a header has {HEADER_LENGTH}")
    (magic, kind, flags, request_id, sequence, boot_id, length, reserved, t_rx, t_ready, t_send, queued, crc) = (
        _HEADER.unpack_from(data)
    )
    if magic != MAGIC:
        raise TokenError("magic", f"{magic!r}, expected {MAGIC!r}")
    if crc != (computed := header_crc(data)):
        raise TokenError("crc32", f"0x{crc:08x} in the header, 0x{computed:08x} computed")
    if kind not in TYPE_NAMES:
        raise TokenError("type", f"{kind} is none of {_names()}")
    if reserved:
        raise TokenError("reserved", f"{reserved}, expected 0")
    return Header(
        type=kind,
        flags=flags,
        request_id=request_id,
        sequence=sequence,
        boot_id=boot_id,
        payload_length=length,
        t_rx_ns=t_rx,
        t_ready_ns=t_ready,
        t_send_ns=t_send,
        prev_queued_ns=queued,
    )


def decode(data: bytes | memoryview) -> Datagram:
    """A whole UDP payload; TokenError when header or length is wrong."""
    header = decode_header(data)
    if len(data) - HEADER_LENGTH != header.payload_length:
        raise TokenError(
            "payload_length", f"{header.payload_length} in the header, {len(data) - HEADER_LENGTH} in the datagram"
        )
    return Datagram(header, bytes(data[HEADER_LENGTH:]))


def encode_tokens(tokens: Sequence[int]) -> bytes:
    """u32 token ids of an answer; TokenError beyond 355 of them."""
    if len(tokens) > MAX_TOKENS:
        raise TokenError("tokens", f"{len(tokens)} token ids, a datagram holds at most {MAX_TOKENS}")
    return struct.pack(f"<{len(tokens)}I", *tokens)


def decode_tokens(payload: bytes) -> tuple[int, ...]:
    """Token ids of an answer's payload."""
    if len(payload) % 4:
        raise TokenError("tokens", f"{len(payload)} bytes are no whole number of u32 token ids")
    return struct.unpack(f"<{len(payload) // 4}I", payload)


def encode_request(answer_tokens: int, prompt: Sequence[int]) -> bytes:
    """Payload of a request: u16 answer_tokens, u16 zero, then the prompt's token ids."""
    if len(prompt) > MAX_TOKENS - 1:
        raise TokenError("tokens", f"{len(prompt)} prompt tokens, a request holds at most {MAX_TOKENS - 1}")
    if not 0 <= answer_tokens <= 0xFFFF:
        raise TokenError("answer_tokens", f"{answer_tokens} does not fit into 0..65535")
    return _REQUEST_PREFIX.pack(answer_tokens, 0) + encode_tokens(prompt)


def decode_request(payload: bytes) -> tuple[int, tuple[int, ...]]:
    """(answer_tokens, prompt) of a request's payload."""
    if len(payload) < _REQUEST_PREFIX.size:
        raise TokenError("answer_tokens", f"{len(payload)} bytes of payload, a request begins with 4")
    answer_tokens, _ = _REQUEST_PREFIX.unpack_from(payload)
    return answer_tokens, decode_tokens(payload[_REQUEST_PREFIX.size :])


def decode_counters(payload: bytes) -> dict[str, int]:
    """The board's counters from the payload of a sentinel that it returned."""
    if len(payload) != _COUNTERS.size:
        raise TokenError("counters", f"{len(payload)} bytes, a returned sentinel carries {_COUNTERS.size}")
    return dict(zip(SENTINEL_COUNTERS, _COUNTERS.unpack(payload), strict=True))


def sentinel(kind: int, *, sequence: int = 0, boot_id: int = 0, t_send_ns: int = 0) -> bytes:
    """A sentinel datagram as the runner sends it (SENTINEL_START, SENTINEL_END or SENTINEL_PROBE)."""
    flags = {SENTINEL_START: FLAG_FIRST, SENTINEL_END: FLAG_LAST, SENTINEL_PROBE: 0}[kind]
    return encode(
        Header(
            type=SENTINEL,
            flags=flags,
            request_id=0xFFFF_FFFF - kind,
            sequence=sequence,
            boot_id=boot_id,
            t_send_ns=t_send_ns,
        )
    )


def _names() -> str:
    return ", ".join(f"{number} ({name})" for number, name in TYPE_NAMES.items())
