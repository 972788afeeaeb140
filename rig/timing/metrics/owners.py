"""Which request each response belongs to by its id, and which response decides: steps over plain arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def owners(
    request_id: NDArray[np.uint32],
    request_ns: NDArray[np.int64],
    response_id: NDArray[np.uint32],
    response_ns: NDArray[np.int64],
    asked_in: NDArray[np.int64],
    answered_in: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Index of each response's request, -1 where no request of its conversation has its id.

    Where an id was used several times (a wrap, another run in the file) it is the latest one not after the response,
    else the earliest. asked_in, answered_in: the conversations of requests and responses.
    """
    if not len(request_id):
        return np.full(len(response_id), -1, np.int64)
    if (np.diff(request_id) == 1).all():  # counted up without a gap, as our runner does; unsigned, so over the wrap too
        direct = (response_id - request_id[0]).astype(np.int64)
        direct[direct >= len(request_id)] = -1
        return np.where(asked_in[direct] == answered_in, direct, -1)
    asked, answered = (asked_in << 32) | request_id, (answered_in << 32) | response_id
    order = np.argsort(asked, kind="stable")
    ids = asked[order]
    low = np.searchsorted(ids, answered, "left")
    found = low < len(ids)
    found[found] = ids[low[found]] == answered[found]
    position = np.where(found, low, 0)
    if (np.diff(ids) == 0).any():
        # Merge both by (id, time); a request at the same time comes first, so that it owns the response.
        merged = np.lexsort(
            (
                np.repeat([0, 1], [len(ids), len(answered)]),
                np.concatenate((request_ns[order], response_ns)),
                np.concatenate((ids, answered)),
            )
        )
        latest = np.maximum.accumulate(np.where(merged < len(ids), merged, -1))
        seen = np.empty(len(answered), np.int64)
        is_response = merged >= len(ids)
        seen[merged[is_response] - len(ids)] = latest[is_response]
        position = np.maximum(position, seen)
    return np.where(found, order[position], -1)


def reaches(
    owner: NDArray[np.int64], mask: NDArray[np.bool_], tokens: NDArray[np.int32], asked: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Responses with which an answer holds all the tokens asked for; token-v1 has no flag for it."""
    position = np.flatnonzero(mask)
    position = position[np.argsort(owner[position], kind="stable")]
    mine = owner[position]
    total = np.cumsum(tokens[position], dtype=np.int64)
    begins = np.flatnonzero(np.diff(mine, prepend=-1))
    before = (total - tokens[position])[begins]
    total -= np.repeat(before, np.diff(np.append(begins, len(mine))))
    reached = np.zeros(len(owner), np.bool_)
    wanted = asked[mine]
    reached[position] = (total >= wanted) & (total - tokens[position] < wanted)
    return reached


def earliest(owner: NDArray[np.int64], mask: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """Position of the first response of each owner that the mask admits, -1 for none. Positions are in time order."""
    first = np.full(count, -1)
    position = np.flatnonzero(mask)[::-1]
    first[owner[position]] = position  # of several the one assigned last stays
    return first
