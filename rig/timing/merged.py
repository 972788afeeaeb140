"""Frames that no link carried as they stand in the capture, which then counts fewer packets than passed.

Receive offload (GRO, LRO) joins TCP segments before a capture sees them, segmentation offload (TSO, GSO) cuts them
after it did. How many packets such a frame was, and when each of them passed, nobody knows any more.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rig.timing.flows import Packets
from rig.timing.table import PROTO_TCP, FrameTable

LONGEST: Final = 1522
"""Bytes of an Ethernet frame of 1500 bytes of payload with two VLAN tags, without FCS."""
LONGEST_JUMBO: Final = 9018
"""Bytes of a jumbo frame of 9000 bytes of payload with one VLAN tag; no usual link carries more."""


class Merged(NamedTuple):
    """frames: how many are several packets; of: among so many; longest: in bytes."""

    frames: int
    of: int
    longest: int


def merged_rows(table: FrameTable, row: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of the rows that passed as several packets.

    They are longer than any usual link carries, or TCP and longer than Ethernet's. A UDP datagram between the two is
    taken for one on a link with jumbo frames, as hosts do not join datagrams unless told; TCP segments they do join.
    """
    if table.wire_len.max(initial=0) <= LONGEST:
        return row[:0]
    length = table.wire_len[row]
    merged: NDArray[np.int64] = row[(length > LONGEST_JUMBO) | ((length > LONGEST) & (table.proto[row] == PROTO_TCP))]
    return merged


def merged_frames(packets: Packets) -> Merged | None:
    """The measured frames of a flow that passed as several packets; None where there are none."""
    measured = packets.row[packets.measured]
    merged = merged_rows(packets.table, measured)
    return Merged(len(merged), len(measured), int(packets.table.wire_len[merged].max())) if len(merged) else None
