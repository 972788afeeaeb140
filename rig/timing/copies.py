"""Flows that a capture shows twice, where no sequence number tells a copy from a packet.

A mirror of two ports, or a capture on all interfaces of a host, shows each frame twice or more. A sender that repeats
itself gives each packet an identification of its own (RFC 6864 section 4), unless it never lets them be fragmented.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from rig.timing.flows import Packets

AT_ONCE_NS: Final = 200_000
"""A copy comes within this time."""

_HEADERS: Final = 28
"""Bytes before the payload that must be equal too: IPv4 with its identification and UDP, or most of a TCP header."""
_LOOKED_AT: Final = 2_000
_LEAST: Final = 10
_NEARLY_ALL: Final = 0.8


class Copies(NamedTuple):
    """found: packets that repeat another; looked_at: of so many."""

    found: int
    looked_at: int


def shown_twice(packets: Packets) -> Copies | None:
    """The copies in a flow of which nearly every packet comes again at once, octet for octet; else None.

    Looks at the first 2,000 measured packets, by what the file holds of them.
    """
    table = packets.table
    latest: dict[tuple[int, bytes], int] = {}
    found = 0
    positions = np.flatnonzero(packets.measured)[:_LOOKED_AT].tolist()
    for position in positions:
        row = packets.row[position]
        begin, held = int(table.payload_off[row]), int(min(table.payload_cap[row], table.payload_len[row]))
        key = int(packets.sender[position]), bytes(table.data[max(0, begin - _HEADERS) : begin + held])
        time_ns = int(packets.time_ns[position])
        found += key in latest and time_ns - latest[key] <= AT_ONCE_NS
        latest[key] = time_ns
    if found < max(_LEAST, _NEARLY_ALL * (len(positions) - found)):
        return None
    return Copies(found, len(positions))
