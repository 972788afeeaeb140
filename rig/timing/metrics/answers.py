"""Answers: which datagrams of a token flow are parts of the same answer or push.

An answer has one request id and one pair of ends, and its sender numbers its datagrams in order, from the one with the
`first` flag to the one with the `last` flag. An answer that is sent a second time, because its request came twice,
repeats the id but not the numbers: it is an answer of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rig.timing.flows import Packets


def answers(packets: Packets) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First copies in the window, answer by answer in order of capture: (positions, their answers numbered from 1)."""
    tokens, stream = packets.tokens, packets.stream
    assert tokens is not None, "a stream has tokens"
    position = np.flatnonzero(packets.measured & stream.first_copy)
    exchange = (stream.towards[position] << 32) | tokens.request_id[position]
    sequence = stream.extended[position]
    step = np.diff(exchange)
    if (step < 0).any() or (np.diff(sequence)[step == 0] < 0).any():
        sent = np.lexsort((sequence, exchange))
        position, exchange = position[sent], exchange[sent]
        step = np.diff(exchange)
    begins = tokens.first[position]
    begins[:1] = True
    begins[1:] |= (step != 0) | tokens.last[position[:-1]]
    number = np.cumsum(begins, dtype=np.int64)
    if (np.diff(position)[~begins[1:]] < 0).any():
        captured = np.lexsort((position, number))
        position, number = position[captured], number[captured]
    return position, number
