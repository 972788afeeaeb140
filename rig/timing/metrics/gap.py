"""Gap: time between successive packets of a flow, or of one answer, at the capture point.

g_i = R_i - R_(i-1) of successive first copies in order of capture; no sender's stamps are involved, so this is no
jitter (RFC 3550 A.8 needs them). A gap starts at one captured packet and stops at the next.
`within: flow`: mode `request`: all datagrams of the flow, answers of different requests included; mode `push`: from
push to push. A new boot of a sender begins anew.
`within: request_id`: only between datagrams of one answer or one push, the inter-token gap as the wire shows it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rig.errors import PlanError
from rig.plan.metrics import Gap
from rig.timing.flows import Packets
from rig.timing.metrics.answers import answers
from rig.timing.metrics.measurement import Measurement, Scene, durations, present


def gap(metric: Gap, scene: Scene) -> Measurement:
    """One sample per pair of successive packets in the measured window; further copies are left out and counted."""
    packets = scene.packets[metric.of]
    position = np.flatnonzero(packets.measured)
    copies = 0
    if packets.tokens is not None:
        first_copy = packets.stream.first_copy[position]
        copies = int(np.count_nonzero(~first_copy))
        position = position[first_copy]
    if metric.within == "request_id":
        if packets.tokens is None:
            raise PlanError(
                f"flow `{packets.name}` is grouped by request_id but its selector names no token protocol",
                hint="add `protocol: token-v2` to the flow, or use `within: flow`",
            )
        position, answer = answers(packets)
        inner = np.flatnonzero(np.diff(answer) == 0) + 1
    else:
        inner = np.flatnonzero(~_begins_anew(packets, position)[1:]) + 1
    before, after = position[inner - 1], position[inner]
    if (np.diff(after) < 0).any():
        in_time = np.argsort(after, kind="stable")
        before, after = before[in_time], after[in_time]
    return durations(
        "gap",
        packets.time_ns[after] - packets.time_ns[before],
        packets.number[after],
        packets.number[before],
        packets.time_ns[after],
        "gaps",
        counts=present({"further copies left out": copies}),
    )


def _begins_anew(packets: Packets, position: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The first packet of each boot of a sender but its first one, among those at `position`."""
    anew = np.zeros(len(position), np.bool_)
    if packets.tokens is None:
        return anew
    boot = packets.tokens.boot_id[position]
    if (boot == boot[:1]).all():
        return anew
    sender = packets.table.ends.source[packets.sender[position]].astype(np.int64)
    anew[np.unique((sender << 32) | boot, return_index=True)[1]] = True
    anew[np.unique(sender, return_index=True)[1]] = False
    return anew
