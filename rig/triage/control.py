"""ARP (RFC 826) and ICMP errors (RFC 792) of a frame table: what the network says about itself."""

from __future__ import annotations

import socket
from dataclasses import dataclass

import numpy as np

from rig.timing.table import PROTO_ARP, PROTO_ICMP, FlowKey, FrameTable


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
    """One ICMP error. kind, code as in RFC 792; sender: who sent it. about: flow of the packet that it quotes, None
    where the capture cut the quote."""

    number: int
    time_ns: int
    sender: str
    kind: int
    code: int
    about: FlowKey | None


def arp_exchanges(table: FrameTable) -> list[Arp]:
    """Every who-has that is not gratuitous, with the answer that came before the next one."""
    rows = [
        int(row)
        for row in np.flatnonzero((table.proto == PROTO_ARP) & (table.payload_cap >= 28))
        if int(table.payload_off[row]) + 28 <= len(table.data)
    ][:100_000]
    asked: list[tuple[int, str, str]] = []
    answer: dict[int, int] = {}
    waiting: dict[tuple[str, str], int] = {}
    for row in rows:
        begin = int(table.payload_off[row])
        packet = bytes(table.data[begin : begin + 28])
        operation = int.from_bytes(packet[6:8], "big")
        sender, target = socket.inet_ntoa(packet[14:18]), socket.inet_ntoa(packet[24:28])
        if operation == 1 and sender not in (target, "0.0.0.0"):
            waiting[sender, target] = len(asked)
            asked.append((row, sender, target))
        elif operation == 2 and (target, sender) in waiting:
            answer[waiting.pop((target, sender))] = row
    found = []
    for index, (row, sender, target) in enumerate(asked):
        number, at, reply = int(table.number[row]), int(table.time_ns[row]), answer.get(index)
        if reply is None:
            found.append(Arp(number, at, sender, target, None, None))
        else:
            took = int(table.time_ns[reply]) - at
            found.append(Arp(number, at, sender, target, took, int(table.number[reply])))
    return found


def icmp_errors(table: FrameTable) -> list[Icmp]:
    """The first thousand error messages."""
    found = []
    for row in np.flatnonzero((table.proto == PROTO_ICMP) & (table.payload_cap >= 8))[:1000]:
        begin = int(table.payload_off[row])
        kind, code = table.data[begin], table.data[begin + 1]
        if kind in (3, 4, 5, 11, 12):
            sender = table.flows[table.flow[row]].src if table.flow[row] >= 0 else "?"
            about = _quoted(bytes(table.data[begin + 8 : begin + int(table.payload_cap[row])]))
            found.append(Icmp(int(table.number[row]), int(table.time_ns[row]), sender, int(kind), int(code), about))
    return found


def _quoted(packet: bytes) -> FlowKey | None:
    """Flow of an IPv4 packet of which the header and the ports behind it are there."""
    header = 4 * (packet[0] & 0x0F) if packet else 0
    if header < 20 or len(packet) < header + 4:
        return None
    ports = (int.from_bytes(packet[at : at + 2], "big") for at in (header, header + 2))
    return FlowKey((), socket.inet_ntoa(packet[12:16]), socket.inet_ntoa(packet[16:20]), packet[9], *ports)
