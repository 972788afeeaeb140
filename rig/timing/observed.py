"""What the capture of one run shows: its flows, the far ends' ledger, and what of it was seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rig.plan.model import Plan
from rig.plan.units import format_ns
from rig.protocol import token_v2
from rig.timing.arp import unanswered
from rig.timing.copies import AT_ONCE_NS, nearly_all, shown_twice
from rig.timing.evidence import Evidence, Ledger, Seen
from rig.timing.flows import Packets, Selection, Stream
from rig.timing.metrics.measurement import Decoding, NeverLeft, Scene
from rig.timing.sent import sent_of_flows
from rig.timing.table import FrameTable, interfaces_of
from rig.timing.tokens import Tokens
from rig.timing.window import Window


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
    seen = _seen(
        selection,
        plan,
        packets,
        len(silent),
        counted=(ledger.requests_received, ledger.answers_received) != (None, None),
        frames_twice=evidence.frames_twice,
    )

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


class _Shown(NamedTuple):
    """Token datagrams as the capture shows them: flow key and time of each, and which are copies."""

    flow: NDArray[np.int32]
    time_ns: NDArray[np.int64]
    stream: Stream

    @classmethod
    def of(cls, table: FrameTable, tokens: Tokens) -> _Shown:
        flow, ends = table.flow[tokens.row], table.ends
        numbering = ends.source if tokens.sequence_bits > 16 else ends.pair
        return cls(flow, table.time_ns[tokens.row], Stream.of(numbering[flow], ends.pair[flow], tokens))

    def twice(self) -> bool:
        """Whether nearly each comes again at once, with the same tags."""
        alike = self._alike()
        since_ns = self.time_ns - self.time_ns[self.stream.original]
        again = ~self.stream.first_copy & alike & (since_ns <= AT_ONCE_NS)
        return nearly_all(int(np.count_nonzero(again)), int(np.count_nonzero(alike)))

    def arrived(self, twice: bool) -> NDArray[np.bool_]:
        """Those that their receiver may have got: of copies, such as are no second showing of the same frame."""
        return self.stream.first_copy if twice else self._alike()

    def _alike(self) -> NDArray[np.bool_]:
        """Those with the VLAN tags of their first copy: others are the same frame at another place of the network."""
        alike: NDArray[np.bool_] = self.flow == self.flow[self.stream.original]
        return alike


def _seen(
    selection: Selection,
    plan: Plan,
    packets: Mapping[str, Packets],
    arp_unanswered: int,
    *,
    counted: bool,
    frames_twice: bool,
) -> Seen:
    """Count the ledger's datagrams in the capture: by the ends' addresses, whatever the plan's flows select.

    counted: a far end told how much it received, so it matters which of what is seen are copies or repeats.
    frames_twice: the capture point is known to show frames twice; else it is taken to where it shows the answers twice.
    """
    window, table = selection.window, selection.table
    flow, ends = table.flow, table.ends
    runner = ends.source[list(window.runner_flows)]
    to_runner = np.isin(ends.target, runner) if len(runner) else np.ones(len(ends.target), np.bool_)
    ours = [end for end in ("jetson", "board") if end in selection.addresses]
    if plan.inference.protocol == "token-v1" or len(ours) < 2:
        return _seen_in_flows(packets, window, to_runner, arp_unanswered, frames_twice)
    tokens = selection.v2.tokens
    time = table.time_ns[tokens.row]
    said = (time >= window.start_ns) & selection.between("board", None)
    answers = np.flatnonzero(said & selection.between("board", "jetson"))
    distinct = len(answers)
    asked = np.flatnonzero(window.contains(time) & selection.between(None, "board") & (tokens.type == token_v2.REQUEST))
    if counted:
        got = _Shown.of(table, tokens.take(answers))
        distinct = int(np.count_nonzero(got.stream.first_copy & to_runner[got.flow]))
        asked = asked[_Shown.of(table, tokens.take(asked)).arrived(frames_twice or got.twice())]
    requests = int(np.count_nonzero(selection.between("jetson", "board")[asked]))
    begun = said & tokens.first & (tokens.type == token_v2.ANSWER)
    returned = (tokens.type == token_v2.SENTINEL) & (table.payload_len[tokens.row] > token_v2.HEADER_LENGTH)
    boot_id = tokens.boot_id[np.concatenate((answers, np.flatnonzero(returned & (time >= window.start_ns))))]
    boots = boot_id[:1] if (boot_id == boot_id[:1]).all() else np.unique(boot_id)
    return Seen(
        requests=requests,
        of_others=len(asked) - requests,
        answers=distinct,
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


def _seen_in_flows(
    packets: Mapping[str, Packets],
    window: Window,
    to_runner: NDArray[np.bool_],
    arp_unanswered: int,
    frames_twice: bool,
) -> Seen:
    """The same from the largest flow of either side, where types or addresses do not tell."""
    requests, answers, twice = [0], [0], frames_twice
    for flow in packets.values():
        if flow.source == "board":
            among = (flow.time_ns >= window.start_ns) & to_runner[flow.table.flow[flow.row]]
            # Two answers to a doubled request are alike in token-v1, but not their headers.
            twice = twice or shown_twice(flow.table, flow.row[among]) is not None
            if flow.tokens is not None:
                among = _Shown.of(flow.table, flow.tokens.take(among)).stream.first_copy
            answers.append(int(np.count_nonzero(among)))
    for flow in packets.values():
        if flow.source == "jetson":
            among = flow.measured
            if flow.tokens is not None:
                among = _Shown.of(flow.table, flow.tokens.take(among)).arrived(twice)
            requests.append(int(np.count_nonzero(among)))
    return Seen(requests=max(requests), answers=max(answers), arp_unanswered=arp_unanswered)


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
