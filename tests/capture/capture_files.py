"""Builders of frames and capture files, byte by byte; they share no code with the readers."""

from __future__ import annotations

import struct

MAC_A, MAC_B = b"\x02\0\0\0\0\x0a", b"\x02\0\0\0\0\x0b"
A4, B4 = bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2])
A6, B6 = bytes.fromhex("20010db8" + "00" * 11 + "01"), bytes.fromhex("20010db8" + "00" * 11 + "02")
T0 = 1_700_000_000_000_000_000


def udp(payload: bytes, *, sport: int = 40000, dport: int = 5005, length: int | None = None) -> bytes:
    return struct.pack(">HHHH", sport, dport, 8 + len(payload) if length is None else length, 0) + payload


def tcp(payload: bytes, *, options: bytes = b"", sport: int = 40000, dport: int = 502, sequence: int = 1) -> bytes:
    offset = (20 + len(options)) // 4 << 4
    return struct.pack(">HHIIBBHHH", sport, dport, sequence, 1, offset, 0x18, 8192, 0, 0) + options + payload


def ipv4(
    data: bytes,
    *,
    proto: int = 17,
    options: bytes = b"",
    ident: int = 1,
    offset: int = 0,
    more: bool = False,
    total: int | None = None,
    src: bytes = A4,
    dst: bytes = B4,
) -> bytes:
    size = 20 + len(options)
    length = size + len(data) if total is None else total
    fragment = offset // 8 | (0x2000 if more else 0)
    head = struct.pack(">BBHHHBBH4s4s", 0x40 | size // 4, 0, length, ident, fragment, 64, proto, 0, src, dst)
    return head[:10] + checksum(head + options) + head[12:] + options + data


def checksum(data: bytes) -> bytes:
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return (~((total & 0xFFFF) + (total >> 16)) & 0xFFFF).to_bytes(2, "big")


def ipv6(data: bytes, *, proto: int = 17, length: int | None = None) -> bytes:
    return struct.pack(">IHBB16s16s", 6 << 28, len(data) if length is None else length, proto, 64, A6, B6) + data


def ethernet(data: bytes, ethertype: int = 0x0800, *, vlans: tuple[int, ...] = (), pad: bool = False) -> bytes:
    tags = b"".join(struct.pack(">HH", 0x8100 if at else 0x88A8, vlan) for at, vlan in enumerate(vlans))
    if len(vlans) == 1:
        tags = struct.pack(">HH", 0x8100, vlans[0])
    frame = MAC_B + MAC_A + tags + struct.pack(">H", ethertype) + data
    return frame + b"\xee" * (60 - len(frame)) if pad else frame


def sll(data: bytes, ethertype: int = 0x0800) -> bytes:
    return struct.pack(">HHH8sH", 0, 1, 6, MAC_A + b"\0\0", ethertype) + data


def sll2(data: bytes, ethertype: int = 0x0800) -> bytes:
    return struct.pack(">HHIHBB8s", ethertype, 0, 2, 1, 0, 6, MAC_A + b"\0\0") + data


def pcap(
    *frames: tuple[int, bytes], order: str = "<", nano: bool = True, linktype: int = 1, snaplen: int = 262144
) -> bytes:
    """A classic pcap file of (time_ns, frame)."""
    magic = 0xA1B23C4D if nano else 0xA1B2C3D4
    parts = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, linktype)]
    for time_ns, frame in frames:
        seconds, rest = divmod(time_ns, 1_000_000_000)
        kept = frame[:snaplen]
        parts.append(struct.pack(order + "IIII", seconds, rest if nano else rest // 1000, len(kept), len(frame)) + kept)
    return b"".join(parts)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += b"\0" * (-len(body) % 4)
    length = 12 + len(body)
    return struct.pack(order + "II", kind, length) + body + struct.pack(order + "I", length)


def options(order: str, *pairs: tuple[int, bytes]) -> bytes:
    body = b"".join(struct.pack(order + "HH", c, len(v)) + v + b"\0" * (-len(v) % 4) for c, v in pairs)
    return body + struct.pack(order + "HH", 0, 0)


def shb(order: str = "<", application: bytes = b"capture_files.py") -> bytes:
    return block(
        0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1) + options(order, (4, application)), order
    )


def idb(
    order: str = "<",
    *,
    linktype: int = 1,
    tsresol: int | None = 9,
    tsoffset: int | None = None,
    name: bytes = b"",
    snaplen: int = 0,
    system: bytes = b"",
) -> bytes:
    listed = []
    if system:
        listed.append((12, system))
    if name:
        listed.append((2, name))
    if tsresol is not None:
        listed.append((9, bytes([tsresol])))
    if tsoffset is not None:
        listed.append((14, struct.pack(order + "q", tsoffset)))
    return block(1, struct.pack(order + "HHI", linktype, 0, snaplen) + options(order, *listed), order)


def epb(ticks: int, frame: bytes, order: str = "<", *, interface: int = 0, wire: int | None = None) -> bytes:
    head = struct.pack(
        order + "IIIII", interface, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame) if wire is None else wire
    )
    return block(6, head + frame, order)


def spb(frame: bytes, order: str = "<") -> bytes:
    return block(3, struct.pack(order + "I", len(frame)) + frame, order)


def isb(received: int, dropped: int, order: str = "<", *, interface: int = 0) -> bytes:
    counters = options(order, (4, struct.pack(order + "Q", received)), (5, struct.pack(order + "Q", dropped)))
    return block(5, struct.pack(order + "III", interface, 0, 0) + counters, order)
