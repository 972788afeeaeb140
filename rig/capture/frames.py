"""What a capture file parser hands on: frames, interfaces and findings, the same for classic pcap and pcapng.

A parser is sans-I/O and incremental: it walks a buffer, remembers how far it came and goes on in a later one.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from rig.timing.table import ReaderFinding

MAX_CAPTURED: Final = 262_144
"""Bytes of one frame beyond which a record is taken for corrupt (Wireshark's own bound for network link types)."""
MIN_TIME_NS: Final = -(1 << 63)
MAX_TIME_NS: Final = (1 << 63) - 1

Buffer: TypeAlias = bytes | mmap.mmap

Frame: TypeAlias = tuple[int, int | None, int, int, int, int]
"""(number, time_ns, interface, wire_len, cap_len, offset). number counts from 1 as Wireshark does; time_ns is ns since
the epoch, None where the file has no time; interface is an index over the whole file; offset is into the buffer.
A plain tuple: one is made per frame, and a named one costs as much as the rest of the parsing."""


@dataclass
class Interface:
    """An interface as the file describes it. ticks_per_s: resolution of its stamps. Drops are -1 where unknown.
    system: operating system of the host that it was in."""

    linktype: int
    ticks_per_s: int = 1_000_000
    offset_s: int = 0
    name: str = ""
    system: str = ""
    snaplen: int = 0
    received: int = -1
    dropped: int = -1


@dataclass
class Findings:
    """Findings gathered by kind, so that a file full of faults yields few lines: how often, and the first of them."""

    _seen: dict[tuple[str, str], tuple[int, str, int]] = field(default_factory=dict)

    def add(self, kind: str, what: str, first: str, amount: int = 0) -> None:
        """what: the sentence without figures; first: the first occurrence, with them; amount: the largest is kept."""
        count, earliest, largest = self._seen.get((kind, what), (0, first, 0))
        self._seen[kind, what] = (count + 1, earliest, max(largest, amount))

    def listed(self) -> tuple[ReaderFinding, ...]:
        return tuple(
            ReaderFinding(
                kind, f"{what}: {first}" if count == 1 else f"{what}, {count} times; the first: {first}", largest
            )
            for (kind, what), (count, first, largest) in self._seen.items()
        )


class Parser(Protocol):
    """A capture file format."""

    interfaces: list[Interface]
    findings: Findings
    number: int
    """Frames seen so far."""
    consumed: int
    """Bytes of the buffer last given to `frames` that need not be given again: the next record begins there."""
    stopped: bool
    """True when the rest of the file cannot be read."""

    def frames(self, data: Buffer, base: int, *, final: bool, begin: int = 0, once: bool = False) -> Iterator[Frame]:
        """Yield the frames of all whole records in `data` from `begin` on; `data` begins at file offset `base`.

        final: nothing will follow, so that a record that is not whole is a cut file. once: only one record (and the
        file header before it). `consumed` is valid once the iterator is exhausted.
        """
