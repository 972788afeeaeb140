"""ARP (RFC 826) and ICMP errors (RFC 792) of a frame table: what the network says about itself."""

from __future__ import annotations

import socket
from dataclasses import dataclass

import numpy as np

from rig.timing.table import PROTO_ARP, PROTO_ICMP, FrameTable


@dataclass(frozen=True)
class Arp:
    """One who-has and what became of it. reply_ns: until the answer, None if none came before the next who-has."""

    number: int
    time_ns: int
    sender: str
    target: str
    reply_ns: int | None
    reply_number: int | None


@dataclass(frozen=True)
class Icmp:
    """One ICMP error. kind, code as in RFC 792; sender: who sent it. target: where the datagram that it quotes was to
    go, empty where the quote is cut."""

    number: int
    time_ns: int
    sender: str
    kind: int
    code: int
    target: str


def arp_exchanges(table: FrameTable) -> list[Arp]:
    """Every who-has that is not gratuitous, with the answer that came before the next one."""
    rows = [
        int(row)
        for row in np.flatnonzero((table.proto == PROTO_ARP) & (table.payload_cap >= 28))
        if int(table.payload_off[row]) + 28 <= len(table.data)
    ][:100_000]
    packets = []
    for row in rows:
        begin = int(table.payload_off[row])
        packet = bytes(table.data[begin : begin + 28])
        operation = int.from_bytes(packet[6:8], "big")
        packets.append((row, operation, socket.inet_ntoa(packet[14:18]), socket.inet_ntoa(packet[24:28])))
    found = []
    for index, (row, operation, sender, target) in enumerate(packets):
        if operation != 1 or sender == target or sender == "0.0.0.0":
            continue
        at = int(table.time_ns[row])
        reply_ns, reply_number = None, None
        for later, kind, other, for_whom in packets[index + 1 :]:
            if kind == 1 and sender == other and target == for_whom:
                break
            if kind == 2 and other == target and for_whom == sender:
                reply_ns, reply_number = int(table.time_ns[later]) - at, int(table.number[later])
                break
        found.append(Arp(int(table.number[row]), at, sender, target, reply_ns, reply_number))
    return found


def icmp_errors(table: FrameTable) -> list[Icmp]:
    """The first thousand error messages."""
    found = []
    for row in np.flatnonzero((table.proto == PROTO_ICMP) & (table.payload_cap >= 8))[:1000]:
        begin = int(table.payload_off[row])
        kind, code = table.data[begin], table.data[begin + 1]
        if kind in (3, 4, 5, 11, 12):
            sender = table.flows[table.flow[row]].src if table.flow[row] >= 0 else "?"
            quoted = bytes(table.data[begin + 8 : begin + 28]) if table.payload_cap[row] >= 28 else b""
            target = socket.inet_ntoa(quoted[16:20]) if len(quoted) == 20 else ""
            found.append(Icmp(int(table.number[row]), int(table.time_ns[row]), sender, int(kind), int(code), target))
    return found
