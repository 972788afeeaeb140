"""Violations that a cause is too small for, and where in their exchange the time went: a second cause to look for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from rig.timing.metrics.measurement import INFINITE_NS
from rig.triage.broken import worst_packets
from rig.triage.case import samples_of
from rig.triage.diagnosis import Clue
from rig.triage.exchange_model import LOST_NS
from rig.triage.headline import figure

if TYPE_CHECKING:
    from rig.triage.case import Case
    from rig.triage.exchange_model import Exchanges

_FAR: Final = 1.5
"""So many times what a cause explains is far outside of it."""
_NAMED: Final = 3


def unexplained(case: Case, explains_ns: int | None) -> Iterator[Clue]:
    """One clue per packet (the worst three) that lies further beyond the usual than `explains_ns` can take it."""
    if explains_ns is None:
        return
    named: set[int] = set()
    usual = {
        name: float(np.median(finite))
        for name, measured in samples_of(case).items()
        if measured.kind == "durations" and len(finite := measured.value_ns[measured.value_ns != INFINITE_NS])
    }
    for check, each in worst_packets(case):
        if check.check not in usual or each.value_ns == INFINITE_NS or each.frame in named:
            continue
        if each.value_ns - usual[check.check] <= _FAR * explains_ns + case.noise_ns:
            continue
        named.add(each.frame)
        place = _place(case, each.frame)
        text = f"frame {each.frame}: {figure(each.value_ns)} ({check.check}) is more than this cause explains"
        yield Clue(f"{text}; {place}" if place else text, (each.frame,))
        if len(named) == _NAMED:
            return


def _place(case: Case, frame: int) -> str:
    """Which part of the exchange of a board's frame is longest over its usual time, in words."""
    exchanges = case.exchanges
    if exchanges is None or not exchanges.stamped or len(case.boots) != 1:
        return ""
    at = np.flatnonzero(exchanges.answers.number == frame)
    if not len(at):
        return ""
    parts = sorted(_parts(exchanges, int(at[0])), reverse=True)
    if not parts or parts[0][0] < case.noise_ns:
        return ""
    return f"{figure(round(parts[0][0] / 1000) * 1000)} over the usual were spent {parts[0][1]}"


def _parts(exchanges: Exchanges, answer: int) -> Iterator[tuple[float, str]]:
    """(ns over the median, where) of each part of an answer's exchange."""
    answers, ask = exchanges.answers, int(exchanges.answers.owner[answer])
    ways = [("on the way back from the board", exchanges.back_ns, answer)]
    if ask >= 0:
        ways.append(("on the way to the board", exchanges.there_ns, ask))
    for where, column, index in ways:
        known = column[column != LOST_NS]
        if column[index] != LOST_NS and len(known):
            yield float(column[index] - np.median(known)), where
    stamped = np.flatnonzero((answers.t_rx_ns > 0) & (answers.t_send_ns > 0))
    if len(stamped) and answers.t_rx_ns[answer] > 0 and answers.t_send_ns[answer] > 0:
        inside = answers.t_send_ns - answers.t_rx_ns
        yield float(inside[answer] - np.median(inside[stamped])), "in the board, between its t_rx and t_send"
    asked = exchanges.asks.time_ns
    if ask > 0:
        pauses = np.diff(asked)
        yield float(asked[ask] - asked[ask - 1] - np.median(pauses)), "before the request left the Jetson"
