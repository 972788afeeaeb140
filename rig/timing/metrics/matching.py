"""Which response belongs to which request: by request id, by a key of the flows, or by order where there is neither.

Always within one conversation: the answer to another client's request is none, whatever its id, key or place in line.
Only first copies take part; copies are counted. A response counts for a request when it is at most the time-out
away; of several the first counts (RFC 2681 section 2.4, RFC 6673 section 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rig.errors import PlanError
from rig.timing.copies import AT_ONCE_NS
from rig.timing.flows import Keys, Packets
from rig.timing.metrics.conversations import conversations
from rig.timing.metrics.owners import earliest, owners, reaches
from rig.timing.metrics.queueing import pair
from rig.timing.segments import messages, repeats
from rig.timing.tokens import Tokens

_REPEATS = "TCP segments without new data"


@dataclass(frozen=True)
class Matching:
    """Requests of the measured window and what answered them.

    request i8: positions in the request flow. response i8: position in the response flow of the datagram that decides
    (the first, or the one with the `last` flag), -1 where none came in time. complete b: all asked tokens came.
    too_late i8: position of the deciding datagram where it came after the time-out, else -1. ambiguous b: matched by
    order where a loss or a stray response leaves open whose response it is. Beside losses alone the true delay is at
    most the one found; beside strays (`strays`) nothing is sure. elsewhere b: matched by order and without a response,
    but it may be a request outside of the window that was lost instead.

    By key only. repeated: requests beside those in `request` that may have been answered in their place, or lost.
    perhaps_lost: how many of them lack a response. crossed: how many were open at the same time as another request of
    their key, where both may have been answered, so that nobody knows how long each took. owner i8: per response the
    position of the request that it belongs to, however late, -1 for none.
    """

    request: NDArray[np.int64]
    response: NDArray[np.int64]
    complete: NDArray[np.bool_]
    too_late: NDArray[np.int64]
    ambiguous: NDArray[np.bool_]
    elsewhere: NDArray[np.bool_]
    counts: dict[str, int]
    strays: bool = False
    repeated: int = 0
    perhaps_lost: int = 0
    crossed: int = 0
    owner: NDArray[np.int64] | None = None

    @property
    def late(self) -> NDArray[np.bool_]:
        """The deciding datagram came, but after the time-out."""
        late: NDArray[np.bool_] = self.too_late >= 0
        return late

    @property
    def unprovable(self) -> str:
        """Why this matching cannot prove that all is well; empty when it can."""
        return "matched by order beside stray responses: one may belong to another request" if self.strays else ""


class Matchings:
    """The matchings of one scene, each made once: several metrics look at the same exchange."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int, str, str], tuple[Packets, Packets, Matching]] = {}

    def match(
        self,
        requests: Packets,
        responses: Packets,
        how: Literal["request_id", "key", "order"],
        to: Literal["first", "last"],
        timeout_ns: int,
    ) -> Matching:
        """`match`, remembered by the very flows, which are kept so that no other can take their place."""
        key = (id(requests), id(responses), how, to)
        if key not in self._made:
            self._made[key] = (requests, responses, match(requests, responses, how, to, timeout_ns))
        return self._made[key][2]


def match(
    requests: Packets,
    responses: Packets,
    how: Literal["request_id", "key", "order"],
    to: Literal["first", "last"],
    timeout_ns: int,
) -> Matching:
    """Match two flows; PlanError when the flows cannot be matched that way."""
    if how == "key":
        return _by_key(requests, responses, timeout_ns)
    if how == "order":
        return _by_order(requests, responses, to, timeout_ns)
    return _by_id(requests, responses, to, timeout_ns)


def _by_id(requests: Packets, responses: Packets, to: Literal["first", "last"], timeout_ns: int) -> Matching:
    asked, answered = _tokens(requests), _tokens(responses)
    instance = _instances(requests)
    asked_in, answered_in = _conversations(requests, responses)
    owner = owners(
        asked.request_id[instance],
        requests.time_ns[instance],
        answered.request_id,
        responses.time_ns,
        asked_in[instance],
        answered_in,
    )
    delay = np.where(owner >= 0, responses.time_ns - requests.time_ns[instance[owner]] if len(instance) else 0, 0)
    fresh = (owner >= 0) & responses.stream.first_copy
    in_time = fresh & (np.abs(delay) <= timeout_ns)
    count = len(instance)
    ends_answer = answered.last
    if answered.sequence_bits == 16 and count:
        ends_answer = reaches(owner, in_time, answered.tokens, np.maximum(asked.answer_tokens[instance], 1))
    decides = ends_answer if to == "last" else np.ones(len(answered), np.bool_)

    first = earliest(owner, in_time & decides, count)
    after = fresh & (delay > timeout_ns)
    too_late = earliest(owner, after & decides if answered.sequence_bits > 16 else after, count)
    too_late[first >= 0] = -1
    last = first if to == "last" else earliest(owner, in_time & ends_answer, count)
    counted = in_time & _of_the_same_answer(responses, owner, last)
    came = np.bincount(owner[counted], weights=answered.tokens[counted], minlength=count).astype(np.int64)
    complete = (last >= 0) & (came >= asked.answer_tokens[instance])

    measured = requests.measured[instance]
    mine = (owner >= 0) & measured[owner] if count else np.zeros(len(owner), np.bool_)
    ends = np.bincount(owner[in_time & ends_answer & mine], minlength=count)
    negative = first >= 0
    negative[negative] = delay[first[negative]] < 0
    counts = {
        "duplicate requests": np.count_nonzero(requests.measured & ~requests.stream.first_copy),
        "repeated requests": np.count_nonzero(requests.measured & requests.stream.first_copy) - measured.sum(),
        "duplicate responses": np.count_nonzero(mine & ~responses.stream.first_copy),
        "repeated answers": int(np.maximum(ends - 1, 0).sum()),
        "late responses": np.count_nonzero((too_late >= 0) & measured),
        "incomplete answers": np.count_nonzero((last >= 0) & ~complete & measured),
        "responses before their request": np.count_nonzero(negative & measured),
        "responses without a request": np.count_nonzero((owner < 0) & responses.measured),
    }
    return Matching(
        request=instance[measured],
        response=first[measured],
        complete=complete[measured],
        too_late=too_late[measured],
        ambiguous=np.zeros(int(measured.sum()), np.bool_),
        elsewhere=np.zeros(int(measured.sum()), np.bool_),
        counts={name: int(value) for name, value in counts.items()},
    )


def _by_key(requests: Packets, responses: Packets, timeout_ns: int) -> Matching:
    """Equal keys of one conversation belong together; a key may come again (a wrap, a later exchange).

    A response belongs to the earliest request of its key that it is in time for and that is not answered by another;
    where it is late for all, to the latest. Requests after that one and before the response repeat it: one of them may
    be what was answered, so whether any of them was lost, nobody knows (`repeated`).
    """
    asked, asked_again = _fresh_keys(requests)
    answered, answered_again = _fresh_keys(responses)
    count = len(asked.position)
    is_response = np.repeat([False, True], [count, len(answered.position)])
    position = np.concatenate((asked.position, answered.position))
    time = np.concatenate((requests.time_ns[asked.position], responses.time_ns[answered.position]))
    key = np.concatenate((asked.value, answered.value))
    asked_in, answered_in = _conversations(requests, responses)
    talk = np.concatenate((asked_in[asked.position], answered_in[answered.position]))
    # A request at the same time comes first, so that it owns the response.
    order = np.lexsort((is_response, time, key, talk))
    position, time, key, talk = position[order], time[order], key[order], talk[order]
    is_response = is_response[order]

    begins = np.ones(len(key), np.bool_)
    begins[1:] = (key[1:] != key[:-1]) | (talk[1:] != talk[:-1])
    index = np.arange(len(key))
    group = np.cumsum(begins)
    coming = np.minimum.accumulate(np.where(is_response, index, len(key))[::-1])[::-1]
    answer = np.minimum(coming, len(key) - 1)
    in_reach = ~is_response & (coming < len(key)) & (group[answer] == group) & (time[answer] - time <= timeout_ns)
    repeat = in_reach.copy()
    repeat[:1] = False
    repeat[1:] &= in_reach[:-1] & ~begins[1:]
    key_begin = np.maximum.accumulate(np.where(begins, index, 0))
    owner = np.maximum.accumulate(np.where(~is_response & ~repeat, index, -1))
    owned = is_response & (owner >= key_begin)
    delay = time - time[owner]
    in_time = owned & (delay <= timeout_ns)

    instance = np.flatnonzero(~is_response & ~repeat)
    instance = instance[np.argsort(position[instance], kind="stable")]
    instance = instance[requests.measured[position[instance]]]
    response, too_late = (
        np.where(found >= 0, position[found] if len(key) else -1, -1)
        for found in (earliest(owner, some, len(key))[instance] for some in (in_time, owned & ~in_time))
    )
    too_late[response >= 0] = -1
    mine = np.zeros(len(key), np.bool_)
    mine[instance] = True
    asked_twice = np.flatnonzero(repeat)
    answers = np.flatnonzero(in_time)
    # The k-th of the requests that repeat one may be what the response k places behind its own answered.
    whose = owner[asked_twice]
    place = np.searchsorted(owner[answers], whose) + np.arange(len(whose)) - np.searchsorted(whose, whose) + 1
    further = answers[np.minimum(place, len(answers) - 1)]
    answered_too = (place < len(answers)) & (owner[further] == whose)
    slower = answered_too & (time[further] - time[asked_twice] > delay[answer[whose]] + AT_ONCE_NS)
    # A key that is asked for anew while a repeated request is open is no mark any more.
    starts = ~is_response & (begins | np.append(True, is_response)[: len(key)])
    again = np.append(np.minimum.accumulate(np.where(starts, index, len(key))[::-1])[::-1], len(key))
    anew = np.minimum(again[answer[asked_twice]], len(key) - 1)
    reused = (again[answer[asked_twice]] < len(key)) & (group[anew] == group[asked_twice])
    reused &= time[anew] - time[asked_twice] <= timeout_ns
    counted = requests.measured[position[asked_twice]]
    repeated = np.count_nonzero(counted)
    owned_by = np.full(len(responses), -1)
    owned_by[position[owned]] = position[owner[owned]]
    counts = {
        "requests without a key": np.count_nonzero(requests.measured)
        - np.count_nonzero(requests.measured[np.unique(requests.keys.position)]),
        "repeated requests": repeated,
        "duplicate responses": np.count_nonzero(in_time & mine[owner]) - np.count_nonzero(response >= 0),
        "late responses": np.count_nonzero(too_late >= 0),
        "responses without a request": np.count_nonzero(
            is_response & ~owned & responses.measured[np.where(is_response, position, 0)]
        )
        if len(answered.position)
        else 0,
        _REPEATS: asked_again + answered_again,
    }
    return Matching(
        request=position[instance],
        response=response,
        complete=response >= 0,
        too_late=too_late,
        ambiguous=np.zeros(len(instance), np.bool_),
        elsewhere=np.zeros(len(instance), np.bool_),
        counts={name: int(value) for name, value in counts.items()},
        repeated=int(repeated),
        perhaps_lost=int(np.count_nonzero(counted & ~answered_too)),
        crossed=int(np.count_nonzero(counted & (reused | slower))),
        owner=owned_by,
    )


def _conversations(requests: Packets, responses: Packets) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return conversations(requests.table.flows, requests.sender, responses.sender)


def _fresh_keys(flow: Packets) -> tuple[Keys, int]:
    """(the keys without those of repeated TCP segments, how many these are in the window)."""
    position, value = flow.keys.position, flow.keys.value
    again = repeats(flow.table, flow.row[position])
    return Keys(position[~again], value[~again]), int(np.count_nonzero(again & flow.measured[position]))


def _tokens(flow: Packets) -> Tokens:
    if flow.tokens is None:
        raise PlanError(
            f"flow `{flow.name}` is matched by request_id but its selector names no token protocol",
            hint="add `protocol: token-v2` to the flow, or match by `order`",
        )
    return flow.tokens


def _instances(requests: Packets) -> NDArray[np.int64]:
    """Positions of the requests, each once: first copies, and of a repeated id in one sender's boot the first."""
    tokens, stream = _tokens(requests), requests.stream
    position = np.flatnonzero(stream.first_copy)
    if tokens.sequence_bits == 16:
        return position  # the id is the sequence, and it may come again after a wrap
    key = (stream.towards[position] << 32) | tokens.request_id[position]
    if len(key) and (np.diff(key) > 0).all():
        return position
    return np.sort(position[np.unique(key, return_index=True)[1]])


def _of_the_same_answer(responses: Packets, owner: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Responses that are parts of the answer which their request's `last` datagram ends, in whatever order they came.

    Its sender numbered them before that one: a second answer, to a copied request, does not fill a hole of the first.
    """
    if not len(last):
        return np.zeros(len(owner), np.bool_)
    end = last[owner]
    stream = responses.stream
    same: NDArray[np.bool_] = (
        (end >= 0) & (stream.space == stream.space[end]) & (stream.extended <= stream.extended[end])
    )
    return same


def _by_order(requests: Packets, responses: Packets, to: Literal["first", "last"], timeout_ns: int) -> Matching:
    """The oldest request of a conversation that is still open owns its next response.

    Requests outside of the window wait in the same queues, so all take part; those of the window are reported.
    """
    said, replied = messages(requests), messages(responses)
    asking, answering = np.flatnonzero(said), np.flatnonzero(replied)
    if requests.tokens is not None:
        asking = asking[requests.stream.first_copy[asking]]
    if responses.tokens is not None:
        answering = _answers(responses, responses.tokens, answering, to)
    asked_in, answered_in = _conversations(requests, responses)
    asked_in, answered_in = asked_in[asking], answered_in[answering]
    asked_ns, answered_ns = requests.time_ns[asking], responses.time_ns[answering]
    pairs = pair(asked_ns, answered_ns, asked_in, answered_in, timeout_ns)

    mine = requests.measured[asking]
    response, elsewhere = pairs.response, np.zeros(len(asking), np.bool_)
    if (response < 0).any() and not mine.all():
        alone, others = (
            pair(asked_ns[some], answered_ns, asked_in[some], answered_in, timeout_ns).response >= 0
            for some in (mine, ~mine)
        )
        response, elsewhere = _at_the_edges(response, mine, alone, others, asked_in)
    response = np.where(response >= 0, answering[response] if len(answering) else -1, -1)[mine]
    return Matching(
        request=asking[mine],
        response=response,
        complete=response >= 0,
        too_late=np.full(len(response), -1),
        ambiguous=pairs.ambiguous[mine],
        elsewhere=elsewhere[mine],
        counts={
            "responses without a request": int(np.count_nonzero(pairs.stray & responses.measured[answering])),
            "lost, unless one outside of the window is": int(np.count_nonzero(elsewhere)),
            _REPEATS: int(
                np.count_nonzero(requests.measured & ~said) + np.count_nonzero(responses.measured & ~replied)
            ),
        },
        strays=bool((pairs.movable & mine).any()),
    )


def _answers(
    responses: Packets, tokens: Tokens, position: NDArray[np.int64], to: Literal["first", "last"]
) -> NDArray[np.int64]:
    """One datagram of each answer: by its flag, in token-v1 the first or last that was captured with its number."""
    stream = responses.stream
    position = position[stream.first_copy[position]]
    if tokens.sequence_bits > 16:
        return position[(tokens.last if to == "last" else tokens.first)[position]]
    space, number = stream.space[position], stream.extended[position]
    order = np.lexsort((number, space))  # stable: in order of capture within each answer
    differs = (np.diff(space[order]) != 0) | (np.diff(number[order]) != 0)
    edge = np.append(differs, True) if to == "last" else np.append(True, differs)
    return np.sort(position[order[edge[: len(order)]]])


def _at_the_edges(
    response: NDArray[np.int64],
    mine: NDArray[np.bool_],
    alone: NDArray[np.bool_],
    others: NDArray[np.bool_],
    asked_in: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(response, with as many of the window's requests lost as can be; elsewhere: of those, what may be answered).

    A queue shows how many requests were lost, not which. At the edges of the window the lost one may be a request in
    it or outside. The window's can be answered as often as they would be if nothing else had been asked (`alone`), and
    must be as often as the answers are too many for the `others`.
    """
    count = int(asked_in.max()) + 1

    def each(chosen: NDArray[np.bool_], among: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.bincount(among[chosen], minlength=count)

    answered = response >= 0
    found = each(answered & mine, asked_in)
    most = each(alone, asked_in[mine])
    least = each(answered, asked_in) - each(others, asked_in[~mine])
    elsewhere = _first_of_each(asked_in, ~answered & mine, most - found)
    perhaps = _first_of_each(asked_in[::-1], (answered & mine)[::-1], found - least)[::-1]
    return np.where(perhaps, -1, response), elsewhere | perhaps


def _first_of_each(number: NDArray[np.int64], chosen: NDArray[np.bool_], quota: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The first of the chosen of each number, as many as its quota."""
    index = np.flatnonzero(chosen)
    index = index[np.argsort(number[index], kind="stable")]
    of = number[index]
    rank = np.arange(len(of)) - np.searchsorted(of, of)
    first = np.zeros(len(number), np.bool_)
    first[index[rank < quota[of]]] = True
    return first
