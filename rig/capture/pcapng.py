"""pcapng files: sections of either byte order, interfaces with their own resolution (draft-ietf-opsawg-pcapng).

Read are Section Header, Interface Description, Enhanced, Simple and (obsolete) Packet, and Interface Statistics
Blocks; every other block is skipped, though some take a frame number.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from rig.capture.frames import MAX_CAPTURED, MAX_TIME_NS, MIN_TIME_NS, Buffer, Findings, Frame, Interface

_SECTION_HEADER: Final = 0x0A0D0D0A
_INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _STATISTICS, _ENHANCED_PACKET = 1, 2, 3, 5, 6
_NUMBERED: Final = {
    0x9,  # systemd Journal Export
    0x204, 0x216, 0x221,  # Sysdig events
    0xBAD, 0x4000_0BAD,  # Custom
}  # fmt: skip
"""Blocks without a packet that Wireshark numbers like frames."""
_BYTE_ORDERS: Final = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}
_MAX_BLOCK: Final = 16 << 20
_MAX_INTERFACES: Final = 65_535

_Unpack: TypeAlias = Callable[[Buffer, int], tuple[Any, ...]]

_Scale: TypeAlias = tuple[int, int, int]
"""(whole ns per tick or 0, ticks per second, offset in ns) of one interface of the current section."""

_OPT_END, _SHB_USERAPPL, _ISB_IFRECV, _ISB_IFDROP = 0, 4, 4, 5
_IF_NAME, _IF_TSRESOL, _IF_OS, _IF_TSOFFSET = 2, 9, 12, 14


def is_pcapng(head: bytes) -> bool:
    """True when a file that begins with `head` is a pcapng file."""
    return head[:4] == b"\n\r\r\n"


class PcapngParser:
    """Parser (see `frames.Parser`) of one pcapng file. Interface indices count on over the sections of the file."""

    def __init__(self) -> None:
        self.interfaces: list[Interface] = []
        self.findings = Findings()
        self.number = 0
        self.consumed = 0
        self.stopped = False
        self.application = ""
        """What wrote the file, by its own account."""
        self.order = "<"
        """Byte order of the current section, as `struct` writes it."""
        self.first = 0
        """Index of the current section's first interface."""
        self._scales: list[_Scale] = []

    def frames(self, data: Buffer, base: int, *, final: bool, begin: int = 0, once: bool = False) -> Iterator[Frame]:
        position, end = begin, len(data)
        self.consumed = begin
        number = self.number
        head, packet, tail, first, times = self._section()
        while position + 12 <= end:
            kind, length = head(data, position)
            if kind == _SECTION_HEADER:
                if not self._begin_section(data, base, position):
                    break
                head, packet, tail, first, times = self._section()
                kind, length = head(data, position)
            following = position + length
            if length < 12 or length & 3 or length > _MAX_BLOCK:
                self._corrupt(base + position, f"its length of {length} bytes is impossible", end - position)
                break
            if following > end:
                break
            if tail(data, following - 4)[0] != length:
                self._corrupt(base + position, "its two lengths differ", end - position)
                break
            if kind == _ENHANCED_PACKET and length >= 32:
                number += 1
                _, _, interface, high, low, captured, wire = packet(data, position)
                if interface >= len(times) or captured > length - 32 or captured > MAX_CAPTURED:
                    self._bad_packet(base + position, number, f"interface {interface}, {captured} captured bytes")
                else:
                    time_ns = _to_ns(high << 32 | low, *times[interface])
                    if MIN_TIME_NS <= time_ns <= MAX_TIME_NS:
                        yield number, time_ns, first + interface, wire, captured, position + 28
                    else:
                        self._bad_packet(base + position, number, f"{time_ns // 1_000_000_000} s since 1970")
            else:
                self.number = number
                frame = self._other_block(kind, data, base, position, length, times)
                number = self.number
                if frame is not None:
                    yield frame
                if self.stopped:
                    break
            position = following
            if once:
                self.number = number
                self.consumed = position
                return
        self.number = number
        self.consumed = position
        if final and not self.stopped and position < end:
            self.stopped = True
            self.findings.add(
                "cut-file",
                "the file ends in the middle of a block",
                f"the block at byte {base + position} has only {end - position} bytes",
            )

    def _section(self) -> tuple[_Unpack, _Unpack, _Unpack, int, list[_Scale]]:
        """What the loop needs to know of the current section, in locals; the list grows as interfaces come."""
        order = self.order
        return (
            struct.Struct(order + "II").unpack_from,
            struct.Struct(order + "IIIIIII").unpack_from,
            struct.Struct(order + "I").unpack_from,
            self.first,
            self._scales,
        )

    def _begin_section(self, data: Buffer, base: int, position: int) -> bool:
        order = _BYTE_ORDERS.get(bytes(data[position + 8 : position + 12]))
        if order is None:
            self._corrupt(base + position, "a section header without its byte-order magic", len(data) - position)
            return False
        if position + 14 <= len(data):
            major = struct.unpack_from(order + "H", data, position + 12)[0]
            if major != 1:
                self._corrupt(base + position, f"a section of pcapng version {major}", len(data) - position)
                return False
        self.order = order
        self.first = len(self.interfaces)
        self._scales = []
        return True

    def _other_block(
        self, kind: int, data: Buffer, base: int, position: int, length: int, times: list[_Scale]
    ) -> Frame | None:
        body = data[position + 8 : position + length - 4]
        if kind == _SECTION_HEADER:
            for code, value in _options(body, 16, self.order):
                if code == _SHB_USERAPPL:
                    self.application = _text(value)
        elif kind == _INTERFACE:
            self._describe_interface(body, base + position)
        elif kind == _STATISTICS:
            self._statistics(body, base + position)
        elif kind == _SIMPLE_PACKET:
            self.number += 1
            if len(body) < 4 or not times:
                self._bad_packet(base + position, self.number, "a Simple Packet Block without interface or length")
                return None
            wire = struct.unpack_from(self.order + "I", body)[0]
            snaplen = self.interfaces[self.first].snaplen or wire
            return self.number, None, self.first, wire, min(wire, snaplen, len(body) - 4), position + 12
        elif kind == _OLD_PACKET:
            self.number += 1
            if len(body) < 20:
                self._bad_packet(base + position, self.number, f"a Packet Block of {length} bytes")
                return None
            interface, _, high, low, captured, wire = struct.unpack_from(self.order + "HHIIII", body)
            if interface >= len(times) or captured > len(body) - 20 or captured > MAX_CAPTURED:
                self._bad_packet(base + position, self.number, f"interface {interface}, {captured} captured bytes")
                return None
            time_ns = _to_ns(high << 32 | low, *times[interface])
            if MIN_TIME_NS <= time_ns <= MAX_TIME_NS:
                return self.number, time_ns, self.first + interface, wire, captured, position + 28
            self._bad_packet(base + position, self.number, f"{time_ns // 1_000_000_000} s since 1970")
        elif kind == _ENHANCED_PACKET:
            self.number += 1
            self._bad_packet(base + position, self.number, f"an Enhanced Packet Block of {length} bytes")
        elif kind in _NUMBERED:
            self.number += 1
        return None

    def _describe_interface(self, body: bytes, offset: int) -> None:
        if len(self.interfaces) >= _MAX_INTERFACES:
            self._corrupt(offset, f"it describes more than {_MAX_INTERFACES} interfaces", 0)
            return
        if len(body) < 8:
            # An interface of unknown link type keeps the indices of its successors right.
            self._add(Interface(linktype=-1))
            self.findings.add("corrupt-block", "an interface description is too short", f"block at byte {offset}")
            return
        linktype, _, snaplen = struct.unpack_from(self.order + "HHI", body)
        interface = Interface(linktype=linktype, snaplen=snaplen)
        for code, value in _options(body, 8, self.order):
            if code == _IF_NAME:
                interface.name = _text(value)
            elif code == _IF_OS:
                interface.system = _text(value)
            elif code == _IF_TSRESOL and value:
                exponent = value[0] & 0x7F
                interface.ticks_per_s = 1 << exponent if value[0] & 0x80 else 10**exponent
            elif code == _IF_TSOFFSET and len(value) >= 8:
                interface.offset_s = struct.unpack_from(self.order + "q", value)[0]
        self._add(interface)

    def _add(self, interface: Interface) -> None:
        self.interfaces.append(interface)
        whole, rest = divmod(1_000_000_000, interface.ticks_per_s)
        self._scales.append((0 if rest else whole, interface.ticks_per_s, interface.offset_s * 1_000_000_000))

    def _statistics(self, body: bytes, offset: int) -> None:
        index = struct.unpack_from(self.order + "I", body)[0] if len(body) >= 12 else -1
        if not 0 <= index < len(self.interfaces) - self.first:
            self.findings.add(
                "corrupt-block", "statistics of an interface that is not there", f"block at byte {offset}"
            )
            return
        interface = self.interfaces[self.first + index]
        for code, value in _options(body, 12, self.order):
            if len(value) >= 8:
                counter = struct.unpack_from(self.order + "Q", value)[0]
                if code == _ISB_IFRECV:
                    interface.received = counter
                elif code == _ISB_IFDROP:
                    interface.dropped = counter

    def _bad_packet(self, offset: int, number: int, problem: str) -> None:
        self.findings.add(
            "corrupt-block", "a packet block is damaged and was left out", f"frame {number} at byte {offset}: {problem}"
        )

    def _corrupt(self, offset: int, problem: str, unread: int) -> None:
        self.stopped = True
        self.findings.add(
            "corrupt-block",
            "a block is impossible, nothing after it was read",
            f"the block at byte {offset}: {problem}; {unread} bytes not read",
        )


def _to_ns(ticks: int, multiple: int, ticks_per_s: int, offset_ns: int) -> int:
    """Whole ns, rounded down where the resolution is not a divisor of 1 ns (2^-n, or finer than 1 ns)."""
    if multiple:
        return ticks * multiple + offset_ns
    return ticks * 1_000_000_000 // ticks_per_s + offset_ns


def _text(value: bytes) -> str:
    """A name as it can be printed: a file may hold what moves a terminal's cursor."""
    return "".join(
        each if each.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for each in value.decode("utf-8", "replace").rstrip("\0")
    )


def _options(body: bytes, position: int, order: str) -> Iterator[tuple[int, bytes]]:
    """(code, value) of an option list; ends silently where the list is damaged."""
    head = struct.Struct(order + "HH")
    while position + 4 <= len(body):
        code, length = head.unpack_from(body, position)
        position += 4
        if code == _OPT_END or position + length > len(body):
            return
        yield code, body[position : position + length]
        position += (length + 3) & ~3
