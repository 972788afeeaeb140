"""Burst and throughput: how many packets, and how many bits, pass the capture point in a given time.

Further copies count: they load the link like any other packet. A packet whose stamp lies within e of an edge is
counted on both sides of doubt: `floor` leaves it out, `ceiling` takes it in. The same in every mode.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rig.plan.metrics import MOST_INTERVALS, Burst, Throughput
from rig.plan.units import format_ns
from rig.timing.metrics.measurement import Measurement, Scene

_S = 1_000_000_000
_FASTEST: Final = float(1 << 62)
"""bit/s; what stamps that are all the same would make faster is held here."""


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
    then only opens it) or to the last. A window without beginning or end has no intervals.
    """
    packets = scene.packets[metric.of]
    position = np.flatnonzero(packets.measured)
    time = packets.time_ns[position]
    edges, length, notes = _intervals(scene.window_ns, time, metric.per)
    if scene.window_ns[0] is None:
        # Others may have the stamp of the packet that opens the window.
        position, time = position[1:], np.maximum(time[1:], edges[0])
    table = packets.table
    octets = (table.payload_len if metric.layer == "payload" else table.wire_len)[packets.row[position]]
    passed = np.concatenate(([0], np.cumsum(octets, dtype=np.int64))) * 8
    e_ns = scene.e_ns

    def rate(inwards_ns: int) -> NDArray[np.int64]:
        low = np.searchsorted(time, edges[:-1] + inwards_ns, "left")
        high = np.searchsorted(time, edges[1:] - inwards_ns, "left")
        bits = passed[np.maximum(high, low)] - passed[low]
        exact: NDArray[np.int64] = np.rint(np.minimum(bits * (_S / length), _FASTEST)).astype(np.int64)
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
        notes=notes,
    )


def _intervals(
    window_ns: tuple[int | None, int | None], time: NDArray[np.int64], per: int | None
) -> tuple[NDArray[np.int64], int, tuple[str, ...]]:
    """(the edges of the intervals, their length, why there are none)."""
    begin, end = window_ns
    if len(time):
        begin = int(time[0]) + 1 if begin is None else begin
        end = int(time[-1]) + 1 if end is None else end
    none = np.zeros(1, np.int64)
    if begin is None or end is None:
        return none, 1, ("a sentinel is missing and no packet is there in its place: the window has no length",)
    length = per if per is not None else max(1, end - begin)
    count = (end - begin) // length
    if count > MOST_INTERVALS:
        many = f"{format_ns(end - begin)} hold {count} intervals of {format_ns(length)}"
        return none, 1, (f"{many}; at most {MOST_INTERVALS} are judged",)
    return begin + np.arange(count + 1) * length, length, ()
