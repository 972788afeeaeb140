"""Turnaround: where the time goes inside the board, by the stamps of its own clock in token-v2 answers.

`whole`: request received (`t_rx`) to the answer's first datagram handed to the stack (`t_send`). `inference`: `t_rx` to
inference done (`t_ready`), of the first datagram. `send`: `t_ready` to `t_send`, of every datagram. `queue`: `t_send`
until the driver had the frame in its ring; a datagram's figure travels in the next one of its sender.
All are differences of one clock, so the bench's e and the capture clock have no part in them; they are as fine as the
board's clock. Mode `request`: answers. Mode `push`: pushes, whose `t_rx` is the board's tick.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rig.errors import PlanError
from rig.plan.metrics import Turnaround
from rig.protocol import token_v2
from rig.timing.metrics.measurement import Measurement, Scene, durations, present
from rig.timing.metrics.stamps import Stamps

_STAMPS: Final = {
    "whole": ("t_rx_ns", "t_send_ns"),
    "inference": ("t_rx_ns", "t_ready_ns"),
    "send": ("t_ready_ns", "t_send_ns"),
}


def turnaround(metric: Turnaround, scene: Scene) -> Measurement:
    """One sample per answer (`whole`, `inference`) or per datagram (`send`, `queue`) of the measured window."""
    packets = scene.packets[metric.of]
    tokens = packets.tokens
    if tokens is None or tokens.sequence_bits == 16:
        raise PlanError(
            f"flow `{packets.name}` carries no stamps of its sender: its selector does not name token-v2",
            hint="add `protocol: token-v2` to the flow",
        )
    fresh = packets.measured & packets.stream.first_copy
    if metric.stage == "queue":
        position = np.flatnonzero(fresh)
        value = tokens.prev_queued_ns[position].astype(np.int64)
        known = value != token_v2.UNKNOWN_QUEUED
        # Shown by the datagram before it in sending order, which is the one that was queued.
        space, sequence = packets.stream.space, packets.stream.extended
        shown = np.maximum(position - 1, 0)
        right = (space[shown] == space[position]) & (sequence[shown] == sequence[position] - 1) & (shown < position)
        number = np.where(right, packets.number[shown], np.uint32(0))
        reference = packets.number[position]
        counts, unprovable = present({"without a stamp": int(np.count_nonzero(~known))}), ""
    else:
        position = np.flatnonzero(fresh & tokens.first) if metric.stage != "send" else np.flatnonzero(fresh)
        stamps = Stamps.of(*(getattr(tokens, name)[position] for name in _STAMPS[metric.stage]))
        begin, end = stamps.columns
        known, value = stamps.sound, end - begin
        counts, unprovable = stamps.missing, stamps.unprovable
        number = packets.number[position]
        reference = np.zeros(len(position), np.uint32)
    return durations(
        "turnaround",
        value[known],
        number[known].astype(np.uint32),
        reference[known],
        packets.time_ns[position[known]],
        "answers" if metric.stage in ("whole", "inference") else "datagrams",
        counts=counts,
        unprovable=unprovable,
        far_clock=True,
    )
