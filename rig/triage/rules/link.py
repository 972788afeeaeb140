"""Fragments, ICMP errors and outages: what the frames themselves say about the way between the ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rig.triage.diagnosis import Clue, Rule, Support
from rig.triage.rules.outage import outages

if TYPE_CHECKING:
    from rig.triage.case import Case

_MTU = 1500
_ELSEWHERE = 0.4
"""Score of trouble in a capture without any request or answer: too little to believe that it is the board's."""
_NOT_OURS = Clue("no request and no answer is in the capture, so that it may be anybody's")
_UNREACHABLE = {0: "network", 1: "host", 2: "protocol", 3: "port", 4: "too big", 13: "prohibited"}


def first_fragment_lost(case: Case) -> Support | None:
    found = [finding for finding in case.table.findings if finding.kind == "incomplete-datagram"]
    if not found:
        return None
    if case.exchanges is None:
        return Support(_ELSEWHERE, (Clue(found[0].detail),), (_NOT_OURS,))
    lone = case.lone_fragments
    if not lone:
        return None
    count = len({one.datagram for one in lone})
    clue = Clue(
        f"{count} fragmented datagrams between board and Jetson never became whole",
        tuple(one.number for one in lone[:8]),
    )
    return Support(0.93, (clue,))


def oversize(case: Case) -> Support | None:
    """Datagrams just above the MTU: each leaves as a full frame and a tiny one."""
    table = case.table
    datagrams = case.exchanged
    whole = datagrams[table.first_ns[datagrams] < table.time_ns[datagrams]]
    tail = whole[(table.payload_len[whole] + 28 > _MTU) & (table.payload_len[whole] + 28 <= _MTU + 64)]
    if not len(tail):
        return None
    clue = Clue(
        f"{len(tail)} datagrams are a few bytes longer than one frame carries ({int(table.payload_len[tail[0]])} bytes "
        "of payload), so that each costs two frames",
        case.numbers(tail),
    )
    return Support(0.9 if len(tail) > len(datagrams) / 20 else 0.6, (clue,))


def icmp(case: Case) -> Support | None:
    errors = [error for error in case.undelivered if error.kind == 3]
    if not errors:
        return None
    who = {"board": "the board", "jetson": "the Jetson"}
    names = {address: who[end] for end, address in case.addresses.items() if end in who}
    first = errors[0]
    what = _UNREACHABLE.get(first.code, f"code {first.code}")
    clue = Clue(
        f"{len(errors)} ICMP errors `{what} unreachable` from {names.get(first.sender, first.sender)}",
        tuple(error.number for error in errors[:8]),
    )
    about = f"{what} unreachable"
    if case.exchanges is None:
        return Support(_ELSEWHERE, (clue,), (_NOT_OURS,), about)
    return Support(0.92 if len(case.exchanges.lost) else 0.55, (clue,), (), about)


def link_down(case: Case) -> Support | None:
    """The carrier went, or the board was silent for a while and went on as the same boot."""
    gaps = outages(case)
    carrier = case.evidence.carrier_changes
    clues = []
    if carrier:
        clues.append(Clue(f"the bench link changed its carrier {carrier} times while packets were measured"))
    downs = [at for at, text in case.loaded_lines if text == "link down"]
    if downs:
        clues.append(Clue(f"the board reported `link down` {len(downs)} times on its console"))
    clues += [
        Clue(
            f"nothing came from the board for {gap.length_ns / 1e9:.3f} s from {gap.start_ns / 1e9:.3f} s on; "
            f"{gap.unanswered} requests were not answered",
            gap.frames,
        )
        for gap in gaps
        if not gap.ends_the_capture
    ]
    hole = _hole(case)
    if hole is not None:
        clues.append(hole)
    if not clues:
        return None
    against = []
    if len(case.boots) > 1:
        against.append(Clue(f"the board restarted in between ({len(case.boots)} boot ids)"))
    if case.info is not None and not carrier and not downs:
        against.append(Clue("neither the bench link nor the board saw the carrier go"))
    whole = [gap for gap in gaps if not gap.ends_the_capture]
    score = 0.95 if carrier or downs else 0.93 if hole else 0.7 if whole else 0.3
    if against:
        score = 0.3
    return Support(score, tuple(clues), tuple(against))


def _hole(case: Case) -> Clue | None:
    """A stretch without any request in which the Jetson went on sending: its requests never passed the capture."""
    exchanges = case.exchanges
    missing, rows = case.jetson_gaps
    if exchanges is None or not len(rows) or np.count_nonzero(exchanges.answers.owner < 0):
        return None
    largest = int(np.argmax(missing))
    row = int(rows[largest])
    earlier = exchanges.asks.row[exchanges.asks.row < row]
    if not len(earlier):
        return None
    silence = int(case.table.time_ns[row] - case.table.time_ns[earlier[-1]])
    if missing[largest] < 3 or silence < 50_000_000 or missing[largest] < 0.8 * missing.sum():
        return None
    return Clue(
        f"for {silence / 1e9:.3f} s no request passed the capture, although the Jetson's sequence went on "
        f"by {missing[largest]}",
        case.numbers([int(earlier[-1]), row]),
    )


RULES = (
    Rule(
        "fragment-lost",
        "reassembly",
        "board",
        "A fragment of datagrams is missing",
        "lone fragments",
        "warm ARP up before the first large datagram (etharp_query), or set ARP_QUEUEING=1; prefer single frames",
        first_fragment_lost,
    ),
    Rule(
        "oversize-datagrams",
        "reassembly",
        "board",
        "Datagrams are a little too large for one frame",
        "two frames per datagram",
        "send at most 1472 bytes of UDP payload and compare frames per second",
        oversize,
    ),
    Rule(
        "port-unreachable",
        "ICMP",
        "board",
        "Nobody listens where the datagrams go",
        "ICMP unreachable",
        "compare the plan's port with the one in the board's banner; was the service started?",
        icmp,
    ),
    Rule(
        "link-down",
        "ARP and link",
        "link",
        "The link to the board was down for a while",
        "outage of one boot",
        "watch `ip monitor link` and the PHY's link lamp; move the cable, then the port",
        link_down,
    ),
)
