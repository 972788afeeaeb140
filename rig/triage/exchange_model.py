"""Exchanges as columns: what was asked, what answered, how long each direction took (see `rig.triage.exchanges`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rig.timing.window import Window

LOST_NS: Final = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Asks:
    """Requests of the measured window in order of capture, first copies only.

    row i8, number u4, time_ns i8: frame. id u4, sequence i8. size u4: bytes on the wire.
    copies i8: further frames with the same sequence. wanted i8: tokens asked for.
    """

    row: NDArray[np.int64]
    number: NDArray[np.uint32]
    time_ns: NDArray[np.int64]
    id: NDArray[np.uint32]
    sequence: NDArray[np.int64]
    size: NDArray[np.uint32]
    copies: NDArray[np.int64]
    wanted: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Answers:
    """Datagrams of the board in the measured window in order of capture, copies included.

    owner i8: index into the asks, -1 for none (a push, or a request that the capture lacks). copy b: an earlier frame
    has the same boot and sequence; since_copy_ns i8: time since then. Stamps i8: board clock, 0 unknown.
    """

    row: NDArray[np.int64]
    number: NDArray[np.uint32]
    time_ns: NDArray[np.int64]
    id: NDArray[np.uint32]
    sequence: NDArray[np.int64]
    boot: NDArray[np.uint32]
    size: NDArray[np.uint32]
    owner: NDArray[np.int64]
    copy: NDArray[np.bool_]
    since_copy_ns: NDArray[np.int64]
    first: NDArray[np.bool_]
    last: NDArray[np.bool_]
    t_rx_ns: NDArray[np.int64]
    t_ready_ns: NDArray[np.int64]
    t_send_ns: NDArray[np.int64]
    tokens: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Baseline:
    """Exchanges outside of the load. n: how many. there_ns, back_ns: medians, clock offset included; None without."""

    n: int
    there_ns: int | None
    back_ns: int | None


@dataclass(frozen=True)
class Exchanges:
    """All exchanges of a capture.

    stamped: the protocol carries the board's stamps. first, final i8 per ask: index of the earliest answer and of the
    one with the `last` flag (first copies), -1 where there is none. response_ns i8 per ask: to `final`, else LOST_NS.
    there_ns i8 per ask, back_ns i8 per answer: see above, LOST_NS where a stamp is missing. sentinel_there: the
    same for the start and end sentinels.
    """

    asks: Asks
    answers: Answers
    window: Window
    stamped: bool
    first: NDArray[np.int64]
    final: NDArray[np.int64]
    response_ns: NDArray[np.int64]
    there_ns: NDArray[np.int64]
    back_ns: NDArray[np.int64]
    baseline: Baseline
    push: bool
    sentinel_there: NDArray[np.int64]
    """(bytes, there_ns) of the answered start and end sentinels, one row each."""
    board: str
    jetson: str
    known: bool = True
    """False for datagrams of an unknown protocol, of which nobody knows whether they ask for an answer."""

    @property
    def answered(self) -> NDArray[np.int64]:
        """Indices of asks that got their final answer."""
        return np.flatnonzero(self.final >= 0)

    @property
    def lost(self) -> NDArray[np.int64]:
        """Indices of asks without a final answer."""
        return np.flatnonzero(self.final < 0)

    @property
    def turnaround_ns(self) -> NDArray[np.int64]:
        """Per answered ask: the board's t_send − t_rx of its final answer."""
        final = self.final[self.answered]
        return self.answers.t_send_ns[final] - self.answers.t_rx_ns[final]

    @property
    def path_ns(self) -> NDArray[np.int64]:
        """Per answered ask: response time less turnaround: both ways and the board's stack, free of clock offsets."""
        return self.response_ns[self.answered] - self.turnaround_ns


def earliest(answers: Answers, count: int, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Per ask the index of its earliest answer that the mask admits, copies left out; -1 where there is none."""
    found = np.full(count, -1, np.int64)
    index = np.flatnonzero(mask & (answers.owner >= 0) & ~answers.copy)[::-1]
    found[answers.owner[index]] = index
    return found
