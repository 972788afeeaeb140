"""Fragments between two ends whose datagram never became whole: the reader counts such datagrams and names nobody."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rig.capture.decode import Decoder, flow_key
from rig.capture.fragments import Joiner
from rig.timing.table import PROTO_TCP, PROTO_UDP, FrameTable

_MOST = 100_000
"""Fragments that are looked at one by one."""
_HEADERS = 42
"""Bytes of Ethernet, IPv4 and UDP header: a payload that does not fit behind them came in several frames."""


class Lone(NamedTuple):
    """A fragment whose datagram is not whole. datagram: the same for all fragments of one."""

    number: int
    time_ns: int
    datagram: Hashable


def lone_fragments(table: FrameTable, one: str, other: str) -> list[Lone]:
    """Fragments of UDP and TCP between two addresses that belong to no datagram of the table, in order of capture."""
    carried = (table.proto == PROTO_UDP) | (table.proto == PROTO_TCP)
    parts = np.flatnonzero(carried & (table.flow < 0) & (table.payload_len == 0))
    if not len(parts):
        return []
    longer = table.payload_len.astype(np.int64) + _HEADERS > table.wire_len
    whole = np.flatnonzero(carried & (table.flow >= 0) & ((table.first_ns < table.time_ns) | longer))
    # Nearly always a datagram has two fragments; its row tells when the first of them came.
    parts = parts[~np.isin(table.time_ns[parts], table.first_ns[whole])]
    spans = {ends: _spans(table, whole, ends) for ends in ((one, other), (other, one))}
    note, decoder = _Note(), Decoder()
    decoder.joiner = note
    found: list[Lone] = []
    for row in map(int, parts[:_MOST]):
        begin, time_ns, interface = int(table.payload_off[row]), int(table.time_ns[row]), int(table.interface[row])
        frame = bytes(table.data[begin : begin + int(table.cap_len[row])])
        linktype = table.interfaces[interface].linktype
        note.datagram, note.ends = None, ("", "")
        decoder.decode(frame, 0, len(frame), int(table.wire_len[row]), linktype, time_ns, interface)
        if note.ends not in spans:
            continue  # others' fragment, or none: a datagram that was cut, or has no ports
        begins, until = spans[note.ends]
        at = int(np.searchsorted(begins, time_ns, "right")) - 1
        if at < 0 or until[at] < time_ns:
            found.append(Lone(int(table.number[row]), time_ns, note.datagram))
    return found


class _Note(Joiner):
    """Takes down whose fragment it is given, and joins nothing."""

    datagram: Hashable = None
    ends = ("", "")

    def add(self, key: Hashable, time_ns: int, offset: int, length: int, more: bool, captured: bytes) -> None:
        del time_ns, offset, length, more, captured
        assert isinstance(key, tuple)
        flow = flow_key((), key[2], key[3], 0, 0, 0)
        self.datagram, self.ends = key, (flow.src, flow.dst)


def _spans(
    table: FrameTable, whole: NDArray[np.int64], ends: tuple[str, str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """When the datagrams from one end to the other began that came in several frames, and the latest end so far."""
    wanted = np.array([(key.src, key.dst) == ends for key in table.flows], np.bool_)
    rows = whole[wanted[table.flow[whole]]] if len(wanted) else whole[:0]
    rows = rows[np.argsort(table.first_ns[rows], kind="stable")]
    return table.first_ns[rows], np.maximum.accumulate(table.time_ns[rows])
