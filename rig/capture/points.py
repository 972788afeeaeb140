"""Capture points: where on the bench frames are stamped and what that means for whoever judges them.

A new kind is one entry of POINTS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from rig.bench.model import CapturePoint

Direction = Literal["both", "to-board", "from-board"]


@dataclass(frozen=True)
class PointKind:
    """directions: which way the frames of each interface go, `both` where only their addresses tell.

    stamps: where a frame is stamped, in words for the record. wire: the stamps are those of frames on the wire; false
    where frames are stamped before they leave. on_jetson: the interfaces are the Jetson's.
    """

    directions: tuple[Direction, ...]
    stamps: str
    wire: bool = True
    on_jetson: bool = False


POINTS: Final[dict[str, PointKind]] = {
    "inline": PointKind(
        directions=("both",),
        stamps="the rig's bridge port towards the board, both directions on one interface and one clock",
    ),
    "mirror": PointKind(
        directions=("both",),
        stamps="the rig's interface at a switch's mirror port, after the switch has queued the copy",
    ),
    "tap": PointKind(
        directions=("to-board", "from-board"),
        stamps="the rig's two interfaces at a tap, one direction each, both stamped by one process with one clock",
    ),
    "jetson": PointKind(
        directions=("both",),
        stamps="the Jetson's own interface and clock; what it sends is stamped before it reaches the wire, what it "
        "receives after its driver has taken it",
        wire=False,
        on_jetson=True,
    ),
}


@dataclass(frozen=True)
class Point:
    """A bench's capture point. interfaces: names or MACs as the bench file gives them; directions: aligned with them.

    duplicates: known to show frames more than once. stamps, wire, on_jetson: see PointKind.
    """

    kind: str
    interfaces: tuple[str, ...]
    directions: tuple[Direction, ...]
    duplicates: bool
    stamps: str
    wire: bool
    on_jetson: bool


def capture_point(model: CapturePoint) -> Point:
    """The capture point that a bench file describes."""
    kind = POINTS[model.point]
    return Point(
        model.point, model.interfaces, kind.directions, model.duplication, kind.stamps, kind.wire, kind.on_jetson
    )
