"""Conversations: which packets of two flows pass between the same ends, so that one can answer the other.

Two clients that use the same key, or are served in turn, are two conversations: an answer to one is none to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rig.timing.table import PROTO_UDP, FlowKey


def conversations(
    flows: Sequence[FlowKey], asked: NDArray[np.int32], answered: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number of the conversation of each request and of each response, from 0; `asked`, `answered`: their flow keys.

    A conversation is as narrow as the capture shows requests and responses to be: the same two ends (addresses, ports,
    VLANs) wherever both directions pass between them. Only what has no counterpart at all that way is looked at more
    widely, and never together with packets that have one, nor with datagrams to somebody who is heard to ask for them.
    So a client beside others is unanswered, not taken for them, while answers that come from elsewhere than the request
    went to (multicast, a fixed port, a gateway) are found.
    """
    asking, answering = (np.flatnonzero(np.bincount(side, minlength=len(flows))).tolist() for side in (asked, answered))
    of_request: dict[int, int] = {}
    of_response: dict[int, int] = {}
    count = 0
    for sense in _SENSES:
        if sense is _asking_end:
            heard = {(key.proto, key.src, key.srcport, key.dst, key.dstport) for key in flows if key.proto == PROTO_UDP}
            answering = [i for i in answering if i in of_response or _opposite(flows[i]) not in heard]
        groups: dict[Hashable, tuple[list[int], list[int]]] = {}
        for index in asking:
            groups.setdefault(sense(flows[index], True), ([], []))[0].append(index)
        for index in answering:
            groups.setdefault(sense(flows[index], False), ([], []))[1].append(index)
        for requests, responses in groups.values():
            known = not of_request.keys().isdisjoint(requests) or not of_response.keys().isdisjoint(responses)
            if requests and responses and not known:
                of_request.update(dict.fromkeys(requests, count))
                of_response.update(dict.fromkeys(responses, count))
                count += 1
        if len(of_request) == len(asking) or len(of_response) == len(answering):
            break  # what is left on one side has nothing to be paired with
    numbers = []
    for side, found in ((asked, of_request), (answered, of_response)):
        number = count + np.arange(len(flows))  # alone, unless found
        number[list(found)] = list(found.values())
        count += len(flows)
        numbers.append(number[side])
    return numbers[0], numbers[1]


def _ends(key: FlowKey) -> Hashable:
    one, other = (key.src, key.srcport), (key.dst, key.dstport)
    return (key.proto, one, other) if one < other else (key.proto, other, one)


def _opposite(key: FlowKey) -> Hashable:
    return key.proto, key.dst, key.dstport, key.src, key.srcport


def _asking_end(key: FlowKey, asks: bool) -> Hashable:
    return (key.proto, key.src, key.srcport) if asks else (key.proto, key.dst, key.dstport)


_SENSES: Final[tuple[Callable[[FlowKey, bool], Hashable], ...]] = (
    lambda key, asks: (key.vlans, _ends(key)),
    lambda key, asks: _ends(key),  # a mirror port may tag one direction only
    _asking_end,  # a group was asked, or the answer leaves from a port of its own (RFC 1350)
    lambda key, asks: frozenset((key.src, key.dst)),  # answers go to a fixed port
    lambda key, asks: None,  # a gateway's other side
)
"""What a conversation is known by, from narrow to wide; the flag tells a request's flow key from a response's."""
