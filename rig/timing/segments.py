"""TCP segments (RFC 9293): which of them bring data, and which only data that was sent before."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rig.timing.flows import Packets, unwrap
from rig.timing.table import PROTO_TCP, FrameTable

_HEADER: Final = np.dtype(
    [("srcport", ">u2"), ("dstport", ">u2"), ("sequence", ">u4"), ("acknowledgement", ">u4"), ("offset", "u1")]
)
"""The header's first 13 bytes; the high half of the last is its length in 32-bit words (section 3.1)."""
_WORDS: Final = range(5, 16)


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
    """Which of the rows, in order of capture, are TCP segments that bring only data sent before.

    Such a segment begins at the sequence number of an earlier one of its flow and is no longer.
    """
    result = np.zeros(len(row), np.bool_)
    segment = np.flatnonzero(_over_tcp(table, row) & (table.payload_len[row] > 0))
    if not len(segment):
        return result
    segment = segment[np.argsort(table.flow[row[segment]], kind="stable")]
    sequence, known = _sequences(table, row[segment])
    segment, sequence = segment[known], sequence[known]
    flow, length = table.flow[row[segment]].astype(np.int64), table.payload_len[row[segment]].astype(np.int64)
    begin = unwrap(sequence, flow, 32)
    order = np.lexsort((begin, flow))
    starts = np.ones(len(order), np.bool_)
    starts[1:] = (np.diff(flow[order]) != 0) | (np.diff(begin[order]) != 0)
    longest = np.maximum.accumulate((np.cumsum(starts) << 32) | length[order])  # of those that begin there
    result[segment[order[1:][np.diff(longest) == 0]]] = True
    return result


def _over_tcp(table: FrameTable, row: NDArray[np.int64]) -> NDArray[np.bool_]:
    over = np.array([key.proto == PROTO_TCP for key in table.flows], np.bool_)
    return over[table.flow[row]] if over.any() else np.zeros(len(row), np.bool_)


def _sequences(table: FrameTable, row: NDArray[np.int64]) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
    """(sequence number, whether it was found) of each segment; its header ends where the payload begins.

    Among the possible lengths it is the one at which the header states its own length and the flow's ports.
    """
    ports = np.array([(key.srcport, key.dstport) for key in table.flows], np.uint16)[table.flow[row]]
    end = table.payload_off[row].astype(np.int64)
    sequence, known = np.zeros(len(row), np.uint32), np.zeros(len(row), np.bool_)
    headers = np.ndarray((max(0, len(table.data) - _HEADER.itemsize + 1),), _HEADER, table.data, strides=(1,))
    for words in _WORDS:
        begin = end - 4 * words
        some = np.flatnonzero(~known & (begin >= 0) & (begin < len(headers)))
        header = headers[begin[some]]
        right = (header["offset"] >> 4 == words) & (header["srcport"] == ports[some, 0])
        right &= header["dstport"] == ports[some, 1]
        sequence[some[right]] = header["sequence"][right]
        known[some[right]] = True
    return sequence, known
