"""Burst and throughput: how many packets, and how many bits, pass the capture point in a given time.

Further copies count: they load the link like any other packet. A packet whose stamp lies within e of an edge is
counted on both sides of doubt: `floor` leaves it out, `ceiling` takes it in. The same in every mode.
"""

from __future__ import annotations

import numpy as np

from rig.plan.metrics import Burst, Throughput
from rig.timing.metrics.measurement import Measurement, Scene

_S = 1_000_000_000


def burst(metric: Burst, scene: Scene) -> Measurement:
    """One sample per packet: the packets of the flow in the half-open span of length `within` that ends with it."""
    packets = scene.packets[metric.of]
    position = np.flatnonzero(packets.measured)
    time = packets.time_ns[position]
    here = np.arange(len(time))

    def first_in(span_ns: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.minimum(np.searchsorted(time, time - max(0, span_ns), "right"), here)

    first = first_in(metric.within)
    value = here - first + 1
    return Measurement(
        metric="burst",
        kind="packets",
        value_ns=value,
        floor_ns=here - first_in(metric.within - scene.e_ns) + 1 if scene.e_ns else value,
        ceiling=here - first_in(metric.within + scene.e_ns) + 1 if scene.e_ns else value,
        number=packets.number[position],
        reference=packets.number[position[first]],
        time_ns=time,
        denominator=len(time),
        of="packets",
    )


def throughput(metric: Throughput, scene: Scene) -> Measurement:
    """One sample per full interval in bit/s, shown by its first and last packet.

    Without `per` the interval runs from start to end sentinel; where one was not seen, from the first packet (which
    then only opens it) or to the last.
    """
    packets = scene.packets[metric.of]
    position = np.flatnonzero(packets.measured)
    time = packets.time_ns[position]
    table = packets.table
    octets = (table.payload_len if metric.layer == "payload" else table.wire_len)[packets.row[position]]
    passed = np.concatenate(([0], np.cumsum(octets, dtype=np.int64))) * 8
    begin = scene.window_ns[0] if scene.window_ns[0] is not None else int(time[0]) + 1 if len(time) else 0
    end = scene.window_ns[1] if scene.window_ns[1] is not None else int(time[-1]) + 1 if len(time) else 0
    length = metric.per if metric.per is not None else max(0, end - begin)
    edges = begin + np.arange((end - begin) // length + 1 if length > 0 else 1) * length
    e_ns = scene.e_ns

    def rate(inwards_ns: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        low = np.searchsorted(time, edges[:-1] + inwards_ns, "left")
        high = np.searchsorted(time, edges[1:] - inwards_ns, "left")
        bits = passed[np.maximum(high, low)] - passed[low]
        exact: np.ndarray[tuple[int], np.dtype[np.int64]] = np.rint(bits * (_S / max(1, length))).astype(np.int64)
        return exact

    low = np.searchsorted(time, edges[:-1], "left")
    high = np.searchsorted(time, edges[1:], "left") - 1
    shown = high >= low
    numbers = np.append(packets.number[position], np.uint32(0))
    return Measurement(
        metric="throughput",
        kind="rates",
        value_ns=rate(0),
        floor_ns=rate(e_ns),
        ceiling=rate(-e_ns),
        number=np.where(shown, numbers[high], np.uint32(0)),
        reference=np.where(shown, numbers[low], np.uint32(0)),
        time_ns=edges[:-1],
        denominator=len(edges) - 1,
        of="intervals",
    )
