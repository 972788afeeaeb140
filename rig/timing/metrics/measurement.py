"""What a metric takes and gives: a scene of flows in, a measurement with its samples, frames and counts out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from rig.timing.flows import Packets

INFINITE_NS: Final = int(np.iinfo(np.int64).max)
"""The delay of what never came (RFC 2681 section 2.4: undefined, informally infinite)."""
NO_FLOOR_NS: Final = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class NeverLeft:
    """Requests that their sender handed to its stack and that never left, because nobody answered ARP.

    count: how many. number u4, time_ns i8: the who-has frames without answer.
    """

    count: int
    number: NDArray[np.uint32]
    time_ns: NDArray[np.int64]


@dataclass(frozen=True)
class Scene:
    """Everything that metrics look at.

    packets: the plan's flows by name. timeout_ns: Tmax, after which a response is lost. end_ns: capture time of the
    last frame. sent: flow → what its sender counted itself, where that is known. sent_from_ns: flow → capture time
    from which that counter counts. never_left: flow → see NeverLeft.
    """

    packets: Mapping[str, Packets]
    timeout_ns: int
    end_ns: int
    sent: Mapping[str, int] = field(default_factory=dict)
    sent_from_ns: Mapping[str, int] = field(default_factory=dict)
    never_left: Mapping[str, NeverLeft] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurement:
    """The result of one metric over the measured window.

    kind `durations`: one entry per sample. `events`: one entry per event that a frame shows; value_ns says how bad it
    was (reordering: late time, duplicates: distance from the first copy, loss: infinite).
    value_ns i8: ns, INFINITE_NS for lost. floor_ns i8: the least that the sample can truly be, where the capture
    leaves it open (ended before the time-out, matched by order beside a loss); equal to value_ns elsewhere.
    number u4: frame that shows the sample, 0 if none. reference u4: frame that it is measured against, 0 if none.
    time_ns i8: capture time of `number`. denominator, of: how many things were counted, and what they are.
    counts: further events, by name. least, most: bounds on the number of events; most is None when nobody knows.
    unprovable: why the samples cannot prove a PASS, empty when they can.
    """

    metric: str
    kind: Literal["durations", "events"]
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


def present(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts that are not zero, as plain integers."""
    return {name: int(count) for name, count in counts.items() if count}
