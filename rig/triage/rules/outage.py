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
    lost_ns = asks.time_ns[exchanges.lost]
    edges = np.concatenate(([case.origin_ns], heard, [int(table.time_ns[-1])]))
    found = []
    slot = np.searchsorted(heard, lost_ns, "right")
    for index in np.unique(slot):
        inside = exchanges.lost[slot == index]
        begin, end = int(edges[index]), int(edges[index + 1])
        if len(inside) >= _LEAST_ASKED and end - begin >= _LEAST_NS:
            found.append(
                Outage(
                    begin - case.origin_ns,
                    end - begin,
                    len(inside),
                    tuple(int(n) for n in asks.number[inside[:6]]),
                    index == len(heard),
                )
            )
    return tuple(sorted(found, key=lambda outage: -outage.length_ns))
