"""What the senders counted, set against the capture: how many of it are missing, and from which flows.

A counter counts all that its side sent of one kind: requests of the runner; answers, acknowledgements and pushes of the
board, to whomever. So all of that kind in the capture is set against it, whatever the plan's flows select.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rig.plan.model import Flow, Plan
from rig.protocol import token_v2
from rig.timing.evidence import Ledger
from rig.timing.flows import Packets, Selection
from rig.timing.metrics.measurement import Sent
from rig.timing.tokens import Tokens
from rig.timing.window import BoardSpan


@dataclass(frozen=True)
class _Counted:
    """packets: all that one side sent in `protocol`, the plan's. kind b: those that its counter counts, whenever they
    were sent. counted b: those that it counted. sent: what came of it. flows: flow keys that are known to be that
    side's, empty where no sentinel told."""

    packets: Packets
    kind: NDArray[np.bool_]
    counted: NDArray[np.bool_]
    sent: Sent
    protocol: str
    flows: tuple[int, ...]


def sent_of_flows(selection: Selection, plan: Plan, packets: Mapping[str, Packets], told: Ledger) -> dict[str, Sent]:
    """Flow → what its sender counted. told: by the far ends themselves; the board's sentinels tell the rest."""
    sides = {
        "jetson": _by_the_runner(selection, plan, packets, told),
        "board": _by_the_board(selection, plan, packets, told),
    }
    found = {}
    for name, flow in packets.items():
        side = sides.get(flow.source)
        if side is not None:
            whole = _is_whole(selection, plan.flows[name], flow, side)
            found[name] = replace(side.sent, whole=whole, covers=_is_covered(flow, side))
    return found


def _by_the_runner(selection: Selection, plan: Plan, packets: Mapping[str, Packets], told: Ledger) -> _Counted | None:
    if told.requests_sent is None:
        return None
    own = _of_side(selection, plan, packets, "jetson")
    flows = selection.window.runner_flows
    kind = _of_kind(own, token_v2.REQUEST) & _from_end(own, flows)
    counted = kind & own.measured
    sent = Sent.exactly(told.requests_sent, _distinct(own, counted))
    return _Counted(own, kind, counted, sent, plan.inference.protocol, flows)


def _by_the_board(selection: Selection, plan: Plan, packets: Mapping[str, Packets], told: Ledger) -> _Counted | None:
    span, counters, flows = selection.window.board_span, selection.window.board_counters, selection.window.board_flows
    if told.answers_sent is None and span is None:
        return None
    own = _of_side(selection, plan, packets, "board")
    if told.answers_sent is not None:
        kind = _of_kind(own, token_v2.ANSWER) & _from_end(own, flows)
        counted = kind & own.measured
        sent = Sent.exactly(told.answers_sent, _distinct(own, counted))
    elif span is not None and plan.inference.protocol == "token-v2":
        assert own.tokens is not None
        kind = own.tokens.boot_id == span.boot_id
        counted = kind & _numbered_between(own.tokens, span)
        count = counters["tx_answers"] + counters["tx_acks"] + counters["pushes"]
        sent = Sent.exactly(count, _distinct(own, counted))
        if sent.least and sent.least > _unseen_numbers(own, span):
            sent = Sent(sent.count, sent.seen, 0, None)
    else:
        assert span is not None, "nobody told and no sentinel did"
        kind = _from_end(own, flows)
        counted = kind & (own.time_ns >= span.time_ns[0])
        sent = _by_time(own, counted, counted & (own.time_ns < span.time_ns[1]), counters["tx_answers"])
    return _Counted(own, kind, counted, sent, plan.inference.protocol, flows)


def _of_side(selection: Selection, plan: Plan, packets: Mapping[str, Packets], side: str) -> Packets:
    """Everything that one side sends in the plan's protocol."""
    every = Flow(src=side, protocol=plan.inference.protocol)
    rows = selection.rows(every)
    for name, flow in packets.items():
        if plan.flows[name].protocol == every.protocol and np.array_equal(selection.rows(plan.flows[name]), rows):
            return flow  # the usual case, and its stream need not be made twice
    return selection.packets(side, every)


def _of_kind(packets: Packets, kind: int) -> NDArray[np.bool_]:
    """token-v1 has no types: what a side sends is what it sends."""
    assert packets.tokens is not None
    if packets.tokens.sequence_bits == 16:
        return np.ones(len(packets), np.bool_)
    of_kind: NDArray[np.bool_] = packets.tokens.type == kind
    return of_kind


def _from_end(packets: Packets, flows: tuple[int, ...]) -> NDArray[np.bool_]:
    """Packets from the ends that send these flow keys; all where none is known."""
    source = packets.table.ends.source
    mine = np.isin(source, source[list(flows)]) if flows else np.ones(len(source), np.bool_)
    return mine[packets.table.flow[packets.row]]


def _distinct(packets: Packets, chosen: NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(chosen & packets.stream.first_copy))


def _numbered_between(tokens: Tokens, span: BoardSpan) -> NDArray[np.bool_]:
    """Datagrams of the span's boot whose numbers lie between those of the two sentinel answers."""
    number, length = _numbers(tokens, span)
    between: NDArray[np.bool_] = (tokens.boot_id == span.boot_id) & (number > 0) & (number < length)
    return between


def _unseen_numbers(own: Packets, span: BoardSpan) -> int:
    """How many of the numbers between the two sentinel answers no datagram in the capture has, answer or not."""
    seen = [
        _numbers(tokens, span)[0][_numbered_between(tokens, span)]
        for tokens in (own.tokens, own.beside)
        if tokens is not None
    ]
    return (span.numbers[1] - span.numbers[0]) % (1 << 32) - 1 - len(np.unique(np.concatenate(seen)))


def _numbers(tokens: Tokens, span: BoardSpan) -> tuple[NDArray[np.uint32], int]:
    """(sequence numbers counted from the first sentinel answer's, that of the last one)."""
    first, last = span.numbers
    return tokens.sequence - np.uint32(first), (last - first) % (1 << 32)


def _by_time(packets: Packets, since: NDArray[np.bool_], between: NDArray[np.bool_], count: int) -> Sent:
    """token-v1 numbers nothing, so what comes after the end sentinel's answer may have been sent before it or after."""
    seen = _distinct(packets, between)
    if seen > count:
        return Sent.exactly(count, seen)
    return Sent(count, seen, max(0, count - _distinct(packets, since)), count - seen)


def _is_whole(selection: Selection, selector: Flow, flow: Packets, side: _Counted) -> bool:
    """Whether all that the side counted and the capture shows is in the flow, and what it does not show would be."""
    if flow.filtered or flow.shared or selector.protocol not in (None, side.protocol):
        return False
    keys = [selection.table.flows[index] for index in side.flows]
    if keys and not any(selection.selects(selector, key) for key in keys):
        return False
    if flow is side.packets:
        return True
    chosen = np.zeros(len(selection.table), np.bool_)
    chosen[flow.row] = True
    held = np.zeros(len(side.packets), np.bool_)
    held[side.packets.stream.original[chosen[side.packets.row]]] = True  # by one of its copies
    return bool(held[side.packets.stream.original[side.counted]].all())


def _is_covered(flow: Packets, side: _Counted) -> bool:
    """Whether every measured packet of the flow is one that the side counts."""
    of_kind = np.zeros(len(flow.table), np.bool_)
    of_kind[side.packets.row[side.kind]] = True
    return bool(of_kind[flow.row[flow.measured]].all())
