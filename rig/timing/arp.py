"""ARP in a frame table: was the board asked for its address, and did it answer (RFC 826)?

A host that gets no answer never sends its datagrams; the who-has frames are then all that the capture shows of them.
"""

from __future__ import annotations

import socket

import numpy as np
from numpy.typing import NDArray

from rig.timing.table import PROTO_ARP, FrameTable

_PACKET = np.dtype(
    [
        ("hardware", ">u2"),
        ("protocol", ">u2"),
        ("lengths", ">u2"),
        ("operation", ">u2"),
        ("sender_mac", "V6"),
        ("sender_ip", "<u4"),
        ("target_mac", "V6"),
        ("target_ip", "<u4"),
    ]
)
_REQUEST, _REPLY = 1, 2


def unanswered(table: FrameTable, address: str) -> NDArray[np.int64]:
    """Rows of the who-has frames for an IPv4 `address` that no answer followed any more; empty when all is well.

    Rows of ARP frames have `payload_off` at the ARP packet; frames too short to hold one are passed over.
    """
    none = np.empty(0, np.int64)
    try:
        wanted = np.frombuffer(socket.inet_aton(address), "<u4")[0]
    except OSError:
        return none
    rows = np.flatnonzero((table.proto == PROTO_ARP) & (table.payload_cap >= _PACKET.itemsize))
    count = len(table.data) - _PACKET.itemsize + 1
    rows = rows[table.payload_off[rows].astype(np.int64) < count]
    if not len(rows):
        return none
    packet = np.ndarray((count,), _PACKET, table.data, strides=(1,))[table.payload_off[rows].astype(np.int64)]
    answered = np.flatnonzero((packet["operation"] == _REPLY) & (packet["sender_ip"] == wanted))
    # A gratuitous request asks for the sender's own address.
    asked = (packet["operation"] == _REQUEST) & (packet["target_ip"] == wanted) & (packet["sender_ip"] != wanted)
    if len(answered):
        asked[: answered[-1]] = False
    silent: NDArray[np.int64] = rows[asked]
    return silent
