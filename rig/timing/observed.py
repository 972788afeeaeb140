"""What the capture of one run shows: its flows, the far ends' ledger, and what of it was seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rig.plan.model import Plan
from rig.plan.units import format_ns
from rig.protocol import token_v2
from rig.timing.arp import unanswered
from rig.timing.evidence import Evidence, Ledger, Seen
from rig.timing.flows import Packets, Selection
from rig.timing.metrics.measurement import Decoding, NeverLeft, Scene
from rig.timing.sent import sent_of_flows
from rig.timing.table import FrameTable, interfaces_of


@dataclass(frozen=True)
class Run:
    """One run as the capture and the ledger show it.

    origin_ns: time of the first frame. e_ns: uncertainty of a difference of these capture times: the bench's, or the
    resolution of the stamps where that is coarser. timing_notes: of Evidence, and where the stamps decide e.
    """

    selection: Selection
    scene: Scene
    ledger: Ledger
    seen: Seen
    origin_ns: int
    e_ns: int
    timing_notes: tuple[str, ...]


def observe(
    table: FrameTable, plan: Plan, evidence: Evidence, selection: Selection, e_ns: int, decoding: Decoding | None
) -> Run:
    addresses = selection.addresses
    packets = {name: selection.packets(name, flow) for name, flow in plan.flows.items()}
    # Two stamps are each cut to the resolution, so their difference is wrong by less than one step of it.
    used = interfaces_of(table, *(flow.row for flow in packets.values()))
    resolution_ns = max((math.ceil(interface.resolution_ns) for interface in used), default=0)
    notes = evidence.timing_notes
    if resolution_ns > e_ns:
        notes += (
            f"the stamps of this capture resolve {format_ns(resolution_ns)}, coarser than the bench's "
            f"e = {format_ns(e_ns)}: e = {format_ns(resolution_ns)} was judged by",
        )
        e_ns = resolution_ns
    ledger = _ledger(plan, evidence.ledger, selection)
    silent = unanswered(table, addresses["board"]) if "board" in addresses else np.empty(0, np.int64)
    seen = _seen(selection, plan, packets, len(silent), counted=ledger.requests_received is not None)

    sent = sent_of_flows(selection, plan, packets, evidence.ledger)
    never_left = {
        name: NeverLeft(of.least, table.number[silent], table.time_ns[silent])
        for name, of in sent.items()
        if packets[name].source == "jetson" and len(silent) and of.whole and of.least
    }
    scene = Scene(
        packets=packets,
        timeout_ns=plan.inference.timeout,
        end_ns=int(table.time_ns[-1]) if len(table) else 0,
        sent=sent,
        never_left=never_left,
        window_ns=(
            selection.window.start_ns if selection.window.start_seen else None,
            selection.window.end_ns if selection.window.end_seen else None,
        ),
        e_ns=e_ns,
        decoding=decoding,
    )
    origin_ns = int(table.time_ns[0]) if len(table) else 0
    return Run(selection, scene, ledger, seen, origin_ns, e_ns, notes)


def _ledger(plan: Plan, given: Ledger, selection: Selection) -> Ledger:
    """The ledger with what the board's own sentinels tell, where nobody told better."""
    counters = selection.window.board_counters
    if not counters:
        return given
    sent = counters["pushes" if plan.inference.mode == "push" else "tx_answers"]
    return Ledger(
        requests_sent=given.requests_sent,
        requests_received=counters["rx_requests"] if given.requests_received is None else given.requests_received,
        answers_sent=sent if given.answers_sent is None else given.answers_sent,
        answers_received=given.answers_received,
    )


def _seen(
    selection: Selection, plan: Plan, packets: Mapping[str, Packets], arp_unanswered: int, *, counted: bool
) -> Seen:
    """Count the ledger's datagrams in the capture: by the ends' addresses, whatever the plan's flows select.

    counted: the board told how many requests it received, so it matters which answers are repeats.
    """
    window, time_ns = selection.window, selection.table.time_ns
    flow, ends = selection.table.flow, selection.table.ends
    ours = [end for end in ("jetson", "board") if end in selection.addresses]
    if plan.inference.protocol == "token-v1" or len(ours) < 2:
        by_source = {side: [flow for flow in packets.values() if flow.source == side] for side in ("jetson", "board")}
        return Seen(
            requests=max((int(np.count_nonzero(flow.measured)) for flow in by_source["jetson"]), default=0),
            answers=max(
                (
                    int(np.count_nonzero((flow.time_ns >= window.start_ns) & _first_copies(flow)))
                    for flow in by_source["board"]
                ),
                default=0,
            ),
            arp_unanswered=arp_unanswered,
        )
    tokens = selection.v2.tokens
    time = time_ns[tokens.row]
    asked = window.contains(time) & selection.between(None, "board") & (tokens.type == token_v2.REQUEST)
    requests = asked & selection.between("jetson", "board")
    said = (time >= window.start_ns) & selection.between("board", None)
    answers = np.flatnonzero(said & selection.between("board", "jetson"))
    own = (tokens.boot_id[answers].astype(np.int64) << 32) | tokens.sequence[answers]
    distinct = answers if (np.diff(own) > 0).all() else answers[np.unique(own, return_index=True)[1]]
    begun = said & tokens.first & (tokens.type == token_v2.ANSWER)
    returned = (tokens.type == token_v2.SENTINEL) & (selection.table.payload_len[tokens.row] > token_v2.HEADER_LENGTH)
    boot_id = tokens.boot_id[np.concatenate((distinct, np.flatnonzero(returned & (time >= window.start_ns))))]
    boots = boot_id[:1] if (boot_id == boot_id[:1]).all() else np.unique(boot_id)
    return Seen(
        requests=int(np.count_nonzero(requests)),
        of_others=int(np.count_nonzero(asked)) - int(np.count_nonzero(requests)),
        answers=len(distinct),
        repeated_answers=_repeated(
            (ends.source[flow[tokens.row[asked]]] << 32) | tokens.request_id[asked],
            (ends.target[flow[tokens.row[begun]]] << 32) | tokens.request_id[begun],
            (tokens.boot_id[begun].astype(np.int64) << 32) | tokens.sequence[begun],
        )
        if counted
        else 0,
        board_boots=tuple(int(boot) for boot in boots),
        arp_unanswered=arp_unanswered,
    )


def _first_copies(flow: Packets) -> NDArray[np.bool_]:
    return np.ones(len(flow), np.bool_) if flow.tokens is None else flow.stream.first_copy


def _repeated(asked: NDArray[np.int64], answered: NDArray[np.int64], number: NDArray[np.int64]) -> int:
    """Answers to one client's request id that neither its requests in the capture nor a lost one explain.

    number: of the answers' first datagrams, which tells a copy from another answer.
    """
    if (np.diff(answered) > 0).all() or len(np.unique(answered)) == len(answered):
        return 0
    exchange, answers = np.unique(answered[np.unique(number, return_index=True)[1]], return_counts=True)
    if (answers <= 1).all():
        return 0
    exchange, answers = exchange[answers > 1], answers[answers > 1]
    asked = np.sort(asked)
    requests = np.searchsorted(asked, exchange, "right") - np.searchsorted(asked, exchange, "left")
    return int(np.maximum(answers - np.maximum(requests, 1), 0).sum())
