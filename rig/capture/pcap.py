"""Classic pcap files, both byte orders, microsecond and nanosecond stamps (draft-ietf-opsawg-pcap)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from rig.capture.frames import MAX_CAPTURED, Buffer, Findings, Frame, Interface

_FILE_HEADER_LENGTH: Final = 24
_MAGICS: Final = {
    b"\xa1\xb2\xc3\xd4": (">", 1_000_000),
    b"\xd4\xc3\xb2\xa1": ("<", 1_000_000),
    b"\xa1\xb2\x3c\x4d": (">", 1_000_000_000),
    b"\x4d\x3c\xb2\xa1": ("<", 1_000_000_000),
}


def is_pcap(head: bytes) -> bool:
    """True when a file that begins with `head` is a classic pcap that this parser reads."""
    return head[:4] in _MAGICS


class PcapParser:
    """Parser (see `frames.Parser`) of one classic pcap file; its only interface has index 0."""

    def __init__(self) -> None:
        self.interfaces: list[Interface] = []
        self.findings = Findings()
        self.number = 0
        self.consumed = 0
        self.stopped = False
        self.order = "<"
        """Byte order of the file, as `struct` writes it."""
        self.to_ns = 1
        """Nanoseconds per unit of a stamp's fraction."""

    def frames(self, data: Buffer, base: int, *, final: bool, begin: int = 0, once: bool = False) -> Iterator[Frame]:
        position, end = begin, len(data)
        self.consumed = begin
        if not self.interfaces:
            if end < _FILE_HEADER_LENGTH:
                if final:
                    self._cut(base, end, "the file header")
                return
            self._file_header(data)
            position = _FILE_HEADER_LENGTH
        unpack = struct.Struct(self.order + "IIII").unpack_from
        second = self.interfaces[0].ticks_per_s
        to_ns, number = self.to_ns, self.number
        while position + 16 <= end:
            seconds, fraction, captured, wire = unpack(data, position)
            if captured > MAX_CAPTURED:
                self._corrupt(number, base + position, f"it claims {captured} captured bytes", len(data) - position)
                break
            offset = position + 16
            following = offset + captured
            if following > end:
                break
            number += 1
            if fraction >= second:
                self.findings.add(
                    "corrupt-block",
                    "a frame's fraction of a second is a second or more (taken as it stands)",
                    f"frame {number} has {fraction} of {second}",
                )
            position = following
            yield number, seconds * 1_000_000_000 + fraction * to_ns, 0, wire, captured, offset
            if once:
                self.number = number
                self.consumed = position
                return
        self.number = number
        self.consumed = position
        if final and not self.stopped and position < end:
            self._cut(base + position, end - position, f"the record of frame {number + 1}")

    def _file_header(self, data: Buffer) -> None:
        self.order, ticks = _MAGICS[bytes(data[:4])]
        self.to_ns = 1_000_000_000 // ticks
        snaplen, network = struct.unpack_from(self.order + "II", data, 16)
        # The upper half of the word tells of frame check sequences; the link type is the lower.
        self.interfaces.append(Interface(linktype=network & 0xFFFF, ticks_per_s=ticks, snaplen=snaplen))

    def _corrupt(self, number: int, offset: int, problem: str, unread: int) -> None:
        self.stopped = True
        self.findings.add(
            "corrupt-block",
            "a record is impossible, nothing after it was read",
            f"the record of frame {number + 1} at byte {offset}: {problem}; {unread} bytes not read",
        )

    def _cut(self, offset: int, left: int, what: str) -> None:
        self.stopped = True
        self.findings.add("cut-file", "the file ends in the middle", f"{what} at byte {offset} has only {left} bytes")
