"""Exchanges of datagrams without known headers, paired by the plan's key where it has one, else by their order.

Ids count the packets; nothing is known of the board's times.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rig.timing.flows import Packets
from rig.timing.metrics.conversations import conversations
from rig.timing.metrics.matching import match
from rig.timing.metrics.queueing import pair
from rig.timing.segments import repeats
from rig.timing.table import PROTO_TCP, PROTO_UDP, FrameTable
from rig.timing.window import Window
from rig.triage.exchange_model import LOST_NS, Answers, Asks, Baseline, Exchanges


def exchanges_by_order(table: FrameTable, window: Window, board: str, jetson: str, timeout_ns: int) -> Exchanges | None:
    """All datagrams between the two, paired as a check with `match: order` pairs them; what the board sends beyond that
    belongs to the request before. None where there are none."""
    wanted = [key.proto in (PROTO_UDP, PROTO_TCP) and {key.src, key.dst} == {board, jetson} for key in table.flows]
    chosen = np.array([*wanted, False], np.bool_)[table.flow]
    if not board or not chosen.any():
        return None
    to_board = np.array([key.dst == board for key in table.flows] + [False], np.bool_)[table.flow]
    ask_row = np.flatnonzero(chosen & to_board & (table.payload_len > 0))
    answer_row = np.flatnonzero(chosen & ~to_board & (table.payload_len > 0))
    ask_row, answer_row = ask_row[~repeats(table, ask_row)], answer_row[~repeats(table, answer_row)]
    if not len(ask_row) and not len(answer_row):
        return None
    talks = conversations(table.flows, table.flow[ask_row], table.flow[answer_row])
    pairs = pair(table.time_ns[ask_row], table.time_ns[answer_row], *talks, timeout_ns)
    first = (pairs.owner >= 0) & ~pairs.stray
    return _exchanges(table, window, board, jetson, ask_row, answer_row, pairs.owner, pairs.response, first)


def exchanges_by_key(
    requests: Packets, responses: Packets, window: Window, board: str, jetson: str, timeout_ns: int
) -> Exchanges | None:
    """The packets of two flows, paired as a check with `match: key` pairs them; None where nothing was asked."""
    matching = match(requests, responses, "key", "first", timeout_ns)
    assert matching.owner is not None
    if not len(matching.request):
        return None
    at = np.full(len(requests) + 1, -1)
    at[matching.request] = np.arange(len(matching.request))
    first = np.zeros(len(responses), np.bool_)
    first[matching.response[matching.response >= 0]] = True
    return _exchanges(
        requests.table,
        window,
        board,
        jetson,
        requests.row[matching.request],
        responses.row,
        at[matching.owner],
        matching.response,
        first,
    )


def _exchanges(
    table: FrameTable,
    window: Window,
    board: str,
    jetson: str,
    ask_row: NDArray[np.int64],
    answer_row: NDArray[np.int64],
    owner: NDArray[np.int64],
    response: NDArray[np.int64],
    first: NDArray[np.bool_],
) -> Exchanges:
    """owner: per answer the index of its request; response: per request the index of its answer; -1 for none. first:
    answers that are some request's."""
    zeros, none = np.zeros(len(answer_row), np.int64), np.zeros(len(answer_row), np.bool_)
    count = np.arange(len(ask_row))
    asks = Asks(
        ask_row,
        table.number[ask_row],
        table.time_ns[ask_row],
        count.astype(np.uint32),
        count,
        table.wire_len[ask_row],
        np.zeros(len(ask_row), np.int64),
        np.full(len(ask_row), -1, np.int64),
    )
    answers = Answers(
        row=answer_row,
        number=table.number[answer_row],
        time_ns=table.time_ns[answer_row],
        id=np.maximum(owner, 0).astype(np.uint32),
        sequence=np.arange(len(answer_row)),
        boot=zeros.astype(np.uint32),
        size=table.wire_len[answer_row],
        owner=owner,
        copy=none,
        since_copy_ns=zeros,
        first=first,
        last=first,
        t_rx_ns=zeros,
        t_ready_ns=zeros,
        t_send_ns=zeros,
        tokens=zeros,
    )
    took = np.full(len(asks), LOST_NS)
    got = np.flatnonzero(response >= 0)
    took[got] = answers.time_ns[response[got]] - asks.time_ns[got]
    nothing = np.full(len(asks), LOST_NS)
    return Exchanges(
        asks=asks,
        answers=answers,
        window=window,
        stamped=False,
        first=response,
        final=response,
        response_ns=took,
        there_ns=nothing,
        back_ns=np.full(len(answers), LOST_NS),
        baseline=Baseline(0, None, None),
        push=not len(ask_row),
        sentinel_there=np.empty((0, 2), np.int64),
        board=board,
        jetson=jetson,
        known=False,
    )
