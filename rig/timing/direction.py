"""Frames on the wrong interface of a tap: each interface may only show one direction, told by the board's address.

Pure. Times are right wherever a frame was stamped; what a frame on the wrong side tells is that the cables are swapped,
or that the tap joins both directions and may show frames twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rig.timing.table import FrameTable, ReaderFinding


class WrongWay(NamedTuple):
    """finding: what to report. joined: some frames were right and some wrong, so copies prove nothing."""

    finding: ReaderFinding
    joined: bool


def wrong_way(table: FrameTable, directions: Sequence[str], board: str) -> WrongWay | None:
    """Frames that go the other way than their interface is for; None when there are none.

    directions: per interface of the file `to-board`, `from-board` or `both`. board: its IP address. Only frames with
    addresses are looked at.
    """
    from_board = np.array([key.src == board for key in table.flows] + [False], np.bool_)[table.flow]
    addressed = table.flow >= 0
    wrong = np.zeros(len(table), np.bool_)
    checked = np.zeros(len(table), np.bool_)
    places = []
    for index, direction in enumerate(directions):
        if direction == "both":
            continue
        here = addressed & (table.interface == index)
        astray = here & (from_board if direction == "to-board" else ~from_board)
        checked |= here
        wrong |= astray
        if astray.any():
            name = table.interfaces[index].name or f"interface {index}"
            count, seen = int(np.count_nonzero(astray)), int(np.count_nonzero(here))
            places.append(f"{count} of {seen} frames on {name} (there for {direction})")
    if not places:
        return None
    joined = bool((checked & ~wrong).any())
    means = "the tap joins both directions, or shows frames twice" if joined else "its two cables are swapped"
    first = int(table.number[np.flatnonzero(wrong)[0]])
    detail = f"frames go the wrong way: {', '.join(places)}; the first is frame {first}; {means}"
    return WrongWay(ReaderFinding("wrong-interface", detail), joined)
