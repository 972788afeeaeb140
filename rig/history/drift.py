"""Slow drift of a figure towards its limit, found before the limit is reached.

Method: a one-sided CUSUM (Page, Biometrika 41, 1954) of sequential ranks (McDonald, Naval Research Logistics 37, 1990).
R_t is the rank of the t-th value among the first t. While nothing changes, R_t is uniform on 1…t and independent of
those before it, whatever the distribution of the values: the false-alarm rate below needs no assumption about noise
but that nights are independent. z_t = (2 R_t - t - 1) / sqrt((t² - 1) / 3) has mean 0 and variance 1, and

    S_t = max(0, S_{t-1} + z_t - SLACK),  S_1 = 0,  alarm while S_t >= THRESHOLD.

With the constants here a steady figure raises an alarm on fewer than FALSE_ALARMS of all looks at it, one look a night
over at most WINDOW nights (simulated, see docs/history.md). The change began after the last t with S_t = 0.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

SLACK: Final = 0.7
THRESHOLD: Final = 6.0
FALSE_ALARMS: Final = 2.5e-5
"""Upper bound of the share of looks with a false alarm, per check and bench."""
WINDOW: Final = 60
MATERIAL: Final = 0.05
"""An alarm is worth a line from this share of the room between level and limit on."""
LEVEL: Final = 5
"""Values whose median is the level before and after."""


@dataclass(frozen=True)
class Drift:
    """A figure that moves towards its limit. begun: index of the first value after the change. Levels in ns.

    used: share of the room between the old level and the limit that is gone. nights_left: until the limit at the
    median step of the last nights; None where it has come to rest.
    """

    begun: int
    before: int
    now: int
    bound: int
    used: float
    nights_left: int | None


def cusum(values: Sequence[int]) -> list[float]:
    """S_t for each value; ties share their ranks, which makes the alarm rarer."""
    sums: list[float] = []
    ordered: list[int] = []
    sofar = 0.0
    for t, value in enumerate(values, start=1):
        below = bisect_left(ordered, value)
        above = bisect_right(ordered, value)
        ordered.insert(above, value)
        rank = (below + above) / 2 + 1
        score = (2 * rank - t - 1) / math.sqrt((t * t - 1) / 3) if t > 1 else 0.0
        sofar = max(0.0, sofar + score - SLACK)
        sums.append(sofar)
    return sums


def may_drift(least: int, most: int, bound: int, *, falling: bool = False) -> bool:
    """Whether values between these could make a drift at all: quick, and never wrong when it says no."""
    if falling:
        least, most, bound = -most, -least, -bound
    return bound <= least or (most - least) / (bound - least) >= MATERIAL


def find_drift(values: Sequence[int], bound: int | None, *, falling: bool = False) -> Drift | None:
    """The drift of a figure, oldest value first, or None. falling: smaller is worse, `bound` is a minimum."""
    if bound is None or len(values) < 2 * LEVEL:
        return None
    recent = list(values[-WINDOW:])
    if falling:
        recent = [-value for value in recent]
        bound = -bound
    if not may_drift(min(recent), max(recent), bound):
        return None
    sums = cusum(recent)
    if sums[-1] < THRESHOLD:
        return None
    begun = max((index for index, value in enumerate(sums) if value == 0.0), default=-1) + 1
    before = round(median(recent[:begun] if begun >= LEVEL else recent[:LEVEL]))
    now = round(median(recent[-LEVEL:]))
    room = bound - before
    used = (now - before) / room if room > 0 else 1.0
    if used < MATERIAL:
        return None
    left = _nights_left(recent[begun:], now, bound)
    sign = -1 if falling else 1
    return Drift(len(values) - len(recent) + begun, sign * before, sign * now, sign * bound, used, left)


def _nights_left(values: Sequence[int], now: int, bound: int) -> int | None:
    """Theil-Sen slope of what came after the change, carried on to the limit."""
    slopes = [(values[b] - values[a]) / (b - a) for a in range(len(values)) for b in range(a + 1, len(values))]
    slope = median(slopes) if slopes else 0.0
    if slope <= 0:
        return None
    nights = (bound - now) / slope
    return max(0, math.ceil(nights)) if nights < 365 else None
