"""Capture points: where on the bench frames are stamped and what that means for whoever judges them.

A new kind is one entry of POINTS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rig.bench.model import CapturePoint


@dataclass(frozen=True)
class PointKind:
    """direction: which way the frames of an interface go, `both` where only their addresses tell.

    stamps: where a frame is stamped, in words for the record.
    """

    direction: str
    duplicates: bool
    """True where the kind by itself shows a frame more than once."""
    stamps: str


POINTS: Final[dict[str, PointKind]] = {
    "inline": PointKind(
        direction="both",
        duplicates=False,
        stamps="the rig's bridge port towards the board, both directions on one interface and one clock",
    ),
    "mirror": PointKind(
        direction="both",
        duplicates=False,
        stamps="the rig's interface at a switch's mirror port, after the switch has queued the copy",
    ),
}


@dataclass(frozen=True)
class Point:
    """A bench's capture point. interfaces: names or MACs as the bench file gives them, one per direction at a tap."""

    kind: str
    interfaces: tuple[str, ...]
    direction: str
    duplicates: bool
    stamps: str


def capture_point(model: CapturePoint) -> Point:
    """The capture point that a bench file describes."""
    kind = POINTS[model.point]
    return Point(model.point, (model.interface,), kind.direction, kind.duplicates or model.duplication, kind.stamps)
