"""Aligning a far clock with the capture clock from the delays of both directions, with an honest error.

The far clock shows the capture's time plus theta(t). A packet captured at C that the far end receives at r obeys
r = C + d + theta with a delay d >= 0, so theta <= r - C; one that it sends at s and that is captured at C obeys
theta >= s - C. theta is taken as a line (offset and drift); all lines that violate no packet form a polygon in the
plane of offset and drift. Its middle is the estimate, its width the error, which no assumption of equal delays makes
smaller: never less than half of the minimum round trip that turnaround does not explain (RFC 7679 section 3.7.1,
Esynch).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

WORST_DRIFT: Final = 0.02
"""The largest drift that is thinkable: 2 %, an uncalibrated RC oscillator."""
_BUCKETS: Final = 48
"""Only the tightest packet of each stretch of time binds; leaving others out can only widen the error."""

Times = NDArray[np.int64]


@dataclass(frozen=True)
class Alignment:
    """theta(t) = offset_ns + drift * (t - origin_ns), in ns; far clock minus capture clock at capture time t.

    error_ns: bound of |estimate - theta| anywhere in the run. drift_error_ns: the same of a difference of two thetas.
    round_trip_ns: the smallest round trip less turnaround.
    """

    origin_ns: int
    offset_ns: int
    drift: float
    error_ns: int
    drift_error_ns: int
    round_trip_ns: int

    def theta_ns(self, at_ns: Times) -> Times:
        """Far clock minus capture clock at the capture times `at_ns`, rounded to ns."""
        slope: Times = np.rint((at_ns - self.origin_ns) * self.drift).astype(np.int64)
        return slope + self.offset_ns


def align(
    captured_out: Times, received: Times, sent: Times, captured_back: Times, round_trip_ns: int, e_ns: int
) -> Alignment | None:
    """Align; None where no line fits, so that the far clock did not run evenly, or where a direction has no packet.

    captured_out, received: capture times of packets towards the far end and its stamps of them. sent, captured_back:
    its stamps of packets from it and their capture times. e_ns: uncertainty of a capture time.
    """
    if not len(received) or not len(sent):
        return None
    origin = int(min(captured_out.min(), captured_back.min()))
    span = max(1, int(max(captured_out.max(), captured_back.max())) - origin)
    base = int(received[0] - captured_out[0])
    above_x, above_y = _tightest(captured_out - origin, received - captured_out - base, span)
    below_x, below_y = _tightest(captured_back - origin, -(sent - captured_back - base), span)
    above_y, below_y = above_y + e_ns, -below_y - e_ns

    corners = _corners(above_x, above_y, below_x, below_y, WORST_DRIFT * span)
    if not len(corners):
        return None
    begin, end = corners[:, 0], corners[:, 0] + corners[:, 1]
    at_begin, at_end = (begin.min() + begin.max()) / 2, (end.min() + end.max()) / 2
    rise = at_end - at_begin
    error = max(np.ptp(begin), np.ptp(end)) / 2
    return Alignment(
        origin_ns=origin,
        offset_ns=base + round(at_begin),
        drift=rise / span,
        error_ns=max(int(np.ceil(error)) + 1, -(-round_trip_ns // 2)),
        drift_error_ns=int(np.ceil(np.abs(corners[:, 1] - rise).max())) + 1,
        round_trip_ns=round_trip_ns,
    )


def _tightest(x: Times, y: Times, span: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The lowest point of each stretch; x as a share of the span."""
    if (np.diff(x) < 0).any():
        order = np.argsort(x, kind="stable")
        x, y = x[order], y[order]
    heads = np.flatnonzero(np.diff(x // (span // _BUCKETS + 1), prepend=-1))
    ends = np.append(heads[1:], len(y))
    which = np.array([head + int(np.argmin(y[head:end])) for head, end in zip(heads, ends, strict=True)], np.int64)
    return x[which] / span, y[which].astype(np.float64)


def _corners(
    above_x: NDArray[np.float64],
    above_y: NDArray[np.float64],
    below_x: NDArray[np.float64],
    below_y: NDArray[np.float64],
    steepest: float,
) -> NDArray[np.float64]:
    """Corners (offset, rise over the span) of the polygon of lines below all of `above` and above all of `below`."""
    x, y = np.concatenate((above_x, below_x)), np.concatenate((above_y, below_y))
    first, second = np.triu_indices(len(x), 1)
    apart = x[first] != x[second]
    first, second = first[apart], second[apart]
    rise = (y[second] - y[first]) / (x[second] - x[first])
    inside = np.abs(rise) <= steepest
    rises = [rise[inside]]
    offsets = [y[first[inside]] - rise[inside] * x[first[inside]]]
    for edge in (-steepest, steepest):
        rises.append(np.full(len(x), edge))
        offsets.append(y - edge * x)
    offset, slope = np.concatenate(offsets), np.concatenate(rises)
    kept = np.ones(len(offset), np.bool_)
    tolerance = 0.5  # ns: less than stamps resolve
    for at, bound in zip(above_x, above_y, strict=True):
        kept &= offset + slope * at <= bound + tolerance
    for at, bound in zip(below_x, below_y, strict=True):
        kept &= offset + slope * at >= bound - tolerance
    return np.stack((offset[kept], slope[kept]), axis=1)
