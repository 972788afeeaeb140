"""Requests and responses without any mark, as queues: in each conversation the oldest open request owns the next
response, and a request is open for the time-out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Pairs:
    """What was paired. response i8, one per request: index of its response, -1 for none.

    owner i8, one per response: index of its request; of a stray the request of its conversation that came before, if
    any. stray b, one per response: no request was open. ambiguous b, one per request: another pairing of as many may
    give it another response or none, because one was lost or a response was left; movable b: the latter, its response
    may be a stray.
    """

    response: NDArray[np.int64]
    owner: NDArray[np.int64]
    stray: NDArray[np.bool_]
    ambiguous: NDArray[np.bool_]
    movable: NDArray[np.bool_]


def pair(
    asked_ns: NDArray[np.int64],
    answered_ns: NDArray[np.int64],
    asked_in: NDArray[np.int64],
    answered_in: NDArray[np.int64],
    timeout_ns: int,
) -> Pairs:
    """Pair requests and responses, each in order of capture; asked_in, answered_in: their conversations, from 0.

    Responses before the first request of their conversation answer what was asked before and are no strays. Where as
    many responses as requests came, each in time, nothing is walked through.
    """
    count = 1 + max(asked_in.max(initial=-1), answered_in.max(initial=-1))
    asks, ask_begin = _sorted(asked_in, count)
    has_asks = np.diff(ask_begin) > 0
    since_ns = np.full(count, np.iinfo(np.int64).min)
    since_ns[has_asks] = asked_ns[asks[ask_begin[:-1][has_asks]]]
    considered = np.flatnonzero(answered_ns >= since_ns[answered_in])
    answers, answer_begin = _sorted(answered_in[considered], count)
    answers = considered[answers]

    response, owner = np.full(len(asked_ns), -1), np.full(len(answered_ns), -1)
    ambiguous, movable = np.zeros(len(asked_ns), np.bool_), np.zeros(len(asked_ns), np.bool_)
    stray = np.zeros(len(answered_ns), np.bool_)
    smooth = np.diff(ask_begin) == np.diff(answer_begin)
    one, other = asks[smooth[asked_in[asks]]], answers[smooth[answered_in[answers]]]
    delay = answered_ns[other] - asked_ns[one]
    smooth[asked_in[one[(delay < 0) | (delay > timeout_ns)]]] = False
    kept = smooth[asked_in[one]]
    response[one[kept]], owner[other[kept]] = other[kept], one[kept]

    for number in np.flatnonzero(~smooth).tolist():
        mine = asks[ask_begin[number] : ask_begin[number + 1]]
        theirs = answers[answer_begin[number] : answer_begin[number + 1]]
        chosen, heads = _queue(asked_ns[mine].tolist(), answered_ns[theirs].tolist(), timeout_ns)
        if not len(mine):
            stray[theirs] = True
            continue
        index, head = np.array(chosen), np.array(heads, np.int64)
        lost = index < 0
        response[mine[~lost]] = theirs[index[~lost]]
        owner[theirs] = np.where(head >= 0, mine[head], -1)
        left = np.ones(len(theirs), np.bool_)
        left[index[~lost]] = False
        stray[theirs] = left
        closed_ns = asked_ns[mine] + timeout_ns
        closed_ns[~lost] = answered_ns[theirs[index[~lost]]]
        ambiguous[mine] = _unclear(asked_ns[mine], closed_ns, lost)
        movable[mine[head[_movable(asked_ns[mine], answered_ns[theirs], head, left, timeout_ns)]]] = True
    return Pairs(response, owner, stray, ambiguous | movable, movable)


def _sorted(number: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(indices by conversation, in order of capture within each; where each conversation begins, and the end)."""
    if count == 1:
        return np.arange(len(number)), np.array([0, len(number)])
    order = np.argsort(number, kind="stable")
    return order, np.searchsorted(number[order], np.arange(count + 1))


def _queue(asked_ns: list[int], answered_ns: list[int], timeout_ns: int) -> tuple[list[int], list[int]]:
    """Response index per request (-1: none); request index per response, of a stray the one before it (-1: none).

    One step per packet: only taken when something was lost, late or stray.
    """
    chosen = [-1] * len(asked_ns)
    owner = []
    head = 0
    for index, at_ns in enumerate(answered_ns):
        while head < len(asked_ns) and asked_ns[head] + timeout_ns < at_ns:
            head += 1
        if head < len(asked_ns) and asked_ns[head] <= at_ns:
            chosen[head] = index
            head += 1
        owner.append(head - 1)
    return chosen, owner


def _unclear(asked_ns: NDArray[np.int64], closed_ns: NDArray[np.int64], lost: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Requests that were open at the same time as others, in a period in which one was lost.

    A period lasts as long as some request is open. Alone in its period a request cannot be confused with another.
    """
    begins = np.ones(len(asked_ns), np.bool_)
    begins[1:] = asked_ns[1:] > np.maximum.accumulate(closed_ns)[:-1]
    period = np.cumsum(begins) - 1
    size = np.bincount(period)
    doubtful = np.bincount(period[lost], minlength=len(size)) > 0
    confused: NDArray[np.bool_] = (doubtful & (size > 1))[period]
    return confused


def _movable(
    asked_ns: NDArray[np.int64],
    answered_ns: NDArray[np.int64],
    head: NDArray[np.int64],
    left: NDArray[np.bool_],
    timeout_ns: int,
) -> NDArray[np.bool_]:
    """Responses of one conversation that may be strays in place of one that is left, however much later.

    Each response from there on then belongs to the request before, up to the one left: all these delays must be
    possible. head: per response the index of its request.
    """
    linked = np.zeros(len(answered_ns), np.bool_)
    linked[:-1] = ~left[:-1] & (answered_ns[1:] - asked_ns[np.maximum(head[:-1], 0)] <= timeout_ns)
    index = np.arange(len(answered_ns))
    ends = np.minimum.accumulate(np.where(linked, len(index), index)[::-1])[::-1]
    movable: NDArray[np.bool_] = ~left & left[ends]
    return movable
