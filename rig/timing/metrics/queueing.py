"""Requests and responses without any mark, as a queue: the oldest open request owns the next response."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def unclear(
    asked_ns: NDArray[np.int64], closed_ns: NDArray[np.int64], lost: NDArray[np.bool_], strays: list[int]
) -> NDArray[np.bool_]:
    """Requests that were open at the same time as others, in a period in which one was lost or a response was left.

    A period lasts as long as some request is open. Alone in its period a request cannot be confused with another.
    """
    begins = np.ones(len(asked_ns), np.bool_)
    begins[1:] = asked_ns[1:] > np.maximum.accumulate(closed_ns)[:-1]
    period = np.cumsum(begins) - 1
    size = np.bincount(period)
    doubtful = np.bincount(period[lost], minlength=len(size)) > 0
    doubtful[period[[head for head in strays if head >= 0]]] = True
    confused: NDArray[np.bool_] = (doubtful & (size > 1))[period]
    return confused


def within(delay: NDArray[np.int64], timeout_ns: int) -> bool:
    return bool(((delay >= 0) & (delay <= timeout_ns)).all())


def queue(asked_ns: list[int], answered_ns: list[int], timeout_ns: int) -> tuple[list[int], list[int]]:
    """Response index per request (-1: none); per response without an open request the request before it (-1: none).

    One step per packet: only taken when something was lost, late or stray.
    """
    chosen = [-1] * len(asked_ns)
    strays = []
    head = 0
    for index, at_ns in enumerate(answered_ns):
        while head < len(asked_ns) and asked_ns[head] + timeout_ns < at_ns:
            head += 1
        if head < len(asked_ns) and asked_ns[head] <= at_ns:
            chosen[head] = index
            head += 1
        else:
            strays.append(head - 1)
    return chosen, strays
