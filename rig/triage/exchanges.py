"""Exchanges for diagnosis: who asked, what answered, and where the time went, by the board's own stamps.

With token-v2 every answer carries the board's stamps t_rx, t_ready and t_send. Against the capture's stamps they give

    there = t_rx − capture(request)          request's way from the capture point into the board
    back  = capture(answer) − t_send         answer's way from the board's send call to the capture point

each plus or minus the unknown offset of the two clocks. Their sum is exact; their common mode is the offset. Exchanges
before the load (probes) give the offset while nothing was imposed, so that a change has a direction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rig.protocol import token_v2
from rig.timing.flows import Packets, Selection
from rig.timing.metrics.conversations import conversations
from rig.timing.metrics.owners import owners
from rig.timing.table import PROTO_TCP, PROTO_UDP, FrameTable
from rig.timing.tokens import Tokens
from rig.timing.window import Window
from rig.triage.exchange_model import LOST_NS, Answers, Asks, Baseline, Exchanges, earliest
from rig.triage.unstamped import exchanges_by_key, exchanges_by_order

SKEW_MAX: Final = 500e-6
"""Larger clock skews between board and capture are not believed; crystals stay within 100 ppm."""
_SKEW_FROM_NS: Final = 10_000_000_000


def exchanges_of(
    selection: Selection,
    board: str,
    jetson: str,
    timeout_ns: int,
    planned: NDArray[np.bool_] | None,
    keyed: tuple[Packets, Packets] | None = None,
) -> Exchanges | None:
    """The token-v2 exchanges of a capture, else UDP or TCP pairs; None when there is nothing to pair.

    timeout_ns: of UDP or TCP, a request whose answer did not come in that time is lost. planned: the rows that a plan
    is about, None where there is none: what it does not name is no request of it. keyed: its requests to the board and
    their answers, where it matches them by key; else they are paired by order.
    """
    if board == jetson or (planned is not None and not planned.any()):
        return None  # both ends on one address: no packet has a direction
    tokens = selection.v2.tokens
    load = np.flatnonzero((tokens.type == token_v2.REQUEST) | (tokens.type == token_v2.ANSWER))
    if len(load):
        return _of_tokens(selection, tokens, board, jetson)
    if keyed is not None:
        return exchanges_by_key(*keyed, selection.window, board, jetson, timeout_ns)
    table = selection.table
    if planned is not None:
        table = replace(table, flow=np.where(planned, table.flow, np.int32(-1)))
    return exchanges_by_order(table, selection.window, board, jetson, timeout_ns)


def roles(table: FrameTable, tokens: Tokens) -> dict[str, str]:
    """Who is board and who Jetson by what the capture shows: the sender of answers, else the busiest UDP service."""
    flow = table.flow[tokens.row]
    for kind, mine in ((token_v2.ANSWER, True), (token_v2.REQUEST, False), (token_v2.SENTINEL, False)):
        chosen = flow[tokens.type == kind]
        chosen = chosen[chosen >= 0]
        if len(chosen):
            key = table.flows[int(np.bincount(chosen).argmax())]
            return {"board": key.src if mine else key.dst, "jetson": key.dst if mine else key.src}
    port_flows = [i for i, key in enumerate(table.flows) if key.proto in (PROTO_UDP, PROTO_TCP)]
    if not port_flows:
        return {}
    used = np.bincount(table.flow[table.flow >= 0], minlength=len(table.flows))
    key = table.flows[max(port_flows, key=lambda i: used[i])]
    serves = key.srcport == 5005 or (key.dstport != 5005 and key.srcport < key.dstport)
    return {"board": key.src if serves else key.dst, "jetson": key.dst if serves else key.src}


def _of_tokens(selection: Selection, tokens: Tokens, board: str, jetson: str) -> Exchanges:
    table, window = selection.table, selection.window
    flows = table.flows
    from_board = np.array([key.src == board for key in flows] + [False], np.bool_)[table.flow[tokens.row]]
    to_board = np.array([key.dst == board for key in flows] + [False], np.bool_)[table.flow[tokens.row]]
    time_ns = table.time_ns[tokens.row]
    inside = window.contains(time_ns)

    ask_at = np.flatnonzero(to_board & (tokens.type == token_v2.REQUEST))
    key = _identity(table, tokens, ask_at)
    _, first_seen, inverse = np.unique(key, return_index=True, return_inverse=True)
    copies = np.bincount(inverse, minlength=len(first_seen)) - 1
    keep = np.sort(first_seen)
    copies = copies[inverse[keep]]
    # Warm-up requests stay known (their answers have an owner) but do not count.
    known = ask_at[keep]
    measured = inside[known]
    asks_all = _asks(table, tokens, known, copies)

    answer_at = np.flatnonzero(from_board & ((tokens.type == token_v2.ANSWER) | (tokens.type == token_v2.ACKNOWLEDGE)))
    answers = _answers(table, tokens, answer_at, asks_all)
    position = np.full(len(known) + 1, -1, np.int64)
    position[:-1][measured] = np.arange(np.count_nonzero(measured))
    push = bool(len(answer_at)) and not np.count_nonzero(measured)
    owned_warm = (answers.owner >= 0) & (position[answers.owner] < 0)
    within = np.flatnonzero(inside[answer_at] & ~owned_warm if push or len(known) else inside[answer_at])
    # An answer just after the end sentinel still answers a measured request.
    within = np.union1d(within, np.flatnonzero((answers.owner >= 0) & (position[answers.owner] >= 0)))
    answers = _take(answers, within)
    answers = replace(answers, owner=position[answers.owner])
    asks = _take(asks_all, np.flatnonzero(measured))
    return _joined(selection, tokens, asks, answers, window, push, board, jetson, to_board)


def _joined(
    selection: Selection,
    tokens: Tokens,
    asks: Asks,
    answers: Answers,
    window: Window,
    push: bool,
    board: str,
    jetson: str,
    to_board: NDArray[np.bool_],
) -> Exchanges:
    table = selection.table
    first, final = earliest(answers, len(asks), answers.owner >= 0), earliest(answers, len(asks), answers.last)
    response = np.full(len(asks), LOST_NS)
    got = np.flatnonzero(final >= 0)
    response[got] = answers.time_ns[final[got]] - asks.time_ns[got]

    sentinel_there, probe_there, probe_back = _sentinels(table, tokens, to_board, window)
    there = np.full(len(asks), LOST_NS)
    some = np.flatnonzero(first >= 0)
    known = some[answers.t_rx_ns[first[some]] > 0]
    there[known] = answers.t_rx_ns[first[known]] - asks.time_ns[known]
    back = np.where(answers.t_send_ns > 0, answers.time_ns - answers.t_send_ns, LOST_NS)
    skew = _skew(asks, answers, first, there, back)
    if skew:
        there = np.where(there == LOST_NS, there, there - (skew * (asks.time_ns - table.time_ns[0])).astype(np.int64))
        drift = (skew * (answers.time_ns - table.time_ns[0])).astype(np.int64)
        back = np.where(back == LOST_NS, back, back + drift)
    baseline = Baseline(
        len(probe_there),
        int(np.median(probe_there)) if len(probe_there) else None,
        int(np.median(probe_back)) if len(probe_back) else None,
    )
    return Exchanges(
        asks=asks,
        answers=answers,
        window=window,
        stamped=bool((answers.t_send_ns > 0).any()),
        first=first,
        final=final,
        response_ns=response,
        there_ns=there,
        back_ns=back,
        baseline=baseline,
        push=push,
        sentinel_there=sentinel_there,
        board=board,
        jetson=jetson,
    )


def _sentinels(
    table: FrameTable, tokens: Tokens, to_board: NDArray[np.bool_], window: Window
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Answered sentinels: (bytes, there) of start and end; there and back of the probes before the load.

    A probe whose boot differs from the load's belongs to another clock and is left out.
    """
    empty = np.empty((0, 2), np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    at = np.flatnonzero(tokens.type == token_v2.SENTINEL)
    boots = tokens.boot_id[np.flatnonzero(tokens.type == token_v2.ANSWER)]
    if not len(at):
        return empty
    rows, probe_there, probe_back = [], [], []
    waiting: dict[int, int] = {}
    for i in at:
        kind = 0xFFFF_FFFF - int(tokens.request_id[i])
        if to_board[i]:
            waiting[kind] = int(i)
            continue
        mine = waiting.pop(kind, None)
        if mine is None or not tokens.t_rx_ns[i] or not tokens.t_send_ns[i]:
            continue
        if len(boots) and tokens.boot_id[i] != boots[0]:
            continue
        there = int(tokens.t_rx_ns[i]) - int(table.time_ns[tokens.row[mine]])
        back = int(table.time_ns[tokens.row[i]]) - int(tokens.t_send_ns[i])
        if kind == token_v2.SENTINEL_PROBE:
            probe_there.append(there)
            probe_back.append(back)
        else:
            rows.append((int(table.wire_len[tokens.row[mine]]), there))
    return (
        np.array(rows, np.int64).reshape(-1, 2),
        np.array(probe_there, np.int64),
        np.array(probe_back, np.int64),
    )


def _skew(
    asks: Asks, answers: Answers, first: NDArray[np.int64], there: NDArray[np.int64], back: NDArray[np.int64]
) -> float:
    """Rate of the board's clock against the capture's, less one, from the common mode of long captures; else 0."""
    used = np.flatnonzero((first >= 0) & (there != LOST_NS))
    if len(used) < 90 or int(asks.time_ns[used[-1]] - asks.time_ns[used[0]]) < _SKEW_FROM_NS:
        return 0.0
    common = (there[used] - back[first[used]]) / 2
    third = len(used) // 3
    rise = float(np.median(common[-third:]) - np.median(common[:third]))
    run = float(np.median(asks.time_ns[used[-third:]]) - np.median(asks.time_ns[used[:third]]))
    slope = rise / run if run else 0.0
    return slope if abs(slope) < SKEW_MAX else 0.0


def _asks(table: FrameTable, tokens: Tokens, at: NDArray[np.int64], copies: NDArray[np.int64]) -> Asks:
    row = tokens.row[at]
    return Asks(
        row=row,
        number=table.number[row],
        time_ns=table.time_ns[row],
        id=tokens.request_id[at],
        sequence=tokens.sequence[at].astype(np.int64),
        size=table.wire_len[row],
        copies=copies.astype(np.int64),
        wanted=tokens.answer_tokens[at].astype(np.int64),
    )


def _answers(table: FrameTable, tokens: Tokens, at: NDArray[np.int64], asks: Asks) -> Answers:
    row = tokens.row[at]
    key = _identity(table, tokens, at)
    _, first_seen, inverse = np.unique(key, return_index=True, return_inverse=True)
    original = first_seen[inverse]
    time_ns = table.time_ns[row]
    asked_in, answered_in = conversations(
        [key._replace(vlans=()) for key in table.flows], table.flow[asks.row], table.flow[row]
    )
    return Answers(
        row=row,
        number=table.number[row],
        time_ns=time_ns,
        id=tokens.request_id[at],
        sequence=tokens.sequence[at].astype(np.int64),
        boot=tokens.boot_id[at],
        size=table.wire_len[row],
        owner=owners(asks.id, asks.time_ns, tokens.request_id[at], time_ns, asked_in, answered_in),
        copy=original != np.arange(len(at)),
        since_copy_ns=time_ns - time_ns[original] if len(at) else np.empty(0, np.int64),
        first=tokens.first[at],
        last=tokens.last[at] | (tokens.type[at] == token_v2.ACKNOWLEDGE),
        t_rx_ns=tokens.t_rx_ns[at].astype(np.int64),
        t_ready_ns=tokens.t_ready_ns[at].astype(np.int64),
        t_send_ns=tokens.t_send_ns[at].astype(np.int64),
        tokens=tokens.tokens[at].astype(np.int64),
    )


def _identity(table: FrameTable, tokens: Tokens, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number per datagram that only its copies share: both ends, boot and sequence, whatever the VLAN tags."""
    boots = np.unique(tokens.boot_id[at], return_inverse=True)[1].astype(np.int64)
    pair = table.ends.pair
    space = boots * (int(pair.max(initial=0)) + 1) + pair[table.flow[tokens.row[at]]]
    identity: NDArray[np.int64] = (space << 32) | tokens.sequence[at]
    return identity


def _take(columns: Asks | Answers, index: NDArray[np.int64]):  # type: ignore[no-untyped-def]
    return type(columns)(**{name: getattr(columns, name)[index] for name in columns.__dataclass_fields__})
