"""The frame table: one row per captured frame, columns as NumPy arrays. Every metric is a function of it.

Rows are sorted by time (stable), `number` is the frame's number in the file as Wireshark shows it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PROTO_OTHER, PROTO_UDP, PROTO_TCP, PROTO_ARP, PROTO_ICMP = 0, 17, 6, 255, 1


class FlowKey(NamedTuple):
    """What tells one flow from another. Addresses are text as Wireshark prints them; ports 0 where there are none."""

    vlans: tuple[int, ...]
    src: str
    dst: str
    proto: int
    srcport: int
    dstport: int


@dataclass(frozen=True)
class FrameTable:
    """Columns of n rows.

    number u4: frame number in the file, from 1. time_ns i8: ns since the epoch. interface u2: index in the file.
    wire_len, cap_len u4: bytes on the wire / in the file. flow i4: index into `flows`, -1 for frames without one.
    proto u1: PROTO_*. payload_off u8: where the datagram's (UDP) or segment's (TCP) payload begins in `data`; of an ARP
    frame the ARP packet is the payload.
    payload_len u4: its length by the UDP header or IP length, never Ethernet padding. payload_cap u4: bytes of it in
    the file (less when snaplen cut it). first_ns i8: time of the datagram's first fragment (= time_ns when whole);
    a datagram of several fragments is the row of the fragment that came last, its other rows have flow -1.
    data: all frames' bytes, which the offsets point into.
    """

    number: NDArray[np.uint32]
    time_ns: NDArray[np.int64]
    first_ns: NDArray[np.int64]
    interface: NDArray[np.uint16]
    wire_len: NDArray[np.uint32]
    cap_len: NDArray[np.uint32]
    proto: NDArray[np.uint8]
    flow: NDArray[np.int32]
    payload_off: NDArray[np.uint64]
    payload_len: NDArray[np.uint32]
    payload_cap: NDArray[np.uint32]
    flows: tuple[FlowKey, ...]
    data: bytes | memoryview
    interfaces: tuple[InterfaceInfo, ...] = ()
    findings: tuple[ReaderFinding, ...] = ()

    def __len__(self) -> int:
        return len(self.number)

    @cached_property
    def ends(self) -> Ends:
        """Between which ends each flow passes, whatever its VLAN tags."""
        number: dict[Hashable, int] = {}

        def numbered(things: Iterable[Hashable]) -> NDArray[np.int64]:
            return np.array([number.setdefault(thing, len(number)) for thing in things], np.int64)

        return Ends(
            source=numbered((key.proto, key.src, key.srcport) for key in self.flows),
            target=numbered((key.proto, key.dst, key.dstport) for key in self.flows),
            pair=numbered(key[1:] for key in self.flows),
        )


class Ends(NamedTuple):
    """Columns over the flow keys of a table; a copy in another VLAN has the same ends. source, target i8: number of the
    sending and of the receiving end (protocol, address, port). pair i8: number of the two together."""

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    pair: NDArray[np.int64]


def interfaces_of(table: FrameTable, *rows: NDArray[np.int64]) -> list[InterfaceInfo]:
    """The interfaces that show frames of these rows, in the order of the file."""
    count = len(table.interfaces)
    if count < 2:
        return list(table.interfaces)
    frames = np.zeros(count, np.int64)
    for row in rows:
        frames += np.bincount(table.interface[row], minlength=count)
    return [interface for interface, shown in zip(table.interfaces, frames, strict=True) if shown]


class ReaderFinding(NamedTuple):
    """Something the reader noticed. kind: `cut-file`, `corrupt-block`, `unsupported-linktype`, `time-step-back`,
    `snaplen-cut`, `no-timestamp`, `interface-drops`, `incomplete-datagram`, `too-many-flows`;
    detail: one sentence with the figures."""

    kind: str
    detail: str
    amount: int = 0
    """`time-step-back`: the largest step, ns."""


@dataclass(frozen=True)
class InterfaceInfo:
    """An interface of the capture file. Drops are -1 where the file does not say. system: operating system of the host
    that it was in, empty where the file does not say."""

    name: str
    linktype: int
    resolution_ns: float
    received: int = -1
    dropped: int = -1
    system: str = ""
