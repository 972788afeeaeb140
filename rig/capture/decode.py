"""From frame to datagram: link layer, VLAN tags, IPv4 and IPv6, UDP and TCP; the plain decoder, written to be checked.

Ethernet II, Linux cooked v1 and v2, raw IP and BSD loopback. What an ICMP error quotes stays inside the ICMP message.
"""

from __future__ import annotations

import socket
import struct
from typing import Final, NamedTuple

from rig.capture.fragments import Joiner
from rig.capture.frames import Buffer
from rig.timing.table import PROTO_ARP, PROTO_ICMP, PROTO_OTHER, PROTO_TCP, PROTO_UDP, FlowKey

JOINED: Final = 1 << 62
"""Added to a payload offset that points into `Decoder.joined` in place of the buffer."""

ETHERNET: Final = 1
_NULL, _LOOP, _SLL, _SLL2 = 0, 108, 113, 276
_RAW: Final = frozenset({12, 14, 101, 228, 229})
SUPPORTED: Final = frozenset({ETHERNET, _NULL, _LOOP, _SLL, _SLL2}) | _RAW
LINKTYPE_NAMES: Final = {
    9: "PPP",
    50: "PPP in HDLC framing",
    104: "Cisco HDLC",
    105: "IEEE 802.11",
    127: "IEEE 802.11 with radiotap",
    147: "user 0",
    192: "PPI",
    195: "IEEE 802.15.4",
    197: "ERF",
    220: "USB",
    227: "CAN",
    239: "NFLOG",
    253: "netlink",
}

_IPV4, _IPV6, _ARP = 0x0800, 0x86DD, 0x0806
_ARP_SIZE: Final = 28
"""Of an ARP packet for Ethernet and IPv4 (RFC 826)."""
_VLAN_TAGS: Final = frozenset({0x8100, 0x88A8, 0x9100})
_ICMP, _TCP, _UDP, _ICMPV6 = 1, 6, 17, 58
_HOP_BY_HOP, _ROUTING, _FRAGMENT, _AUTHENTICATION, _DESTINATION, _MOBILITY = 0, 43, 44, 51, 60, 135
_BSD_FAMILIES: Final = {2: _IPV4, 24: _IPV6, 28: _IPV6, 30: _IPV6, 10: _IPV6}

_U16 = struct.Struct(">H").unpack_from
_PORTS = struct.Struct(">HH").unpack_from
_IPV4_HEADER = struct.Struct(">BxHHHxBxx4s4s").unpack_from
_IPV6_HEADER = struct.Struct(">IHBx16s16s").unpack_from


class Decoded(NamedTuple):
    """What a frame holds. The fields are those of the frame table's columns of the same names; flow is -1 for none."""

    proto: int
    flow: int
    payload_off: int
    payload_len: int
    payload_cap: int
    first_ns: int


MAX_FLOWS: Final = 1_000_000
"""More flows than that are not told apart: each takes memory, and scans or spoofed addresses make one per packet."""


class Decoder:
    """Decodes frames one by one; remembers flows and open fragments."""

    def __init__(self) -> None:
        self.flows: list[FlowKey] = []
        self.not_listed = 0
        """Packets of further flows than `MAX_FLOWS`."""
        self.joined = bytearray()
        """Payloads of datagrams that came in fragments."""
        self.joiner = Joiner()
        self._by_bytes: dict[tuple[tuple[int, ...], bytes, bytes, int, int, int], int] = {}

    def flow(self, vlans: tuple[int, ...], src: bytes, dst: bytes, proto: int, srcport: int, dstport: int) -> int:
        """Index of the flow in `flows`, -1 where it is one too many; src and dst are 4 or 16 bytes."""
        key = (vlans, src, dst, proto, srcport, dstport)
        index = self._by_bytes.get(key)
        if index is None:
            if len(self.flows) == MAX_FLOWS:
                self.not_listed += 1
                return -1
            index = self._by_bytes[key] = len(self.flows)
            self.flows.append(flow_key(*key))
        return index

    def decode(
        self, data: Buffer, offset: int, captured: int, wire: int, linktype: int, time_ns: int, interface: int
    ) -> Decoded:
        """Decode the frame of `captured` bytes at `offset`; never raises, whatever the bytes are."""
        frame = data[offset : offset + captured]
        nothing = Decoded(PROTO_OTHER, -1, offset, 0, 0, time_ns)
        try:
            ethertype, at, vlans = _link(frame, linktype)
            if ethertype == _ARP:
                at = min(at, captured)
                held = min(_ARP_SIZE, captured - at)
                return nothing._replace(proto=PROTO_ARP, payload_off=offset + at, payload_len=held, payload_cap=held)
            if ethertype == _IPV4:
                packet = _ipv4(frame, at, wire)
            elif ethertype == _IPV6:
                packet = _ipv6(frame, at, wire)
            else:
                return nothing
        except struct.error:
            return nothing  # Cut by the snap length within its headers.
        if packet is None:
            return nothing
        if packet.fragment is None:
            at = min(captured, packet.at)
            end = min(captured, packet.at + packet.length)
            return self._transport(frame[at:end], packet, vlans, offset + at, nothing)
        identification, fragment_offset, more = packet.fragment
        whole = self.joiner.add(
            (interface, vlans, packet.src, packet.dst, packet.proto, identification),
            time_ns,
            fragment_offset,
            packet.length,
            more,
            frame[packet.at : packet.at + packet.length],
        )
        if whole is None:
            return nothing._replace(proto=_PROTOS.get(packet.proto, PROTO_OTHER))
        start = JOINED + len(self.joined)
        self.joined += whole.payload
        packet = packet._replace(length=whole.length, fragment=None)
        return self._transport(whole.payload, packet, vlans, start, nothing._replace(first_ns=whole.first_ns))

    def _transport(
        self, segment: bytes, packet: _Packet, vlans: tuple[int, ...], start: int, nothing: Decoded
    ) -> Decoded:
        """segment: what the file has of the IP payload, which begins at `start`."""
        proto = _PROTOS.get(packet.proto, PROTO_OTHER)
        srcport = dstport = header = 0
        length = packet.length
        if proto in (PROTO_UDP, PROTO_TCP):
            if len(segment) < 4:
                return nothing._replace(proto=proto)
            srcport, dstport = _PORTS(segment)
            header = 8
            if proto == PROTO_TCP:
                header = 20 if len(segment) < 13 else max(20, (segment[12] >> 4) * 4)
            elif len(segment) >= 6:
                # 0 stands for "as long as the IP packet": jumbograms (RFC 2675) and segmentation offload.
                length = min(length, _U16(segment, 4)[0] or length)
            if length < header:
                return nothing._replace(proto=proto)
        flow = self.flow(vlans, packet.src, packet.dst, proto, srcport, dstport)
        payload = length - header
        captured = max(0, min(payload, len(segment) - header))
        return Decoded(proto, flow, start + min(header, len(segment)), payload, captured, nothing.first_ns)


def flow_key(vlans: tuple[int, ...], src: bytes, dst: bytes, proto: int, srcport: int, dstport: int) -> FlowKey:
    """A flow's key with its addresses, of 4 or 16 bytes, as text."""
    family = socket.AF_INET if len(src) == 4 else socket.AF_INET6
    return FlowKey(vlans, socket.inet_ntop(family, src), socket.inet_ntop(family, dst), proto, srcport, dstport)


class _Packet(NamedTuple):
    """An IP packet: its payload's protocol, place in the frame and length by the IP header; fragment is
    (identification, offset in bytes, more follow)."""

    src: bytes
    dst: bytes
    proto: int
    at: int
    length: int
    fragment: tuple[int, int, bool] | None


_PROTOS: Final = {_UDP: PROTO_UDP, _TCP: PROTO_TCP, _ICMP: PROTO_ICMP, _ICMPV6: PROTO_ICMP}


def _link(frame: bytes, linktype: int) -> tuple[int, int, tuple[int, ...]]:
    """(ethertype, offset of the network header, VLAN ids from outer to inner); ethertype 0 for what is not ours."""
    if linktype == ETHERNET:
        at = 14
    elif linktype == _SLL:
        at = 16
    elif linktype == _SLL2:
        at = 20
    elif linktype in _RAW:
        version = frame[0] >> 4 if frame else 0
        return {4: _IPV4, 6: _IPV6}.get(version, 0), 0, ()
    elif linktype in (_NULL, _LOOP):
        # The family is in the byte order of the machine that captured; its values are below 256.
        family = struct.unpack_from(">I", frame)[0]
        return _BSD_FAMILIES.get(family if family < 256 else int.from_bytes(frame[:4], "little"), 0), 4, ()
    else:
        return 0, 0, ()
    ethertype = _U16(frame, 0 if linktype == _SLL2 else at - 2)[0]
    vlans: tuple[int, ...] = ()
    while ethertype in _VLAN_TAGS:
        control, ethertype = _PORTS(frame, at)
        vlans += (control & 0x0FFF,)
        at += 4
    return ethertype, at, vlans


def _ipv4(frame: bytes, at: int, wire: int) -> _Packet | None:
    first, total, identification, fragment, proto, src, dst = _IPV4_HEADER(frame, at)
    header = (first & 0x0F) * 4
    if first >> 4 != 4 or header < 20:
        return None
    if total == 0:
        total = wire - at  # Segmentation offload leaves the length to the hardware.
    if total < header:
        return None
    offset, more = (fragment & 0x1FFF) * 8, bool(fragment & 0x2000)
    part = (identification, offset, more) if offset or more else None
    return _Packet(src, dst, proto, at + header, total - header, part)


def _ipv6(frame: bytes, at: int, wire: int) -> _Packet | None:
    first, length, proto, src, dst = _IPV6_HEADER(frame, at)
    if first >> 28 != 6:
        return None
    at += 40
    if length == 0:
        length = wire - at
        if length < 0:
            return None
    part = None
    while proto in (_HOP_BY_HOP, _ROUTING, _DESTINATION, _MOBILITY, _FRAGMENT, _AUTHENTICATION):
        following, size = struct.unpack_from("BB", frame, at)
        if proto == _FRAGMENT:
            size = 8
            field, identification = struct.unpack_from(">HI", frame, at + 2)
            if field & 0xFFF9:  # Else an atomic fragment: whole (RFC 6946).
                part = (identification, field & 0xFFF8, bool(field & 1))
        elif proto == _AUTHENTICATION:
            size = (size + 2) * 4
        else:
            size = (size + 1) * 8
        proto, at, length = following, at + size, length - size
        if length < 0:
            return None
        if part is not None:
            break  # What follows is the fragment's data, extension headers of the whole datagram included.
    return _Packet(src, dst, proto, at, length, part)
