"""How long datagrams of the board were held: from the send stamp to the wire, less the shortest.

What the driver, or the link behind it, adds; and the patterns in it that tell causes apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rig.triage.exchange_model import LOST_NS

if TYPE_CHECKING:
    from rig.triage.case import Case


@dataclass(frozen=True)
class Holds:
    """Per sent datagram: hold_ns f8, when it was sent and seen (ns, one clock each), size in bytes, row."""

    hold_ns: NDArray[np.float64]
    sent_ns: NDArray[np.int64]
    seen_ns: NDArray[np.int64]
    size: NDArray[np.float64]
    row: NDArray[np.int64]
    owner: NDArray[np.int64]

    @property
    def late(self) -> NDArray[np.bool_]:
        middle = float(np.median(self.hold_ns))
        mask: NDArray[np.bool_] = self.hold_ns > middle + self.threshold_ns
        return mask

    threshold_ns: float = 0.0


@lru_cache(maxsize=2)
def holds(case: Case) -> Holds | None:
    exchanges = case.exchanges
    if exchanges is None or not exchanges.stamped or len(case.boots) != 1:
        return None
    answers = exchanges.answers
    at = np.flatnonzero((exchanges.back_ns != LOST_NS) & ~answers.copy)
    if len(at) < 20:
        return None
    hold = exchanges.back_ns[at].astype(np.float64)
    return Holds(
        hold - hold.min(),
        answers.t_send_ns[at],
        answers.time_ns[at],
        answers.size[at].astype(np.float64),
        answers.row[at],
        answers.owner[at],
        float(case.noise_ns),
    )


def group_size(found: Holds) -> float:
    """Mean size of the groups in which frames leave although they were sent apart; 1 where most leave as sent."""
    wire, sent = np.diff(found.seen_ns), np.diff(found.sent_ns)
    together = (wire < 300_000) & (sent > 500_000)
    edges = np.flatnonzero(~together)
    lengths = np.diff(np.concatenate(([-1], edges, [len(together)])))
    groups = lengths[lengths > 1]
    # A single stall of the whole board ends in one large group.
    return float(np.median(groups)) if len(groups) >= 5 and groups.sum() > 0.3 * len(found.row) else 1.0


def runs(index: NDArray[np.int64]) -> int:
    """Separate stretches of successive frames: a single stall of the whole board makes many late frames and one run."""
    return int(np.count_nonzero(np.diff(index) > 1)) + 1 if len(index) else 0


def after_idle_share(found: Holds, late: NDArray[np.int64]) -> float:
    """Share of late frames whose pause before is longer than nearly all pauses before frames in time; 0 to 1."""
    idle = np.diff(found.sent_ns, prepend=found.sent_ns[0])
    others = np.setdiff1d(np.arange(1, len(idle)), late)
    if not len(others):
        return 0.0
    usual = np.percentile(idle[others], 95)
    # Those right behind a late one only wait for it.
    begins = late[np.diff(late, prepend=-2) > 1]
    begins = begins[begins > 0]
    return float((idle[begins] > 2 * usual).mean()) if len(begins) else 0.0


def period_of(found: Holds, late: NDArray[np.int64]) -> float | None:
    """The period, ns, at which late frames come; None without one. A period spans several frames."""
    if len(late) < 4:
        return None
    at = found.sent_ns[late].astype(np.float64)
    # Frames that were late together belong to one event.
    pace = float(np.median(np.diff(found.sent_ns)))
    steps = np.diff(at)
    steps = steps[steps > 5 * pace]
    if len(steps) < 3 or len(steps) < 0.6 * (len(late) - 1):
        return None
    base = float(np.percentile(steps, 20))
    whole = np.round(steps / base)
    period = float(np.sum(steps) / np.sum(whole))
    off = np.abs(steps / period - np.round(steps / period))
    return period if (off < 0.06).mean() > 0.85 else None
