"""Frames seen twice: by the capture point, in the link, or sent so by the board."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rig.plan.units import format_ns
from rig.timing.copies import AT_ONCE_NS, shown_twice
from rig.timing.merged import LONGEST_JUMBO, merged_rows
from rig.triage.diagnosis import Clue, Rule, Support
from rig.triage.rules.capture_point import at_the_board

if TYPE_CHECKING:
    from rig.triage.case import Case


def _shares(case: Case) -> tuple[float, float, int, int] | None:
    """(share of requests with copies, share of answers with copies, how many copies of each)."""
    exchanges = case.exchanges
    if exchanges is None or not exchanges.stamped:
        return None
    asks, answers = exchanges.asks, exchanges.answers
    of_asks, of_answers = int(asks.copies.sum()), int(np.count_nonzero(answers.copy))
    originals = len(answers) - of_answers
    return of_asks / max(1, len(asks)), of_answers / max(1, originals), of_asks, of_answers


def capture_copies(case: Case) -> Support | None:
    """Both directions twice: by sequence numbers, or by equal frames where the protocol is not known."""
    shares = _shares(case)
    if shares is None or not case.exchanges:
        return _equal_frames(case)
    of_requests, of_answers, copied_requests, copied_answers = shares
    if not copied_requests or not copied_answers:
        return None
    answers = case.exchanges.answers
    copies = np.flatnonzero(answers.copy)
    near = np.count_nonzero(answers.since_copy_ns[copies] <= AT_ONCE_NS) / len(copies)
    clues = [
        Clue(
            f"frames of both directions come twice: {of_requests:.0%} of the requests, {of_answers:.0%} of the answers",
            case.numbers(answers.row[copies]),
        ),
        Clue(f"{near:.0%} of the copies follow within {format_ns(AT_ONCE_NS)}"),
    ]
    against = []
    if case.report is not None:
        received = case.report.count("duplicates")
        if received:
            against.append(Clue(f"the Jetson itself received {received} duplicates"))
        else:
            clues.append(Clue("the Jetson received no duplicate"))
    score = 0.95 if near > 0.8 and min(of_requests, of_answers) > 0.5 and not against else 0.45 if near > 0.5 else 0.2
    return Support(score, tuple(clues), tuple(against))


def _equal_frames(case: Case) -> Support | None:
    """Nearly every frame of both directions comes again at once, octet for octet, headers included."""
    table = case.table
    copies = shown_twice(table, np.flatnonzero((table.flow >= 0) & (table.payload_len > 0)))
    if copies is None or len({table.flows[flow].src for flow in np.unique(table.flow[copies.row])}) < 2:
        return None
    clue = Clue(
        f"{len(copies.row)} of {copies.looked_at} frames with a payload repeat another, headers and all, within "
        f"{format_ns(AT_ONCE_NS)}",
        case.numbers(copies.row),
    )
    return Support(0.9, (clue,))


def copies_from_board(case: Case) -> Support | None:
    shares = _shares(case)
    if shares is None or not case.exchanges or not shares[3] or shares[2]:
        return None
    _, of_answers, _, n = shares
    answers = case.exchanges.answers
    copies = np.flatnonzero(answers.copy)
    clues = [
        Clue(
            f"{n} answers come again with the same sequence number, {of_answers:.1%} of them; no request does",
            case.numbers(answers.row[copies]),
        )
    ]
    against = []
    if case.report is not None and not case.report.count("duplicates"):
        against.append(Clue("the Jetson received no duplicate"))
    paired = _lost_before_copies(case)
    if paired > 0.5:
        against.append(Clue("a sequence number is missing before the copies: the buffer was used again too early"))
    score = (0.9 if of_answers < 0.8 else 0.4) * (0.4 if against else 1.0)
    ledger, from_board = _ledger(case)
    if ledger is not None:
        (against if from_board else clues).append(ledger)
    experiment = "" if from_board else _between(case)
    return Support(score, tuple(clues), tuple(against), f"{of_answers:.1%}", experiment=experiment)


def _ledger(case: Case) -> tuple[Clue | None, bool]:
    """What the board counted against what the wire shows; True when the board itself sent the copies."""
    exchanges = case.exchanges
    if exchanges is None:
        return None, False
    copies = int(np.count_nonzero(exchanges.answers.copy))
    counters = exchanges.window.board_counters
    said = counters["pushes" if exchanges.push else "tx_answers"] if counters else 0
    seen = len(exchanges.answers)
    board = case.addresses["board"]
    mine = np.array([key.src == board for key in case.table.flows] + [False], np.bool_)
    frames, of_mac = int(np.count_nonzero(mine[case.table.flow])), case.board_counters.get("mac_tx_frames", 0)
    text = ""
    if counters and said < seen:
        text = f"the board says that it sent {said} answers, the wire shows {seen}"
    # The capture holds nearly every frame of the boot; copies that the driver makes are in its count of frames.
    if of_mac and len(case.boots) == 1:
        twice = of_mac >= frames - copies // 2
        text += ("; " if text else "") + f"its driver counted {of_mac} frames sent, the capture holds {frames} of them"
        return Clue(text + (": the copies are its own" if twice else ": the copies were made behind it")), twice
    return (Clue(text + ": what came twice was handed over once"), False) if text else (None, False)


def _between(case: Case) -> str:
    """Where to look for who makes the copies, given the capture point; empty: nothing better than the rule's own."""
    if not at_the_board(case):
        return ""
    between = "the relay" if case.emulated else "the PHY, the cable and the rig's port: exchange them one by one"
    return (
        f"this capture was taken at the board's own port ({case.capture_point}), and the frames are twice there "
        f"already: between it and the board's driver lies only {between}"
    )


def board_sends_twice(case: Case) -> Support | None:
    shares = _shares(case)
    if shares is None or not case.exchanges or shares[2]:
        return None
    of_answers = shares[1]
    if of_answers < 0.8:
        return None
    copies = np.flatnonzero(case.exchanges.answers.copy)
    clue = Clue(
        f"nearly every frame of the board comes twice ({of_answers:.0%}), and no frame of the Jetson does",
        case.numbers(case.exchanges.answers.row[copies]),
    )
    ledger, from_board = _ledger(case)
    told = (ledger,) if ledger is not None else ()
    return Support(0.93, (clue, *told) if from_board else (clue,), () if from_board else told)


def buffer_reused(case: Case) -> Support | None:
    """Sequence n is missing and n+1 comes twice: the driver sent a buffer that was filled again (zero copy)."""
    shares = _shares(case)
    if shares is None or not case.exchanges or not shares[3]:
        return None
    paired = _lost_before_copies(case)
    if paired < 0.5:
        return None
    copies = np.flatnonzero(case.exchanges.answers.copy)
    clue = Clue(
        f"{paired:.0%} of the copied datagrams follow a missing sequence number: n is lost, n+1 comes twice",
        case.numbers(case.exchanges.answers.row[copies]),
    )
    return Support(0.5 + 0.45 * paired, (clue,))


def copies_to_board(case: Case) -> Support | None:
    """Copied behind the capture point: the board answers one captured request twice, with new sequence numbers."""
    exchanges = case.exchanges
    if exchanges is None or not exchanges.stamped or exchanges.push:
        return None
    answers = exchanges.answers
    ends = np.flatnonzero(answers.last & (answers.owner >= 0) & ~answers.copy)
    answered = np.bincount(answers.owner[ends], minlength=len(exchanges.asks))
    twice = np.flatnonzero((answered > 1) & (exchanges.asks.copies == 0))
    if not len(twice):
        return None
    repeated = np.flatnonzero(np.isin(answers.owner, twice) & answers.last)
    clues = [
        Clue(
            f"the board answered {len(twice)} requests twice, with a sequence number of its own each time, "
            "and the capture holds each of them once",
            case.numbers(answers.row[repeated]),
        )
    ]
    counters = exchanges.window.board_counters
    if counters:
        more = counters["rx_requests"] - len(exchanges.asks)
        clues.append(Clue(f"the board counted {more:+d} requests more than were captured"))
    share = len(twice) / len(exchanges.asks)
    return Support(0.92, tuple(clues), (), f"{share:.1%}")


def merged_frames(case: Case) -> Support | None:
    """Frames that no link carried so: the capturing NIC joined them (GRO, LRO) or was about to cut them (TSO)."""
    rows = merged_rows(case.table, case.exchanged)
    if not len(rows):
        return None
    clue = Clue(f"{len(rows)} frames are longer than an Ethernet frame of 1518 bytes", case.numbers(rows))
    if case.table.wire_len[rows].max() > LONGEST_JUMBO:
        return Support(0.7, (clue,))
    return Support(0.5, (clue,), (Clue("a link with jumbo frames would look the same"),))


def _lost_before_copies(case: Case) -> float:
    """Share of the copied datagrams whose predecessor in the board's sequence is missing."""
    exchanges = case.exchanges
    if exchanges is None:
        return 0.0
    _, after_gap = case.board_gaps
    answers = exchanges.answers
    copied = np.unique(answers.sequence[answers.copy])
    if not len(copied):
        return 0.0
    gap_sequences = answers.sequence[np.isin(answers.row, after_gap)]
    return float(np.isin(copied, gap_sequences).mean())


RULES = (
    Rule(
        "capture-copies",
        "duplication and offload",
        "capture",
        "The capture point shows frames twice",
        "all frames twice",
        "mirror one direction only, or capture inline; set `capture.duplication` in the bench file meanwhile",
        capture_copies,
    ),
    Rule(
        "tx-buffer-reused",
        "board",
        "board",
        "The board reuses a buffer before its driver has sent it",
        "n lost and n+1 twice",
        "build with copying (`variant: copy`); if it vanishes, the reference was given back too early",
        buffer_reused,
    ),
    Rule(
        "path-copies-from-board",
        "duplication and offload",
        "link",
        "The link duplicates frames from the board",
        "some frames of the board twice",
        "take the switch out, or capture at the board's own port: are they twice there?",
        copies_from_board,
    ),
    Rule(
        "board-sends-twice",
        "board",
        "board",
        "The board sends every frame twice",
        "every frame of the board twice",
        "count the driver's transmit interrupts against frames; a ring of one descriptor is known for this",
        board_sends_twice,
    ),
    Rule(
        "path-copies-to-board",
        "duplication and offload",
        "link",
        "The link duplicates requests on their way to the board",
        "requests answered twice",
        "compare the board's mac_rx_frames with the frames captured towards it",
        copies_to_board,
    ),
    Rule(
        "capture-offload",
        "duplication and offload",
        "capture",
        "The capturing NIC merges frames",
        "frames longer than the link allows",
        "ethtool -K IFACE gro off lro off gso off tso off, then run again",
        merged_frames,
    ),
)
