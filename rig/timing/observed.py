"""What the capture of one run shows: its flows, the far ends' ledger, and what of it was seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rig.plan.model import Plan
from rig.plan.units import format_ns
from rig.protocol import token_v2
from rig.timing.arp import unanswered
from rig.timing.evidence import Evidence, Ledger, Seen
from rig.timing.flows import Packets, Selection
from rig.timing.metrics.measurement import Decoding, NeverLeft, Scene
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
    seen = _seen(selection, plan, packets, len(silent))

    sent: dict[str, int] = {}
    sent_from_ns: dict[str, int] = {}
    never_left: dict[str, NeverLeft] = {}
    for name, flow in packets.items():
        counter = {"jetson": ledger.requests_sent, "board": ledger.answers_sent}.get(flow.source)
        if counter is None:
            continue
        sent[name] = counter
        if flow.source == "board" and evidence.ledger.answers_sent is None:
            sent_from_ns[name] = selection.window.start_answer_ns
        missing = counter - int(np.count_nonzero(flow.measured))
        if flow.source == "jetson" and len(silent) and missing > 0:
            never_left[name] = NeverLeft(missing, table.number[silent], table.time_ns[silent])
    scene = Scene(
        packets=packets,
        timeout_ns=plan.inference.timeout,
        end_ns=int(table.time_ns[-1]) if len(table) else 0,
        sent=sent,
        sent_from_ns=sent_from_ns,
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


def _seen(selection: Selection, plan: Plan, packets: Mapping[str, Packets], arp_unanswered: int) -> Seen:
    """Count the ledger's datagrams in the capture: by the ends' addresses, whatever the plan's flows select."""
    window, time_ns = selection.window, selection.table.time_ns
    ours = [end for end in ("jetson", "board") if end in selection.addresses]
    if plan.inference.protocol == "token-v1" or len(ours) < 2:
        by_source = {side: [flow for flow in packets.values() if flow.source == side] for side in ("jetson", "board")}
        return Seen(
            requests=max((int(np.count_nonzero(flow.measured)) for flow in by_source["jetson"]), default=0),
            answers=max((int(np.count_nonzero(flow.measured)) for flow in by_source["board"]), default=0),
            arp_unanswered=arp_unanswered,
        )
    tokens = selection.v2.tokens
    inside = window.contains(time_ns[tokens.row])
    requests = inside & selection.between("jetson", "board") & (tokens.type == token_v2.REQUEST)
    answers = np.flatnonzero(inside & selection.between("board", "jetson"))
    own = (tokens.boot_id[answers].astype(np.int64) << 32) | tokens.sequence[answers]
    distinct = answers if (np.diff(own) > 0).all() else answers[np.unique(own, return_index=True)[1]]
    begun = np.sort(tokens.request_id[distinct[tokens.first[distinct] & (tokens.type[distinct] == token_v2.ANSWER)]])
    # From the start sentinel to the end of the file: the board's answer to the end sentinel still tells its boot.
    returned = (tokens.type == token_v2.SENTINEL) & (selection.table.payload_len[tokens.row] > token_v2.HEADER_LENGTH)
    boot_id = tokens.boot_id[
        np.concatenate((distinct, np.flatnonzero(returned & (time_ns[tokens.row] >= window.start_ns))))
    ]
    boots = boot_id[:1] if (boot_id == boot_id[:1]).all() else np.unique(boot_id)
    return Seen(
        requests=int(np.count_nonzero(requests)),
        answers=len(distinct),
        repeated_answers=int(np.count_nonzero(np.diff(begun) == 0)),
        board_boots=tuple(int(boot) for boot in boots),
        arp_unanswered=arp_unanswered,
    )
