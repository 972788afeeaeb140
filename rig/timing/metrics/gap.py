"""Gap: time between successive packets of a flow, or of one answer, at the capture point.

g_i = R_i - R_(i-1) of successive first copies in order of capture; no sender's stamps are involved, so this is no
jitter (RFC 3550 A.8 needs them). A gap starts at one captured packet and stops at the next.
`within: flow`: mode `request`: all datagrams of the flow, answers of different requests included; mode `push`: from
push to push. A new boot of the sender begins anew.
`within: request_id`: only between datagrams of one answer or one push, the inter-token gap as the wire shows it.
"""

from __future__ import annotations

import numpy as np

from rig.errors import PlanError
from rig.plan.metrics import Gap
from rig.timing.metrics.measurement import Measurement, Scene, present


def gap(metric: Gap, scene: Scene) -> Measurement:
    """One sample per pair of successive packets in the measured window; further copies are left out and counted."""
    packets = scene.packets[metric.of]
    position = np.flatnonzero(packets.measured)
    copies = 0
    group = np.zeros(len(position), np.int64)
    if packets.tokens is not None:
        first_copy = packets.stream.first_copy[position]
        copies = int(np.count_nonzero(~first_copy))
        position = position[first_copy]
        group = packets.stream.space[position]
    if metric.within == "request_id":
        if packets.tokens is None:
            raise PlanError(
                f"flow `{packets.name}` is grouped by request_id but its selector names no token protocol",
                hint="add `protocol: token-v2` to the flow, or use `within: flow`",
            )
        group = (group << 32) | packets.tokens.request_id[position]
    if len(group) and (group != group[0]).any():
        order = np.argsort(group, kind="stable")
        position, group = position[order], group[order]
    same = np.flatnonzero(np.diff(group) == 0)
    before, after = position[same], position[same + 1]
    if (np.diff(after) < 0).any():
        in_time = np.argsort(after, kind="stable")
        before, after = before[in_time], after[in_time]
    value = packets.time_ns[after] - packets.time_ns[before]
    return Measurement(
        metric="gap",
        kind="durations",
        value_ns=value,
        floor_ns=value,
        number=packets.number[after],
        reference=packets.number[before],
        time_ns=packets.time_ns[after],
        denominator=len(value),
        of="gaps",
        counts=present({"further copies left out": copies}),
    )
