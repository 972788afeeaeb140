"""Did the capture's clock step? Both directions then shift at once, in opposite senses, and no packet is slower."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rig.plan.units import format_ns
from rig.triage.diagnosis import Clue, Rule, Support
from rig.triage.exchange_model import LOST_NS

if TYPE_CHECKING:
    from rig.triage.case import Case

_SIDE = 12
"""Exchanges on each side of a suspected step that are compared."""


def clock_step(case: Case) -> Support | None:
    """The common mode of both directions jumps while their sum, the true path, stays."""
    clues, against = [], []
    score, about = 0.0, ""
    step = abs(case.evidence.clock_step_ns)
    if step > max(case.e_ns, 100_000):
        score = 0.85
        about = format_ns(step)
        clues.append(Clue(f"the rig saw its wall clock move by {format_ns(step)} against monotonic time"))
    back = [finding for finding in case.table.findings if finding.kind == "time-step-back"]
    if back and max(finding.amount for finding in back) > max(case.e_ns, 100_000):
        score = max(score, 0.8)
        clues.append(Clue(back[0].detail))
    jump = _jump(case)
    if jump is not None:
        size, index, path_change, noise = jump
        exchanges = case.exchanges
        assert exchanges is not None
        at = exchanges.asks.time_ns[index] - case.origin_ns
        text = (
            f"at {at / 1e9:.3f} s the capture's clock moves by {format_ns(int(size))} against the board's in both "
            f"directions at once, while the path itself changes by {format_ns(int(abs(path_change)))} only"
        )
        if abs(size) > 6 * noise and abs(path_change) < abs(size) / 3:
            score = max(score, 0.95)
            about = about or format_ns(abs(int(size)))
            clues.append(Clue(text, (int(exchanges.asks.number[index]),)))
        elif clues:
            against.append(Clue("the board's clock shows no such step"))
    return Support(score, tuple(clues), tuple(against), about) if clues else None


def _jump(case: Case) -> tuple[float, int, float, float] | None:
    """(size of the largest step of the offset, ask before which it lies, change of the path there, noise)."""
    exchanges = case.exchanges
    if exchanges is None or not exchanges.stamped or len(case.boots) != 1:
        return None
    used = np.flatnonzero((exchanges.first >= 0) & (exchanges.there_ns != LOST_NS))
    if len(used) < 2 * _SIDE + 2:
        return None
    there = exchanges.there_ns[used].astype(np.float64)
    back = exchanges.back_ns[exchanges.first[used]].astype(np.float64)
    there -= there.min()
    back -= back.min()
    offset, path = (there - back) / 2, there + back
    step = _steps(offset)
    at = int(np.argmax(np.abs(step)))
    change = float(_steps(path)[at])
    noise = float(np.median(np.abs(np.diff(offset)))) + case.e_ns
    if abs(step[at]) < max(case.noise_ns / 4, 6 * noise):
        return None
    # Each direction by itself must show it, in opposite senses.
    one, other = float(_steps(there)[at]), float(_steps(back)[at])
    if one * other > 0 or min(abs(one), abs(other)) < 0.6 * abs(step[at]):
        return None
    # A clock that stepped stays where it is; after a stall of the board everything is as before.
    edge = at + _SIDE
    stays = float(np.median(offset[edge:]) - np.median(offset[:edge]))
    if stays * step[at] < 0 or abs(stays) < 0.6 * abs(step[at]):
        return None
    return -float(step[at]), int(used[at + _SIDE]), change, noise


def _steps(value: NDArray[np.float64]) -> NDArray[np.float64]:
    """Median of the exchanges after each place less that of those before it."""
    medians = np.median(np.lib.stride_tricks.sliding_window_view(value, _SIDE), axis=1)
    steps: NDArray[np.float64] = medians[_SIDE:] - medians[:-_SIDE]
    return steps


RULES = (
    Rule(
        "clock-step",
        "clock",
        "clock",
        "The capture's clock stepped",
        "clock step",
        "stop what sets the clock (chronyc tracking; timedatectl) or let it slew, and run again",
        clock_step,
    ),
)
