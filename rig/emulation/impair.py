"""What the link relay does to frames, as pure scheduling: a frame and a time in, frames and their times out.

One `Schedule` per direction. A rule acts on the frames that it selects in this order: loss, duplication, rate, delay
and jitter, reordering; rules follow one another, each sees the frames as the one before it let them go. Frames that a
rule does not select pass it untouched, and may so overtake others. Standard library only: the relay process imports it.
"""

from __future__ import annotations

import heapq
import itertools
import random
import struct
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Direction = Literal["to-board", "from-board"]

HOLD_MAX_NS = 20_000_000
"""A frame held back for reordering leaves after this time when no later frame came by."""
OVERTAKEN_NS = 250_000
"""How long after the frame that overtook it a held one leaves: wider than the uncertainty of the capture's stamps, or
nobody could tell the order."""
QUEUE_MAX = 10_000
"""Frames in flight per direction; what comes on top is dropped and counted, as in a switch that ran out of buffer."""


@dataclass(frozen=True)
class Rule:
    """One impairment in plain numbers. loss, duplicate, reorder: probability 0 to 1. rate_bps: 0 means unlimited.

    rate counts the frame as captured (without preamble, FCS and gap). select: see `matches`.
    """

    direction: Literal["to-board", "from-board", "both"] = "both"
    delay_ns: int = 0
    jitter_ns: int = 0
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    rate_bps: int = 0
    seed: int = 1
    select: dict[str, int] = field(default_factory=dict)


@dataclass
class Counters:
    """Frames of one direction: received + duplicated = dropped_loss + overflow + released + still in flight."""

    received: int = 0
    dropped_loss: int = 0
    duplicated: int = 0
    delayed: int = 0
    """Frames that got a delay, jitter or a wait for the rate limit."""
    reordered: int = 0
    """Frames that were held back and overtaken by a later one."""
    hold_expired: int = 0
    """Frames held back that nobody overtook."""
    overflow: int = 0
    released: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


class Schedule:
    """The frames of one direction in flight. Times are ns of one monotonic clock, handed in by the caller.

    Draws come from a generator per rule, seeded by the rule's seed, its place and the direction: the n-th selected
    frame meets the same fate in every run, whatever the other direction does.
    """

    def __init__(self, direction: Direction) -> None:
        self._direction: Direction = direction
        self._stages: list[_Stage] = []
        self._heap: list[tuple[int, int, bytes, bool]] = []
        self._order = itertools.count()
        self._held: deque[tuple[int, bytes]] = deque()
        self.counters = Counters()

    def set_rules(self, rules: list[Rule]) -> None:
        """Take these rules for frames from now on, from the start of their random sequences.

        Frames in flight keep the times they were given. The counters go on.
        """
        self._stages = [
            _Stage(rule, index, self._direction)
            for index, rule in enumerate(rules)
            if rule.direction in ("both", self._direction)
        ]

    def arrive(self, now_ns: int, frame: bytes) -> None:
        """A frame came in at `now_ns`."""
        counters = self.counters
        counters.received += 1
        copies: list[_Copy] = [_Copy(now_ns)]
        for stage in self._stages:
            if stage.selects(frame):
                copies = [out for copy in copies for out in stage.apply(copy, len(frame), counters)]
        for copy in copies:
            if len(self._heap) + len(self._held) >= QUEUE_MAX:
                counters.overflow += 1
                continue
            counters.delayed += copy.at_ns > now_ns
            heapq.heappush(self._heap, (copy.at_ns, next(self._order), frame, copy.hold))

    def due_ns(self) -> int | None:
        """When `release` next has something to give; None when nothing is in flight."""
        times = [self._heap[0][0]] if self._heap else []
        if self._held:
            times.append(self._held[0][0])
        return min(times, default=None)

    def release(self, now_ns: int) -> list[bytes]:
        """The frames that leave now, in order."""
        leaving: list[bytes] = []
        while self._heap and self._heap[0][0] <= now_ns:
            at_ns, _, frame, hold = heapq.heappop(self._heap)
            self._expire(at_ns, leaving)
            if hold and not self._held:
                self._held.append((at_ns + HOLD_MAX_NS, frame))
                continue
            leaving.append(frame)
            while self._held:
                heapq.heappush(self._heap, (at_ns + OVERTAKEN_NS, next(self._order), self._held.popleft()[1], False))
                self.counters.reordered += 1
        self._expire(now_ns, leaving)
        self.counters.released += len(leaving)
        return leaving

    def in_flight(self) -> int:
        return len(self._heap) + len(self._held)

    def _expire(self, now_ns: int, leaving: list[bytes]) -> None:
        while self._held and self._held[0][0] <= now_ns:
            leaving.append(self._held.popleft()[1])
            self.counters.hold_expired += 1


def matches(select: dict[str, int], frame: bytes) -> bool:
    """True when the frame has the ethertype and UDP ports asked for (`every` is counted elsewhere).

    ethertype is the one behind any VLAN tags. Ports are those of IPv4 UDP; later fragments carry none and never match.
    """
    ethertype, offset = _ethertype(frame)
    if select.get("ethertype", ethertype) != ethertype:
        return False
    if "udp.srcport" not in select and "udp.dstport" not in select:
        return True
    ports = _udp_ports(frame, offset) if ethertype == _ETHERTYPE_IPV4 else None
    if ports is None:
        return False
    return select.get("udp.srcport", ports[0]) == ports[0] and select.get("udp.dstport", ports[1]) == ports[1]


_ETHERTYPE_IPV4 = 0x0800
_VLAN_TAGS = (0x8100, 0x88A8)
_IPPROTO_UDP = 17


def _ethertype(frame: bytes) -> tuple[int, int]:
    """The payload's ethertype and where the payload begins; (-1, 0) for a frame that is cut short."""
    offset = 12
    while len(frame) >= offset + 2:
        ethertype = int.from_bytes(frame[offset : offset + 2], "big")
        if ethertype not in _VLAN_TAGS:
            return ethertype, offset + 2
        offset += 4
    return -1, 0


def _udp_ports(frame: bytes, offset: int) -> tuple[int, int] | None:
    if len(frame) < offset + 20 or frame[offset + 9] != _IPPROTO_UDP:
        return None
    if int.from_bytes(frame[offset + 6 : offset + 8], "big") & 0x1FFF:  # fragment offset: no UDP header here
        return None
    udp = offset + (frame[offset] & 0xF) * 4
    if len(frame) < udp + 4:
        return None
    source, destination = struct.unpack_from(">HH", frame, udp)
    return source, destination


@dataclass(frozen=True)
class _Copy:
    """One frame on its way through the rules: when it leaves the last one, and whether it is to be overtaken."""

    at_ns: int
    hold: bool = False


class _Stage:
    """A rule at work in one direction, with its random sequence and what it remembers."""

    def __init__(self, rule: Rule, index: int, direction: Direction) -> None:
        self._rule = rule
        self._random = random.Random(f"{rule.seed}/{index}/{direction}")
        self._every = rule.select.get("every", 1)
        self._seen = 0
        self._line_free_ns = 0
        self._last_ns = 0

    def selects(self, frame: bytes) -> bool:
        if self._rule.select and not matches(self._rule.select, frame):
            return False
        self._seen += 1
        return self._every > 0 and self._seen % self._every == 0

    def apply(self, copy: _Copy, length: int, counters: Counters) -> list[_Copy]:
        rule = self._rule
        if rule.loss and self._random.random() < rule.loss:
            counters.dropped_loss += 1
            return []
        copies = 1
        if rule.duplicate and self._random.random() < rule.duplicate:
            counters.duplicated += 1
            copies = 2
        return [self._timed(copy, length) for _ in range(copies)]

    def _timed(self, copy: _Copy, length: int) -> _Copy:
        rule, at_ns = self._rule, copy.at_ns
        if rule.rate_bps:
            at_ns = max(at_ns, self._line_free_ns) + -(-length * 8 * 1_000_000_000 // rule.rate_bps)
            self._line_free_ns = at_ns
        at_ns += rule.delay_ns
        if rule.jitter_ns:
            at_ns += self._random.randint(0, rule.jitter_ns)
        at_ns = self._last_ns = max(at_ns, self._last_ns)
        hold = copy.hold or bool(rule.reorder and self._random.random() < rule.reorder)
        return _Copy(at_ns, hold)


def rule_to_json(rule: Rule) -> dict[str, Any]:
    return asdict(rule)


def rule_from_json(fields: dict[str, Any]) -> Rule:
    return Rule(**fields)
