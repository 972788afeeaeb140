"""TCP segments (RFC 9293): which of them bring data, and which only data that was sent before."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rig.timing.flows import Packets, unwrap
from rig.timing.table import PROTO_TCP, FrameTable

_HEADER: Final = np.dtype(
    [
        ("srcport", ">u2"),
        ("dstport", ">u2"),
        ("sequence", ">u4"),
        ("acknowledgement", ">u4"),
        ("offset", "u1"),
        ("flags", "u1"),
    ]
)
"""The header's first 14 bytes; the high half of `offset` is its length in 32-bit words (section 3.1)."""
_WORDS: Final = range(5, 16)
_SYN: Final = 0x02


def messages(packets: Packets) -> NDArray[np.bool_]:
    """Which packets of a flow may be a message: all but TCP segments without data, and those that repeat data.

    A flow whose `filter` picks nothing but segments without data, as SYN, means these.
    """
    row = packets.row
    empty = _over_tcp(packets.table, row) & (packets.table.payload_len[row] == 0)
    chosen = packets.filtered and bool(empty.all())
    kept: NDArray[np.bool_] = ~repeats(packets.table, row) & (chosen | ~empty)
    return kept


def repeats(table: FrameTable, row: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the rows are TCP segments that bring only data sent before: every octet was in earlier segments of the
    connection, whether the row is a retransmission, cut anew or not, or a keep-alive with an octet (section 3.8.4)."""
    result = np.zeros(len(row), np.bool_)
    asked = np.zeros(len(table.flows) + 1, np.bool_)  # one more: index -1 of frames without a flow finds it
    asked[table.flow[row[_over_tcp(table, row)]]] = True
    if not asked.any():
        return result
    segments = _segments(table, np.flatnonzero(asked[table.flow]))
    repeated = np.zeros(len(table), np.bool_)
    repeated[segments.row[_sent_before(segments)]] = True
    return repeated[row]


class _Segments(NamedTuple):
    """Segments with data, connection by connection, in order of capture. space i8: number of the sender's half of a
    connection. begin, end i8: their octets in it, freed from wraps."""

    row: NDArray[np.int64]
    space: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]


def _segments(table: FrameTable, row: NDArray[np.int64]) -> _Segments:
    row = row[np.argsort(table.flow[row], kind="stable")]
    sequence, flags, known = _headers(table, row)
    row, sequence, flags = row[known], sequence[known], flags[known]
    flow, length = table.flow[row], table.payload_len[row].astype(np.int64)
    # A SYN with another number than the one before begins another connection between the same ports.
    syn = np.flatnonzero(flags & _SYN)
    fresh = np.ones(len(syn), np.bool_)
    fresh[1:] = (sequence[syn[1:]] != sequence[syn[:-1]]) | (flow[syn[1:]] != flow[syn[:-1]])
    begins = np.ones(len(row), np.bool_)
    begins[1:] = flow[1:] != flow[:-1]
    begins[syn[fresh]] = True
    space = np.cumsum(begins, dtype=np.int64)
    data = np.flatnonzero(length > 0)
    begin = unwrap(sequence[data] + (flags[data] & _SYN > 0), space[data], 32)  # a SYN takes a number of its own
    return _Segments(row[data], space[data], begin, begin + length[data])


def _sent_before(segments: _Segments) -> NDArray[np.bool_]:
    _, space, begin, end = segments
    result = np.zeros(len(begin), np.bool_)
    edges = np.flatnonzero(np.diff(space, prepend=-1, append=-1)).tolist()
    for first, beyond in pairwise(edges):
        some = slice(first, beyond)
        before = np.maximum.accumulate(end[some])[:-1]
        low, high = begin[some][1:], end[some][1:]
        if not (low < before).any():
            continue
        if (low > before).any() or (low < begin[first]).any():  # there are holes, which a late segment may fill
            result[some] = np.fromiter(_within(zip(begin[some].tolist(), end[some].tolist(), strict=True)), np.bool_)
        else:
            result[first + 1 : beyond] = high <= before
    return result


def _within(intervals: Iterable[tuple[int, int]]) -> Iterator[bool]:
    """For each half-open interval, whether those before it covered all of it."""
    begins: list[int] = []  # of what is covered, apart and in order
    ends: list[int] = []
    for begin, end in intervals:
        at = bisect_right(begins, begin) - 1
        if at >= 0 and ends[at] >= end:
            yield True
            continue
        yield False
        first = at if at >= 0 and ends[at] >= begin else at + 1
        beyond = bisect_right(begins, end)
        if first < beyond:
            begin, end = min(begin, begins[first]), max(end, ends[beyond - 1])
        begins[first:beyond], ends[first:beyond] = [begin], [end]


def _over_tcp(table: FrameTable, row: NDArray[np.int64]) -> NDArray[np.bool_]:
    over = np.array([key.proto == PROTO_TCP for key in table.flows], np.bool_)
    return over[table.flow[row]] if over.any() else np.zeros(len(row), np.bool_)


def _headers(
    table: FrameTable, row: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], NDArray[np.uint8], NDArray[np.bool_]]:
    """(sequence number, flags, whether they were found) of each segment; its header ends where the payload begins.

    Among the possible lengths it is the one at which the header states its own length and the flow's ports.
    """
    ports = np.array([(key.srcport, key.dstport) for key in table.flows], np.uint16)[table.flow[row]]
    end = table.payload_off[row].astype(np.int64)
    sequence, flags = np.zeros(len(row), np.uint32), np.zeros(len(row), np.uint8)
    known = np.zeros(len(row), np.bool_)
    headers = np.ndarray((max(0, len(table.data) - _HEADER.itemsize + 1),), _HEADER, table.data, strides=(1,))
    for words in _WORDS:
        begin = end - 4 * words
        some = np.flatnonzero(~known & (begin >= 0) & (begin < len(headers)))
        header = headers[begin[some]]
        right = (header["offset"] >> 4 == words) & (header["srcport"] == ports[some, 0])
        right &= header["dstport"] == ports[some, 1]
        sequence[some[right]], flags[some[right]] = header["sequence"][right], header["flags"][right]
        known[some[right]] = True
    return sequence, flags, known
