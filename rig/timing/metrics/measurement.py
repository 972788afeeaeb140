"""What a metric takes and gives: a scene of flows in, a measurement with its samples, frames and counts out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from rig.timing.flows import Packets
from rig.timing.metrics.matching import Matchings

INFINITE_NS: Final = int(np.iinfo(np.int64).max)
"""The delay of what never came (RFC 2681 section 2.4: undefined, informally infinite)."""
NO_FLOOR_NS: Final = int(np.iinfo(np.int64).min)
MOST_LOST: Final = 10_000_000
"""Lost packets that become samples. A counter that tells of more has gone wrong, or so has the run."""


@dataclass(frozen=True)
class Sent:
    """What the sender of a flow counted between the sentinels, against all that the capture holds of it.

    count: by the sender. seen: packets that it counted and the capture shows, in whatever flow. least, most: bounds on
    those that it does not show; most is None where counter and capture do not fit together. whole: the flow has all of
    those that are seen, so what is missing is missing from it; else it may be missing from another flow. covers: every
    packet of the flow is of those that the sender counts; else more may be missing from it than the counter tells.
    """

    count: int
    seen: int
    least: int
    most: int | None
    whole: bool = True
    covers: bool = True

    @classmethod
    def exactly(cls, count: int, seen: int) -> Sent:
        """Where it is known of each packet seen whether the sender counted it."""
        return cls(count, seen, max(0, count - seen), count - seen if count >= seen else None)


@dataclass(frozen=True)
class NeverLeft:
    """Requests that their sender handed to its stack and that never left, because nobody answered ARP.

    count: how many. number u4, time_ns i8: the who-has frames without answer.
    """

    count: int
    number: NDArray[np.uint32]
    time_ns: NDArray[np.int64]

    def shown(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """(number, time) of a who-has frame for each of them, for `MOST_LOST` at most."""
        index = np.minimum(np.arange(min(self.count, MOST_LOST)), len(self.number) - 1)
        return self.number[index], self.time_ns[index]


@dataclass(frozen=True)
class Decoding:
    """What the Jetson's own events tell of its inference, one entry per measured request, times of its own clock.

    request_id u4. start_ns i8: the request's work begins. begin i8: where its tokens begin in `token_ns`, one entry
    more than there are requests. token_ns i8: when each token was decoded.
    """

    request_id: NDArray[np.uint32]
    start_ns: NDArray[np.int64]
    begin: NDArray[np.int64]
    token_ns: NDArray[np.int64]


@dataclass(frozen=True)
class Scene:
    """Everything that metrics look at.

    packets: the plan's flows by name. timeout_ns: Tmax, after which a response is lost. end_ns: capture time of the
    last frame. sent: flow → what its sender counted itself, where that is known. never_left: flow → see NeverLeft.
    window_ns: the measured window, None where a sentinel was not seen. e_ns: uncertainty of a difference of capture
    times. decoding: the Jetson's events, if known.
    """

    packets: Mapping[str, Packets]
    timeout_ns: int
    end_ns: int
    sent: Mapping[str, Sent] = field(default_factory=dict)
    never_left: Mapping[str, NeverLeft] = field(default_factory=dict)
    window_ns: tuple[int | None, int | None] = (None, None)
    e_ns: int = 0
    decoding: Decoding | None = None
    matchings: Matchings = field(default_factory=Matchings, compare=False, repr=False)


@dataclass(frozen=True)
class Measurement:
    """The result of one metric over the measured window.

    kind `durations`: one entry per sample. `events`: one entry per event that a frame shows; value_ns says how bad it
    was (reordering: late time, duplicates: distance from the first copy, loss: infinite). `packets`, `rates`: one
    entry per span or interval, in packets or bit/s.
    value_ns i8: ns, INFINITE_NS for lost. floor_ns i8: the least that the sample can truly be, where the capture
    leaves it open (ended before the time-out, matched by order beside a loss); equal to value_ns elsewhere.
    ceiling: the most that it can be, None when that is the value. extent i8: reordering, in packets.
    number u4: frame that shows the sample, 0 if none. reference u4: frame that it is measured against, 0 if none.
    time_ns i8: capture time of `number`. denominator, of: how many things were counted, and what they are.
    counts: further events, by name. least, most: bounds on the number of events; most is None when nobody knows.
    unprovable: why the samples cannot prove a PASS, empty when they can. error_ns: uncertainty of the samples besides
    the bench's e, as of a clock that had to be aligned. far_clock: the samples are differences of stamps of one clock
    at the far end, so that the bench's e has no part in them.
    """

    metric: str
    kind: Literal["durations", "events", "packets", "rates"]
    value_ns: NDArray[np.int64]
    floor_ns: NDArray[np.int64]
    number: NDArray[np.uint32]
    reference: NDArray[np.uint32]
    time_ns: NDArray[np.int64]
    denominator: int
    of: str
    counts: Mapping[str, int] = field(default_factory=dict)
    least: int = 0
    most: int | None = 0
    notes: tuple[str, ...] = ()
    unprovable: str = ""
    ceiling: NDArray[np.int64] | None = None
    extent: NDArray[np.int64] | None = None
    error_ns: int = 0
    far_clock: bool = False

    def without_first(self, count: int) -> Measurement:
        """The samples after the first `count`; what was left out is in the counts."""
        kept = slice(count, None)
        columns = {
            name: getattr(self, name)[kept] for name in ("value_ns", "floor_ns", "number", "reference", "time_ns")
        }
        skipped = min(count, len(self.value_ns))
        return replace(
            self,
            **columns,
            ceiling=None if self.ceiling is None else self.ceiling[kept],
            denominator=self.denominator - skipped,
            counts={**self.counts, **present({"left out at the start": skipped})},
        )


def durations(
    metric: str,
    value_ns: NDArray[np.int64],
    number: NDArray[np.uint32],
    reference: NDArray[np.uint32],
    time_ns: NDArray[np.int64],
    of: str,
    **more: Any,
) -> Measurement:
    """A measurement of durations that are all certain, with the rest as given."""
    return Measurement(metric, "durations", value_ns, value_ns, number, reference, time_ns, len(value_ns), of, **more)


def present(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts that are not zero, as plain integers."""
    return {name: int(count) for name, count in counts.items() if count}
