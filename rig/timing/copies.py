"""Flows that a capture shows twice, where no sequence number tells a copy from a packet.

A mirror of two ports, or a capture on all interfaces of a host, shows each frame twice or more. A sender that repeats
itself gives each packet an identification of its own (RFC 6864 section 4), unless it never lets them be fragmented.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rig.timing.table import FrameTable

AT_ONCE_NS: Final = 200_000
"""A copy comes within this time."""

_HEADERS: Final = 28
"""Bytes before the payload that must be equal too: IPv4 with its identification and UDP, or most of a TCP header."""
_LOOKED_AT: Final = 2_000
_LEAST: Final = 10
_NEARLY_ALL: Final = 0.8


def nearly_all(copies: int, looked_at: int) -> bool:
    """Whether so many copies among the packets looked at say that each is shown more than once."""
    return copies >= max(_LEAST, _NEARLY_ALL * (looked_at - copies))


class Copies(NamedTuple):
    """row i8: rows that repeat another; looked_at: of so many."""

    row: NDArray[np.int64]
    looked_at: int


def shown_twice(table: FrameTable, row: NDArray[np.int64]) -> Copies | None:
    """The copies among rows of which nearly every one comes again at once in its flow, octet for octet; else None.

    Looks at the first 2,000 of them, by what the file holds of each.
    """
    latest: dict[tuple[int, bytes], int] = {}
    found = []
    looked_at = row[:_LOOKED_AT].tolist()
    for at in looked_at:
        begin, held = int(table.payload_off[at]), int(min(table.payload_cap[at], table.payload_len[at]))
        key = int(table.flow[at]), bytes(table.data[max(0, begin - _HEADERS) : begin + held])
        time_ns = int(table.time_ns[at])
        if key in latest and time_ns - latest[key] <= AT_ONCE_NS:
            found.append(at)
        latest[key] = time_ns
    if not nearly_all(len(found), len(looked_at)):
        return None
    return Copies(np.array(found, np.int64), len(looked_at))
