"""Duplicates: further copies of a packet that was already captured (RFC 5560 sections 2.4, 3.4, 5.1).

Two datagrams are copies when both ends, sender's boot and sequence number agree, in token-v1 the payload too, because
the datagrams of one answer share a number there (RFC 5560 section 2.5 wants the fields stated); T0 is the length of the
capture. A copy with other VLAN tags than those before it may be the same packet at another place, as a mirror port
shows it: it proves no duplication and leaves the count open. An answer that the board sends twice has two sequence
numbers and is no duplicate.
Count: copies beyond the first in the measured window. Ratio: duplication fraction, copies over distinct packets.
Starts and stops nowhere: it is a count. Same in modes `request` and `push`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rig.errors import PlanError
from rig.plan.metrics import Duplicates
from rig.timing.flows import Packets
from rig.timing.metrics.measurement import Measurement, Scene, present


def duplicates(metric: Duplicates, scene: Scene) -> Measurement:
    """One event per further copy; value_ns is its distance from the first one."""
    packets = scene.packets[metric.of]
    if packets.tokens is None:
        raise PlanError(
            f"duplicates of flow `{packets.name}` cannot be told from repeats: its selector names no token protocol",
            hint="add `protocol: token-v2` to the flow",
        )
    stream = packets.stream
    copy = np.flatnonzero(packets.measured & ~stream.first_copy)
    original = stream.original[copy]
    distinct = int(np.count_nonzero(packets.measured & stream.first_copy))
    other_tags = _with_other_tags(packets, copy, original)
    value = packets.time_ns[copy] - packets.time_ns[original]
    return Measurement(
        metric="duplicates",
        kind="events",
        value_ns=value,
        floor_ns=value,
        number=packets.number[copy],
        reference=packets.number[original],
        time_ns=packets.time_ns[copy],
        denominator=distinct,
        of="distinct packets",
        counts=present(
            {
                "copies": len(copy),
                "replicated packets": len(np.unique(original)),
                "copies with other VLAN tags": other_tags,
            }
        ),
        least=len(copy) - other_tags,
        most=len(copy),
    )


def _with_other_tags(packets: Packets, copy: NDArray[np.int64], original: NDArray[np.int64]) -> int:
    """How many of the copies are the first of their packet with their VLAN tags."""
    flow = packets.table.flow[packets.row]
    if (flow[copy] == flow[original]).all():
        return 0
    shown = np.unique(np.concatenate((copy, original)))
    appearances = np.unique((packets.stream.original[shown] << 32) | flow[shown])
    return len(appearances) - len(np.unique(original))
