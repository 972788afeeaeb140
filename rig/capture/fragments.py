"""Joins IP fragments to their datagram, in any order (RFC 791 section 3.2, RFC 8200 section 4.5).

It behaves as a receiver does: a duplicate is ignored, a fragment that contradicts an earlier one begins anew, and what
is not complete 30 s after its first fragment is given up.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

LIFETIME_NS: Final = 30_000_000_000
"""Linux's ipfrag_time; RFC 1122 asks for 60 s or more, RFC 8200 for 60 s: no receiver on a bench waits so long."""
MAX_OPEN: Final = 1024
_MAX_DATAGRAM: Final = 65_535


class Whole(NamedTuple):
    """A joined datagram. payload: the bytes that the capture holds from its start on without a hole; length: all of it
    as the fragments' headers say; first_ns: the earliest fragment's time."""

    payload: bytes
    length: int
    first_ns: int


@dataclass
class _Open:
    first_ns: int
    latest_ns: int
    total: int = -1
    covered: int = 0
    """Bytes of the fragments so far; they never overlap."""
    end: int = 0
    """Where the furthest of them ends."""
    offsets: list[int] = field(default_factory=list)
    """Sorted."""
    parts: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """Offset → (length by the header, bytes captured)."""


class Joiner:
    """Fragments in, whole datagrams out; memory is bounded by MAX_OPEN datagrams."""

    def __init__(self) -> None:
        self._open: dict[Hashable, _Open] = {}
        self.given_up = 0
        """Datagrams that some fragments were seen of and that never became whole."""

    def add(self, key: Hashable, time_ns: int, offset: int, length: int, more: bool, captured: bytes) -> Whole | None:
        """One fragment of `length` bytes at `offset`, of which `captured` is in the file. None: not whole yet."""
        if length <= 0 or offset + length > _MAX_DATAGRAM or (more and length & 7):
            return None
        datagram = self._open.get(key)
        if datagram is not None and (
            time_ns - datagram.latest_ns > LIFETIME_NS or _contradicts(datagram, offset, length, more, captured)
        ):
            del self._open[key]
            self.given_up += 1
            datagram = None
        if datagram is None:
            self._make_room(time_ns)
            datagram = self._open[key] = _Open(time_ns, time_ns)
        datagram.first_ns = min(datagram.first_ns, time_ns)
        datagram.latest_ns = max(datagram.latest_ns, time_ns)
        if offset not in datagram.parts:
            datagram.parts[offset] = (length, captured)
            insort(datagram.offsets, offset)
            datagram.covered += length
            datagram.end = max(datagram.end, offset + length)
        if not more:
            datagram.total = offset + length
        whole = _join(datagram)
        if whole is not None:
            del self._open[key]
        return whole

    @property
    def incomplete(self) -> int:
        """Datagrams given up or still open."""
        return self.given_up + len(self._open)

    def _make_room(self, now_ns: int) -> None:
        while self._open:
            oldest = next(iter(self._open))
            if len(self._open) < MAX_OPEN and now_ns - self._open[oldest].latest_ns <= LIFETIME_NS:
                return
            del self._open[oldest]
            self.given_up += 1


def _contradicts(datagram: _Open, offset: int, length: int, more: bool, captured: bytes) -> bool:
    """True where the fragment overlaps an earlier one without being its copy, or moves the datagram's end."""
    end = offset + length
    if datagram.total >= 0 and (end > datagram.total or (not more and end != datagram.total)):
        return True
    size, held = datagram.parts.get(offset, (0, b""))
    if size == length:
        common = min(len(held), len(captured))
        return held[:common] != captured[:common]
    after = bisect_left(datagram.offsets, offset)
    if after < len(datagram.offsets) and datagram.offsets[after] < end:
        return True
    before = datagram.offsets[after - 1] if after else 0
    if after and before + datagram.parts[before][0] > offset:
        return True
    return not more and datagram.end > end


def _join(datagram: _Open) -> Whole | None:
    if datagram.covered != datagram.total:
        return None
    payload = bytearray()
    for offset in datagram.offsets:
        if offset != len(payload):
            break
        payload += datagram.parts[offset][1]
    return Whole(bytes(payload), datagram.total, datagram.first_ns)
