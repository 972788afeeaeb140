"""Reordering: packets that arrive after a later one of their sender (RFC 4737 section 3.3, type-P-reordered).

A packet is reordered when its sequence number is smaller than NextExp, the highest so far plus one; NextExp stays.
First copies only. Sequence spaces are per sender and boot, wraps are undone (section 6).
Ratio: reordered over packets received (section 4.1.3). value_ns is the late time (section 4.2.3): distance from the
earliest packet that should have come later; `reference` is that packet, so extent and frames can be looked up.
Starts and stops nowhere: it is a count. Same in modes `request` and `push`.
"""

from __future__ import annotations

import numpy as np

from rig.errors import PlanError
from rig.plan.model import Reordering
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
    order = stream.order[(stream.first_copy & packets.measured)[stream.order]]
    extended, space = stream.extended[order], stream.space[order]
    # Spaces follow each other; shifting each above the one before makes one running maximum serve all.
    if len(order) and space[0] != space[-1]:
        heads = np.flatnonzero(np.diff(space, prepend=-1))
        low = np.minimum.reduceat(extended, heads)
        high = np.maximum.reduceat(extended, heads)
        shift = np.concatenate(([0], np.cumsum(high - low + 1)[:-1])) - low
        extended = extended + np.repeat(shift, np.diff(np.append(heads, len(order))))
    highest = np.maximum.accumulate(extended) if len(order) else extended
    late = np.flatnonzero(extended[1:] < highest[:-1]) + 1
    overtaker = np.searchsorted(highest, extended[late], "right")
    extent = late - overtaker
    value = packets.time_ns[order[late]] - packets.time_ns[order[overtaker]]
    in_time = np.argsort(order[late], kind="stable")
    late, overtaker, value = late[in_time], overtaker[in_time], value[in_time]
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
        counts=present({"reordered": len(late), "largest extent (packets)": int(extent.max()) if len(late) else 0}),
        least=len(late),
        most=len(late),
    )
