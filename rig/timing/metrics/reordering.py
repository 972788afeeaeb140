"""Reordering: packets that arrive after a later one of their sender (RFC 4737 section 3.3, type-P-reordered).

A packet is reordered when its sequence number is smaller than NextExp, the highest so far plus one; NextExp stays.
First copies only. Compared are packets of one sender's boot to one receiver, as those to others may go another way;
wraps are undone (section 6).
Ratio: reordered over packets received (section 4.1.3). Each event has its extent (section 4.2: packets back to the
earliest one that should have come later, which is `reference`) and its late time (section 4.3: the time since then).
With `n` only n-reordered packets count (section 5.3): all of the n packets before should have come later. With n = 3
these are the packets for which a TCP sender would retransmit.
Frames stamped by different cores may step back by less than e: a late time below e proves nothing.
Starts and stops nowhere: it is a count. Same in modes `request` and `push`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rig.errors import PlanError
from rig.plan.metrics import Reordering
from rig.timing.metrics.measurement import Measurement, Scene, present


def reordering(metric: Reordering, scene: Scene) -> Measurement:
    """One event per reordered packet."""
    packets = scene.packets[metric.of]
    if packets.tokens is None:
        raise PlanError(
            f"flow `{packets.name}` has no sequence numbers: its selector names no token protocol",
            hint="add `protocol: token-v2` to the flow",
        )
    stream = packets.stream
    order = np.flatnonzero(stream.first_copy & packets.measured)
    towards = stream.towards[order]
    several = bool((towards != towards[:1]).any())
    if several:
        in_turn = np.argsort(towards, kind="stable")
        order, towards = order[in_turn], towards[in_turn]
    extended = stream.extended[order]
    # Receivers follow each other; shifting each above the one before makes one running maximum serve all.
    if several:
        heads = np.flatnonzero(np.diff(towards, prepend=-1))
        low = np.minimum.reduceat(extended, heads)
        high = np.maximum.reduceat(extended, heads)
        shift = np.concatenate(([0], np.cumsum(high - low + 1)[:-1])) - low
        extended = extended + np.repeat(shift, np.diff(np.append(heads, len(order))))
    highest = np.maximum.accumulate(extended) if len(order) else extended
    late = np.flatnonzero(extended[1:] < highest[:-1]) + 1
    plain = len(late)
    if metric.n is not None:
        late = _n_reordered(extended, late, metric.n)
    overtaker = np.searchsorted(highest, extended[late], "right")
    extent = late - overtaker
    value = packets.time_ns[order[late]] - packets.time_ns[order[overtaker]]
    in_time = np.argsort(order[late], kind="stable")
    late, overtaker, value, extent = late[in_time], overtaker[in_time], value[in_time], extent[in_time]
    return Measurement(
        metric="reordering",
        kind="events",
        value_ns=value,
        floor_ns=value,
        number=packets.number[order[late]],
        reference=packets.number[order[overtaker]],
        time_ns=packets.time_ns[order[late]],
        denominator=len(order),
        of="packets received",
        counts=present(
            {
                "reordered": plain,
                f"{metric.n}-reordered": len(late) if metric.n is not None else 0,
                "largest extent (packets)": int(extent.max()) if len(late) else 0,
            }
        ),
        least=int(np.count_nonzero(value >= scene.e_ns)),
        most=len(late),
        extent=extent,
    )


def _n_reordered(sequence: NDArray[np.int64], late: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Those of `late` whose n predecessors all have larger numbers."""
    for back in range(1, n + 1):
        late = late[late >= back]
        late = late[sequence[late - back] > sequence[late]]
    return late
