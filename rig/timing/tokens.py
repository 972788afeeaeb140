"""Token datagrams of a frame table as columns: headers decoded and checked for all rows at once.

The layouts are those of `rig.protocol`; here they only become NumPy record types. A row that is not a sound token
datagram keeps its reason and is never silently dropped.
"""

from __future__ import annotations

import ctypes
import zlib
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rig import _native
from rig.protocol import token_v1, token_v2
from rig.timing.table import PROTO_UDP, FrameTable

V2_HEADER = np.dtype(
    {
        "names": [name for name, _, _ in token_v2.FIELDS],
        "formats": [
            "S2" if code == "2s" else f"<u{ {'B': 1, 'H': 2, 'I': 4, 'Q': 8}[code] }" for _, code, _ in token_v2.FIELDS
        ],
        "offsets": [offset for _, _, offset in token_v2.FIELDS],
        "itemsize": token_v2.HEADER_LENGTH,
    }
)
V1_HEADER = np.dtype(
    {
        "names": [name for name, _, _ in token_v1.FIELDS],
        "formats": [f"<u{ {'B': 1, 'H': 2, 'I': 4, 'Q': 8}[code] }" for _, code, _ in token_v1.FIELDS],
        "offsets": [offset for _, _, offset in token_v1.FIELDS],
        "itemsize": token_v1.HEADER_LENGTH,
    }
)

SOUND, CUT, NOT_TOKEN, BAD_CHECKSUM, BAD_FIELD, BAD_LENGTH = range(6)
REASONS = {
    CUT: "cut by the capture's snaplen",
    NOT_TOKEN: "not a token datagram",
    BAD_CHECKSUM: "header checksum is wrong",
    BAD_FIELD: "unknown type or reserved field set",
    BAD_LENGTH: "length field does not fit the datagram",
}

_NATIVE_COLUMNS: Final[dict[str, Any]] = {
    "row": np.int64,
    "type": np.uint8,
    "first": np.bool_,
    "last": np.bool_,
    "request_id": np.uint32,
    "sequence": np.uint32,
    "boot_id": np.uint32,
    "t_rx_ns": np.uint64,
    "t_ready_ns": np.uint64,
    "t_send_ns": np.uint64,
    "prev_queued_ns": np.uint32,
    "tokens": np.int32,
    "answer_tokens": np.int32,
}
"""The kernel's columns, which are those of `Tokens` but `content`."""

_CHUNK = 1 << 14
"""Rows per step of the checksum: columns of one step stay in the cache."""


@dataclass(frozen=True)
class Tokens:
    """Columns of m sound token datagrams in order of capture.

    row i8: index into the frame table. type u1: token-v2 type; token-v1 has none, 0. first, last: flags (both set in
    token-v1). request_id u4: token-v1 uses its sequence, which an answer repeats. sequence u4, `sequence_bits` wide.
    boot_id u4: 0 in token-v1. Stamps u8: ns of the sender's clock, 0 unknown. prev_queued_ns u4: 0xFFFFFFFF unknown.
    tokens i4: token ids in the datagram. answer_tokens i4: what a request asks for, -1 elsewhere or unknown; token-v1
    does not tell requests from answers, there it is the first token of any datagram. content u8: in token-v1, where the
    datagrams of one answer share a number, a hash of the payload that tells them apart; 0 in token-v2.
    """

    row: NDArray[np.int64]
    type: NDArray[np.uint8]
    first: NDArray[np.bool_]
    last: NDArray[np.bool_]
    request_id: NDArray[np.uint32]
    sequence: NDArray[np.uint32]
    boot_id: NDArray[np.uint32]
    t_rx_ns: NDArray[np.uint64]
    t_ready_ns: NDArray[np.uint64]
    t_send_ns: NDArray[np.uint64]
    prev_queued_ns: NDArray[np.uint32]
    tokens: NDArray[np.int32]
    answer_tokens: NDArray[np.int32]
    content: NDArray[np.uint64]
    sequence_bits: int = 32

    def __len__(self) -> int:
        return len(self.row)

    def take(self, index: NDArray[np.bool_] | NDArray[np.int64]) -> Tokens:
        """The entries that a mask or an index array picks."""
        where = np.flatnonzero(index) if index.dtype == np.bool_ else index  # The mask is searched once.
        columns = {
            item.name: getattr(self, item.name).take(where) for item in fields(self) if item.name != "sequence_bits"
        }
        return Tokens(**columns, sequence_bits=self.sequence_bits)


@dataclass(frozen=True)
class Decoded:
    """What became of the rows that were asked for: `reason` u1 aligned with `row` (SOUND or why not)."""

    row: NDArray[np.int64]
    reason: NDArray[np.uint8]
    tokens: Tokens


def udp_rows(table: FrameTable) -> NDArray[np.int64]:
    """Rows that are UDP datagrams."""
    return np.flatnonzero((table.proto == PROTO_UDP) & (table.flow >= 0))


def decode_v2(table: FrameTable, rows: NDArray[np.int64]) -> Decoded:
    """Decode `rows` as token-v2. The checks are those of `token_v2.decode`, for all rows at once."""
    library = _native.load()
    if library is not None:
        return _decode_v2_natively(library, table, rows)
    size = token_v2.HEADER_LENGTH
    offset, length, captured = _payloads(table, rows)
    reason = np.full(len(rows), SOUND, np.uint8)
    reason[length < size] = NOT_TOKEN
    reason[(length >= size) & (captured < size)] = CUT
    readable = np.flatnonzero(reason == SOUND)
    header = _records(table, V2_HEADER)[offset[readable]] if len(readable) else np.empty(0, V2_HEADER)

    known = (header["type"] >= token_v2.REQUEST) & (header["type"] <= token_v2.SENTINEL)
    body = length[readable] - size
    # The first fault named is the last assigned.
    verdict = np.full(len(readable), SOUND, np.uint8)
    verdict[header["payload_length"] != body] = BAD_LENGTH
    verdict[(header["type"] <= token_v2.ANSWER) & (body % 4 != 0)] = BAD_LENGTH
    verdict[~known | (header["reserved"] != 0)] = BAD_FIELD
    is_token = header["magic"] == token_v2.MAGIC
    verdict[is_token] = np.where(
        _header_crc(header[is_token]) != header["crc32"][is_token], BAD_CHECKSUM, verdict[is_token]
    )
    verdict[~is_token] = NOT_TOKEN
    reason[readable] = verdict

    good = verdict == SOUND
    sound = readable[good]
    header = header[good]
    tokens = (body[good] // 4).astype(np.int32)
    request = header["type"] == token_v2.REQUEST
    tokens[request] -= 1  # u16 answer_tokens and u16 zero come before the prompt
    answer_tokens = np.full(len(sound), -1, np.int32)
    with_prefix = np.flatnonzero(request & (captured[sound] >= size + 4))
    if len(with_prefix):
        answer_tokens[with_prefix] = _records(table, np.dtype("<u2"))[offset[sound[with_prefix]] + size]
    return Decoded(
        rows,
        reason,
        Tokens(
            row=rows[sound],
            type=header["type"].copy(),
            first=(header["flags"] & token_v2.FLAG_FIRST) != 0,
            last=(header["flags"] & token_v2.FLAG_LAST) != 0,
            request_id=header["request_id"].copy(),
            sequence=header["sequence"].copy(),
            boot_id=header["boot_id"].copy(),
            t_rx_ns=header["t_rx_ns"].copy(),
            t_ready_ns=header["t_ready_ns"].copy(),
            t_send_ns=header["t_send_ns"].copy(),
            prev_queued_ns=header["prev_queued_ns"].copy(),
            tokens=tokens,
            answer_tokens=answer_tokens,
            content=np.zeros(len(sound), np.uint64),
        ),
    )


def _decode_v2_natively(library: ctypes.CDLL, table: FrameTable, rows: NDArray[np.int64]) -> Decoded:
    """The same by the C kernel, which reads each header once."""
    count = len(rows)
    data = np.frombuffer(table.data, np.uint8)
    given = [
        np.ascontiguousarray(column)
        for column in (table.payload_off, table.payload_len, table.payload_cap, np.asarray(rows, np.int64))
    ]
    payloads = _native.Payloads(data.ctypes.data, len(data), *(column.ctypes.data for column in given), count)
    reason = np.empty(count, np.uint8)
    columns: dict[str, Any] = {name: np.empty(count, dtype) for name, dtype in _NATIVE_COLUMNS.items()}
    pointers = _native.TokenColumns(**{name: column.ctypes.data for name, column in columns.items()})
    sound = library.rig_tokens_v2(payloads, reason.ctypes.data, pointers)
    return Decoded(
        rows,
        reason,
        Tokens(
            **{name: column[:sound] for name, column in columns.items()},
            content=np.zeros(sound, np.uint64),
            sequence_bits=32,
        ),
    )


def decode_v1(table: FrameTable, rows: NDArray[np.int64]) -> Decoded:
    """Decode `rows` as token-v1. The payload's sum8 is checked where the whole payload is in the file."""
    size = token_v1.HEADER_LENGTH
    offset, length, captured = _payloads(table, rows)
    reason = np.full(len(rows), SOUND, np.uint8)
    reason[length < size] = NOT_TOKEN
    reason[(length >= size) & (captured < length)] = CUT
    readable = np.flatnonzero(reason == SOUND)
    header = _records(table, V1_HEADER)[offset[readable]] if len(readable) else np.empty(0, V1_HEADER)
    body = length[readable] - size
    verdict = np.full(len(readable), SOUND, np.uint8)
    verdict[(header["payload_length"] != body) | (body % 2 != 0)] = BAD_LENGTH
    fits = np.flatnonzero(verdict == SOUND)
    sums, content = _sums(table, offset[readable[fits]] + size, body[fits])
    verdict[fits[sums != header["sum8"][fits]]] = BAD_CHECKSUM
    reason[readable] = verdict

    good = verdict == SOUND
    sound = readable[good]
    zero8 = np.zeros(len(sound), np.uint64)
    sequence = header["sequence"][good].astype(np.uint32)
    always = np.ones(len(sound), np.bool_)
    answer_tokens = np.full(len(sound), -1, np.int32)
    filled = np.flatnonzero(body[good] >= 2)
    if len(filled):
        answer_tokens[filled] = _records(table, np.dtype("<u2"))[offset[sound[filled]] + size]
    return Decoded(
        rows,
        reason,
        Tokens(
            row=rows[sound],
            type=np.zeros(len(sound), np.uint8),
            first=always,
            last=always,
            request_id=sequence,
            sequence=sequence,
            boot_id=np.zeros(len(sound), np.uint32),
            t_rx_ns=zero8,
            t_ready_ns=zero8,
            t_send_ns=zero8,
            prev_queued_ns=np.full(len(sound), token_v2.UNKNOWN_QUEUED, np.uint32),
            tokens=(body[good] // 2).astype(np.int32),
            answer_tokens=answer_tokens,
            content=content[verdict[fits] == SOUND],
            sequence_bits=16,
        ),
    )


def _payloads(
    table: FrameTable, rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(offset, length, bytes of it in the file) of the rows' payloads, never beyond the data."""
    offset = table.payload_off[rows].astype(np.int64)
    length = table.payload_len[rows].astype(np.int64)
    captured = np.minimum(table.payload_cap[rows].astype(np.int64), len(table.data) - offset)
    return offset, length, captured


def _records(table: FrameTable, dtype: np.dtype[np.void] | np.dtype[np.uint16]) -> NDArray[np.void]:
    """The data seen as one record at every byte offset."""
    count = max(0, len(table.data) - dtype.itemsize + 1)
    return np.ndarray((count,), dtype, table.data, strides=(1,)) if count else np.empty(0, dtype)


def _header_crc(header: NDArray[np.void]) -> NDArray[np.uint32]:
    """CRC-32 of each header with its CRC field taken as zero.

    CRC-32 is linear over GF(2): the sum is that of an all-zero header, XORed with one table entry per byte.
    """
    tables, zero = _crc_tables()
    octets = np.ascontiguousarray(header).view(np.uint8).reshape(len(header), token_v2.HEADER_LENGTH)
    result = np.full(len(header), zero, np.uint32)
    for begin in range(0, len(header), _CHUNK):
        columns = np.ascontiguousarray(octets[begin : begin + _CHUNK, : len(tables)].T)
        part = result[begin : begin + _CHUNK]
        for table, column in zip(tables, columns, strict=True):
            if column[0] == column[-1] and (column == column[0]).all():
                part ^= table[column[0]]
            else:
                part ^= table[column]
    return result


@cache
def _crc_tables() -> tuple[NDArray[np.uint32], int]:
    size = token_v2.HEADER_LENGTH
    zero = zlib.crc32(bytes(size))
    tables = np.zeros((size - 4, 256), np.uint32)
    for position, table in enumerate(tables):
        for value in range(256):
            message = bytearray(size)
            message[position] = value
            table[value] = zlib.crc32(message) ^ zero
    return tables, zero


def _sums(
    table: FrameTable, offset: NDArray[np.int64], length: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """Of `length` bytes at each `offset`: their sum modulo 256, and a hash (bytes times odd weights modulo 2**64)."""
    data = np.frombuffer(table.data, np.uint8)
    sums, hashes = np.zeros(len(offset), np.uint8), length.astype(np.uint64)
    weight = np.random.default_rng(1).integers(0, 1 << 63, int(length.max(initial=1)), np.uint64) * 2 + 1
    for begin in range(0, len(offset), _CHUNK):
        some = np.flatnonzero(length[begin : begin + _CHUNK]) + begin
        if len(some):
            ends = np.cumsum(length[some])
            starts = ends - length[some]
            within = np.arange(ends[-1]) - np.repeat(starts, length[some])
            octets = data[within + np.repeat(offset[some], length[some])].astype(np.uint64)
            sums[some] = np.add.reduceat(octets, starts) & 0xFF
            hashes[some] += np.add.reduceat(octets * weight[within], starts)
    return sums, hashes
