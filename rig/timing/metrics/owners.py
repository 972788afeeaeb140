"""Which request each response belongs to by its id, and which response decides: steps over plain arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def owners(
    request_id: NDArray[np.uint32],
    request_ns: NDArray[np.int64],
    response_id: NDArray[np.uint32],
    response_ns: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Index of each response's request, -1 where no request has its id.

    Where an id was used several times (a wrap, another run in the file) it is the latest one not after the response,
    else the earliest.
    """
    if not len(request_id):
        return np.full(len(response_id), -1, np.int64)
    if (np.diff(request_id) == 1).all():  # counted up without a gap, as our runner does
        direct = response_id.astype(np.int64) - int(request_id[0])
        direct[(direct < 0) | (direct >= len(request_id))] = -1
        return direct
    order = np.argsort(request_id, kind="stable")
    ids = request_id[order]
    low = np.searchsorted(ids, response_id, "left")
    found = low < len(ids)
    found[found] = ids[low[found]] == response_id[found]
    position = np.where(found, low, 0)
    if (np.diff(ids) == 0).any():
        # Merge both by (id, time); a request at the same time comes first, so that it owns the response.
        merged = np.lexsort(
            (
                np.repeat([0, 1], [len(ids), len(response_id)]),
                np.concatenate((request_ns[order], response_ns)),
                np.concatenate((ids, response_id)),
            )
        )
        latest = np.maximum.accumulate(np.where(merged < len(ids), merged, -1))
        seen = np.empty(len(response_id), np.int64)
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
