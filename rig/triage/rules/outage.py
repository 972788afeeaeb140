"""Stretches in which the board said nothing at all although it was asked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rig.triage.case import Case

_LEAST_NS = 60_000_000
_LEAST_ASKED = 3


@dataclass(frozen=True)
class Outage:
    """start_ns: from the first frame of the capture. unanswered: requests in it. frames: of them, a few numbers."""

    start_ns: int
    length_ns: int
    unanswered: int
    frames: tuple[int, ...]
    ends_the_capture: bool


@lru_cache(maxsize=2)
def outages(case: Case) -> tuple[Outage, ...]:
    """Silences of the board, longest first: at least three requests went unanswered and no frame came from it."""
    exchanges = case.exchanges
    if exchanges is None or not len(exchanges.lost) or not case.expects_answers:
        return ()
    table = case.table
    board = case.addresses["board"]
    mine = np.array([key.src == board for key in table.flows] + [False], np.bool_)
    heard = table.time_ns[np.flatnonzero(mine[table.flow])]
    asks = exchanges.asks
    edges = np.concatenate(([case.origin_ns], heard, [int(table.time_ns[-1])]))
    slots = np.searchsorted(heard, asks.time_ns[exchanges.lost], "right")
    lost = exchanges.lost[np.argsort(slots, kind="stable")]
    slot, count = np.unique(slots, return_counts=True)
    first = np.cumsum(count) - count
    long = (count >= _LEAST_ASKED) & (edges[slot + 1] - edges[slot] >= _LEAST_NS)
    found = [
        Outage(
            int(edges[index]) - case.origin_ns,
            int(edges[index + 1] - edges[index]),
            unanswered,
            tuple(int(n) for n in asks.number[lost[at : at + min(6, unanswered)]]),
            index == len(heard),
        )
        for index, at, unanswered in zip(slot[long].tolist(), first[long].tolist(), count[long].tolist(), strict=True)
    ]
    return tuple(sorted(found, key=lambda outage: -outage.length_ns))
