"""How much longer one direction took in the load than before it, and of what kind the difference is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from rig.plan.units import format_ns
from rig.triage.exchange_model import LOST_NS

if TYPE_CHECKING:
    from rig.triage.case import Case

Way = Literal["there", "back"]


@dataclass(frozen=True)
class Shift:
    """How long one direction took in the load, over what it took before it. All in ns; row: frame of each sample."""

    value_ns: NDArray[np.float64]
    row: NDArray[np.int64]
    size: NDArray[np.float64]
    based: bool
    """False: there were no exchanges before the load, and the fastest of the load stands for them."""

    def at(self, percent: float) -> float:
        return float(np.percentile(self.value_ns, percent))


@lru_cache(maxsize=4)
def shift(case: Case, way: Way) -> Shift | None:
    """None without the board's stamps, or when it restarted (its clock began anew)."""
    exchanges = case.exchanges
    if exchanges is None or not exchanges.stamped or len(case.boots) != 1:
        return None
    if way == "there":
        known = np.flatnonzero(exchanges.there_ns != LOST_NS)
        value, row, size = exchanges.there_ns[known], exchanges.asks.row[known], exchanges.asks.size[known]
        base = exchanges.baseline.there_ns
    else:
        known = np.flatnonzero((exchanges.back_ns != LOST_NS) & ~exchanges.answers.copy)
        value, row, size = exchanges.back_ns[known], exchanges.answers.row[known], exchanges.answers.size[known]
        base = exchanges.baseline.back_ns
    if len(value) < 5:
        return None
    based = base is not None
    value = value - (base if base is not None else int(value.min()))
    return Shift(value.astype(np.float64), row, size.astype(np.float64), based)


@lru_cache(maxsize=4)
def clock_stepped(case: Case) -> bool:
    """True when the capture's clock stepped, so that shifts mean nothing."""
    from rig.triage.rules.clock import clock_step

    support = clock_step(case)
    return support is not None and support.score >= 0.9


@lru_cache(maxsize=4)
def kind_of(case: Case, way: Way) -> tuple[Literal["none", "delay", "jitter", "rate", "some"], Shift | None]:
    """What kind of slowness one direction shows."""
    found = shift(case, way)
    if found is None or clock_stepped(case):
        return "none", found
    noise = float(case.noise_ns)
    low, middle, high = found.at(10), found.at(50), found.at(90)
    if way == "back" and rate_of(case)[0]:
        return "rate", found
    if way == "there" and low > noise and _grows_from_nothing(case, found):
        return "rate", found
    # A quarter may be slower still, as on a busy host; times that are evenly spread are no constant delay.
    if low > noise and found.at(75) - low < max(0.7 * middle, noise):
        return "delay", found
    if middle > 1.5 * noise and high - low > 2 * noise and 0.4 < (high - middle) / max(1.0, middle - low) < 2.5:
        return "jitter", found
    late = found.value_ns > max(middle + 2 * noise, 2 * noise)
    if 0.015 < late.mean() < 0.5:
        return "some", found
    return "none", found


@lru_cache(maxsize=4)
def rate_of(case: Case) -> tuple[float, tuple[int, ...]]:
    """(bit/s at which back-to-back answers leave, frames) when they are stretched to one rate; else 0."""
    exchanges = case.exchanges
    if exchanges is None or not exchanges.stamped:
        return 0.0, ()
    answers = exchanges.answers
    follows = np.flatnonzero((answers.owner[1:] == answers.owner[:-1]) & (answers.owner[1:] >= 0)) + 1
    follows = follows[~answers.copy[follows] & ~answers.copy[follows - 1]]
    if len(follows) < 20:
        return 0.0, ()
    wire = (answers.time_ns[follows] - answers.time_ns[follows - 1]).astype(np.float64)
    sent = (answers.t_send_ns[follows] - answers.t_send_ns[follows - 1]).astype(np.float64)
    stretched = (wire > 2 * sent) & (wire > 300_000)
    if stretched.mean() < 0.6:
        return 0.0, ()
    per_bit = wire[stretched] / (answers.size[follows][stretched] * 8.0)
    low, middle, high = np.percentile(per_bit, [15, 50, 85])
    if (high - low) > 0.35 * middle:
        return 0.0, ()
    return 1e9 / float(middle), tuple(int(n) for n in answers.number[follows[stretched]][:4])


def _grows_from_nothing(case: Case, found: Shift) -> bool:
    """The shift is in proportion to the frame's length: the start and end sentinels, which are shorter, say so."""
    exchanges = case.exchanges
    if exchanges is None or not len(exchanges.sentinel_there) or exchanges.baseline.there_ns is None:
        return False
    size = float(np.median(found.size))
    sentinel = float(exchanges.sentinel_there[:, 0].mean())
    if size < 1.5 * sentinel:
        return False
    short = float(np.min(exchanges.sentinel_there[:, 1])) - exchanges.baseline.there_ns
    return short < 0.6 * found.at(50)


def rounded(ns: float) -> str:
    """Rounded to 10 us, as fine as such an estimate is."""
    return format_ns(round(ns / 10_000) * 10_000)


def turnaround(case: Case) -> str:
    exchanges = case.exchanges
    if exchanges is None or not len(exchanges.answered):
        return "unknown"
    return rounded(float(np.median(exchanges.turnaround_ns)))
