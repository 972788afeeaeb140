"""Write pcapng (draft-ietf-opsawg-pcapng) from any capture that the reader knows: comments added, nanoseconds kept.

Frames keep their numbers and bytes. Other blocks and options of the source do not come along; interface names, link
types and drop counts do, and an empty block stands for what took a number and is no frame.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rig.capture.contents import open_contents
from rig.capture.frames import Findings, Interface
from rig.capture.reader import parser_for

_SHB, _IDB, _ISB, _EPB, _CUSTOM = 0x0A0D0D0A, 1, 5, 6, 0xBAD
_COMMENT, _USERAPPL, _IF_NAME, _IF_TSRESOL, _ISB_IFRECV, _ISB_IFDROP = 1, 4, 2, 9, 4, 5
_NANOSECONDS = b"\x09"
_NOBODY = 32473
"""Private enterprise number for examples (RFC 5612)."""
_TEXT_MAX = 60_000
"""Bytes of one option: its length field has 16 bits."""
_FLUSH = 1 << 20
_PADDING = (b"", b"\0", b"\0\0", b"\0\0\0")


@dataclass(frozen=True)
class Target:
    """A file to write. comment: of the capture. only: the frames that go into it, None for all."""

    stream: IO[bytes]
    comment: str = ""
    only: frozenset[int] | None = None


def rewrite(
    source: Path,
    targets: Sequence[Target],
    *,
    comments: Mapping[int, str] | None = None,
    retime: Callable[[int, int], int | None] | None = None,
    copies: int = 1,
) -> int:
    """Copy `source` into each target as one pcapng section, in one pass; returns the number of frames seen.

    comments: frame number → its comment. retime: called with (number, time_ns); gives the time to write, None to leave
    the frame out. copies: how often each frame is written. Raises CaptureError when `source` is no capture.
    """
    comments = comments or {}
    whole = [target for target in targets if target.only is None]
    parts = [target for target in targets if target.only is not None]
    in_part = frozenset().union(*(target.only for target in parts if target.only is not None))
    seen = last_ns = known = last = 0
    stand_in = _block(_CUSTOM, struct.pack("<I", _NOBODY))
    head, tail = struct.Struct("<IIIIIII"), struct.Struct("<I")
    buffer = bytearray()
    for target in targets:
        target.stream.write(_section(target.comment))

    def flush() -> None:
        for target in whole:
            target.stream.write(buffer)
        buffer.clear()

    with open_contents(source, Findings()) as (data, _):
        parser = parser_for(bytes(data[:16]), source)
        with memoryview(data) as view:
            for number, time_ns, interface, wire, captured, offset in parser.frames(data, 0, final=True):
                while known < len(parser.interfaces):
                    described = _interface(parser.interfaces[known])
                    buffer += described
                    for target in parts:
                        target.stream.write(described)
                    known += 1
                seen += 1
                buffer += stand_in * (number - last - 1)
                last = number
                at_ns = last_ns = last_ns if time_ns is None else time_ns  # a Simple Packet Block keeps its place
                if retime is not None:
                    moved = retime(number, at_ns)
                    if moved is None:
                        continue
                    at_ns = moved
                at_ns = max(at_ns, 0)
                padding = -captured % 4
                options = _options([(_COMMENT, comments[number])]) if number in comments else b""
                length = 32 + captured + padding + len(options)
                begin = len(buffer)
                for _ in range(copies):
                    buffer += head.pack(_EPB, length, interface, at_ns >> 32, at_ns & 0xFFFF_FFFF, captured, wire)
                    buffer += view[offset : offset + captured]
                    buffer += _PADDING[padding] + options + tail.pack(length)
                if number in in_part:
                    for target in parts:
                        if target.only is not None and number in target.only:
                            target.stream.write(buffer[begin:])
                if len(buffer) > _FLUSH:
                    flush()
        for one in parser.interfaces[known:]:
            buffer += _interface(one)
        buffer += b"".join(_statistics(index, one, last_ns) for index, one in enumerate(parser.interfaces))
        flush()
    return seen


def _section(comment: str) -> bytes:
    options = _options([*([(_COMMENT, comment)] if comment else []), (_USERAPPL, "rig triage")])
    return _block(_SHB, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + options)


def _interface(interface: Interface) -> bytes:
    named: list[tuple[int, str | bytes]] = [(_IF_NAME, interface.name)] if interface.name else []
    options = _options([*named, (_IF_TSRESOL, _NANOSECONDS)])
    return _block(_IDB, struct.pack("<HHI", interface.linktype & 0xFFFF, 0, interface.snaplen) + options)


def _statistics(index: int, interface: Interface, time_ns: int) -> bytes:
    counts = [(_ISB_IFRECV, interface.received), (_ISB_IFDROP, interface.dropped)]
    options = _options([(code, struct.pack("<Q", value)) for code, value in counts if value >= 0])
    return _block(_ISB, struct.pack("<III", index, time_ns >> 32, time_ns & 0xFFFF_FFFF) + options) if options else b""


def _block(kind: int, body: bytes) -> bytes:
    length = 12 + len(body)
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


def _options(options: Sequence[tuple[int, str | bytes]]) -> bytes:
    return b"".join(_option(code, value) for code, value in options) + (b"\0\0\0\0" if options else b"")


def _option(code: int, value: str | bytes) -> bytes:
    octets = value if isinstance(value, bytes) else value.encode("utf-8", "replace")
    if len(octets) > _TEXT_MAX:
        octets = octets[:_TEXT_MAX].decode("utf-8", "ignore").encode()
    return struct.pack("<HH", code, len(octets)) + octets + bytes(-len(octets) % 4)
