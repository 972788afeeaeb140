"""Address resolution (RFC 826): datagrams wait for it, and lwIP keeps only the last of them by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rig.plan.units import format_ns
from rig.triage.diagnosis import Clue, Rule, Support
from rig.triage.exchange_model import LOST_NS

if TYPE_CHECKING:
    from rig.triage.case import Case

_SLOW_NS = 20_000_000
_NEAR_NS = 50_000_000


def arp_late(case: Case) -> Support | None:
    """The board's answer to who-has in the load takes long although it comes. While it boots it may."""
    board = case.addresses.get("board")
    asked = [one for one in case.arp if one.target == board and one.reply_ns is not None and case.measured(one.time_ns)]
    slow = [one for one in asked if one.reply_ns is not None and one.reply_ns > _SLOW_NS]
    if not slow:
        return None
    longest = max(one.reply_ns or 0 for one in slow)
    clue = Clue(
        f"{len(slow)} of {len(asked)} answered who-has for the board waited, at most {format_ns(longest)}",
        tuple(number for one in slow[:4] for number in (one.number, one.reply_number or 0)),
    )
    return Support(0.85 if len(slow) * 2 >= len(asked) else 0.5, (clue,), (), format_ns(longest), longest)


def arp_unanswered(case: Case) -> Support | None:
    board = case.addresses.get("board")
    asked = [one for one in case.arp if one.target == board]
    silent = [one for one in asked if one.reply_ns is None]
    exchanges = case.exchanges
    answered = exchanges is not None and len(exchanges.answers) > 0
    if not silent or answered or any(one.reply_ns is not None for one in asked):
        return None
    clue = Clue(
        f"the board never answered who-has ({len(silent)} asked), and nothing else came from it",
        tuple(one.number for one in silent[:8]),
    )
    return Support(0.85, (clue,))


def cold_burst(case: Case) -> Support | None:
    """The board asks who-has, and of the datagrams that it sent meanwhile only the last ones leave."""
    after = _after_own_who_has(case)
    if after is None:
        return None
    asked, rows, missing = after
    if not len(rows):
        return None
    clue = Clue(
        f"the board asked who-has {len(asked)} times; within {format_ns(_NEAR_NS)} of its answers "
        f"{missing} of its datagrams are missing",
        (*[one.number for one in asked[:3]], *case.numbers(rows, 4)),
    )
    total = int(case.board_gaps[0].sum())
    share = missing / total
    return Support(0.5 + 0.43 * share, (clue,), (), f"{missing} datagrams")


def slow_reply(case: Case) -> Support | None:
    """Only the datagram that waited for the who-has of the board is late, by as much as the answer took."""
    exchanges = case.exchanges
    if exchanges is None or not exchanges.stamped:
        return None
    own = [one for one in case.arp if one.sender == case.addresses.get("board") and (one.reply_ns or 0) > 2_000_000]
    if not own:
        return None
    answers = exchanges.answers
    back = exchanges.back_ns
    known = back[back != LOST_NS]
    if not len(known):
        return None
    usual = float(np.median(known))
    frames: list[int] = []
    for one in own:
        assert one.reply_ns is not None
        later = int(np.searchsorted(answers.time_ns, one.time_ns + one.reply_ns))
        if later < len(back) and abs(back[later] - usual - one.reply_ns) < max(1_000_000, one.reply_ns / 3):
            frames += [one.number, int(answers.number[later])]
    if not frames:
        return None
    clue = Clue(
        f"after {len(frames) // 2} who-has of the board the datagram that waited leaves late by the time of the answer",
        tuple(frames[:8]),
    )
    return Support(0.9, (clue,))


def _after_own_who_has(case: Case):  # type: ignore[no-untyped-def]
    board = case.addresses.get("board")
    own = [one for one in case.arp if one.sender == board and one.reply_ns is not None]
    missing, rows = case.board_gaps
    if not own or not len(rows):
        return None
    time_ns = case.table.time_ns[rows]
    begin = np.array([one.time_ns for one in own])
    end = np.maximum.accumulate(begin + np.array([one.reply_ns or 0 for one in own]) + _NEAR_NS)
    last = np.searchsorted(begin, time_ns, "right") - 1
    near = (last >= 0) & (end[last] >= time_ns)
    return own, rows[near], int(missing[near].sum())


RULES = (
    Rule(
        "arp-late",
        "ARP and link",
        "link",
        "ARP answers of the board come late",
        "slow answers to who-has",
        "`ip neigh replace ADDRESS lladdr MAC nud permanent dev IFACE` on the Jetson; if it vanishes, it was ARP",
        arp_late,
    ),
    Rule(
        "arp-unanswered",
        "ARP and link",
        "board",
        "The board does not answer ARP",
        "no answer to who-has",
        "is the board powered, linked and booted? `info` on its console shows the address that it thinks it has",
        arp_unanswered,
    ),
    Rule(
        "arp-cold-burst",
        "ARP and link",
        "board",
        "The board loses datagrams while it waits for ARP",
        "who-has before missing datagrams",
        "set ARP_QUEUEING=1, or add a static ARP entry for the peer; the first burst must then be whole",
        cold_burst,
    ),
    Rule(
        "arp-slow-reply",
        "ARP and link",
        "link",
        "The first datagram waits for a slow ARP answer of the peer",
        "who-has before a late datagram",
        "add a static ARP entry for the peer in the board (etharp_add_static_entry)",
        slow_reply,
    ),
)
