"""Driver and stack of the board, told by when frames leave against their send stamps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rig.plan.units import format_ns
from rig.protocol import token_v2
from rig.triage.diagnosis import Clue, Rule, Support
from rig.triage.exchange_model import LOST_NS
from rig.triage.rules.holds import after_idle_share, group_size, holds, period_of, runs
from rig.triage.rules.shifts import rounded

if TYPE_CHECKING:
    from rig.triage.case import Case

_AT_ONCE_NS: Final = 400_000
BAUDS: Final = (9_600, 19_200, 38_400, 57_600, 115_200, 230_400, 460_800, 921_600, 1_000_000)


def kick_lost(case: Case) -> Support | None:
    """Late frames leave back-to-back with the next one: the driver was not told, the next send told it."""
    found = holds(case)
    if found is None:
        return None
    late = np.flatnonzero(found.late[:-1])
    if runs(late) < 5 or len(late) < 0.015 * len(found.hold_ns):
        return None
    behind = found.seen_ns[late + 1] - found.seen_ns[late]
    apart = found.sent_ns[late + 1] - found.sent_ns[late]
    pairs = (behind < 300_000) & (apart > 3 * np.maximum(behind, 1)) & (apart > found.threshold_ns)
    # In groups of three and more a frame waits for a batch, not for the next send.
    share = float(pairs.mean())
    grouped = group_size(found)
    if share < 0.6 or grouped > 2.2:
        return None
    clue = Clue(
        f"{int(pairs.sum())} of {len(late)} late frames leave right before the next one, "
        f"{rounded(float(np.median(apart[pairs])))} after they were sent",
        case.numbers(found.row[late[pairs]]),
    )
    return Support(0.5 + 0.45 * share, (clue,))


def batches(case: Case) -> Support | None:
    """Datagrams that were sent one by one leave in groups."""
    found = holds(case)
    if found is None:
        return None
    size = group_size(found)
    if size <= 2.2 or not found.late.any():
        return None
    clue = Clue(
        f"datagrams that the board sent one by one leave in groups of about {size:.0f}",
        case.numbers(found.row, 8),
    )
    return Support(0.94, (clue,), (), f"{size:.0f} at a time")


def quantised(case: Case) -> Support | None:
    """Some frames wait for one fixed time, as for a semaphore's time-out."""
    found = holds(case)
    if found is None:
        return None
    late = np.flatnonzero(found.late)
    share = len(late) / len(found.hold_ns)
    if runs(late) < 5 or share > 0.6:
        return None
    value = found.hold_ns[late]
    low, middle, high = np.percentile(value, [10, 50, 90])
    if high - low > 0.1 * middle or middle < 2 * found.threshold_ns:
        return None
    if after_idle_share(found, late) > 0.9 or period_of(found, late) is not None or kick_lost(case) is not None:
        return None
    steps = " a whole number of milliseconds," if abs(middle / 1e6 - round(middle / 1e6)) < 0.05 else ""
    clue = Clue(
        f"{len(late)} of {len(found.hold_ns)} frames wait {rounded(middle)} in the board "
        f"(p10 to p90: {rounded(high - low)}),{steps} the others hardly at all",
        case.numbers(found.row[late]),
    )
    return Support(0.85, (clue,), (), rounded(middle), round(middle))


def periodic(case: Case) -> Support | None:
    """Late frames come at a fixed period: something runs in the board once a while, such as a PHY being polled."""
    found = holds(case)
    if found is None:
        return None
    late = np.flatnonzero(found.late)
    period = period_of(found, late)
    if period is None or after_idle_share(found, late) > 0.9:
        return None
    clue = Clue(
        f"{len(late)} late frames follow one another at multiples of {format_ns(round(period / 1e6) * 1_000_000)}",
        case.numbers(found.row[late]),
    )
    return Support(0.92, (clue,), (), f"every {format_ns(round(period / 1e6) * 1_000_000)}")


def after_idle(case: Case) -> Support | None:
    """Only the first frame after a pause is late: something slept (EEE, power save)."""
    found = holds(case)
    if found is None:
        return None
    late = np.flatnonzero(found.late)
    if runs(late) < 3 or len(late) > 0.6 * len(found.hold_ns):
        return None
    share = after_idle_share(found, late)
    if share < 0.9:
        return None
    idle = np.diff(found.sent_ns, prepend=found.sent_ns[0])
    begins = late[(np.diff(late, prepend=-2) > 1) & (late > 0)]
    clue = Clue(
        f"{len(late)} frames are late, and each, or the one before it, follows a pause of at least "
        f"{rounded(float(np.min(idle[begins])))}; dense traffic is as fast as ever",
        case.numbers(found.row[late]),
    )
    return Support(0.5 + 0.44 * share, (clue,))


def stall(case: Case) -> Support | None:
    """One stretch in which frame after frame waits less: all of them waited for the same moment."""
    found = holds(case)
    if found is None:
        return None
    late = np.flatnonzero(found.late)
    if not len(late) or runs(late) > 4:
        return None
    worst = int(np.argmax(found.hold_ns))
    length = float(found.hold_ns[worst])
    if length < 10 * found.threshold_ns:
        return None
    clue = Clue(
        f"once, at {(found.seen_ns[worst] - case.origin_ns) / 1e9:.3f} s, frames waited up to {rounded(length)} "
        "and left together; before and after they did not",
        case.numbers(found.row[late]),
    )
    against = (Clue("an emulator, or a machine, that did not get its processor looks the same"),)
    return Support(0.45, (clue,), against, rounded(length))


def by_length(case: Case) -> Support | None:
    """hold = a + b · bytes, as a log line of every byte over a serial line costs it."""
    exchanges = case.exchanges
    if exchanges is None or not exchanges.stamped or len(case.boots) != 1:
        return None
    answers = exchanges.answers
    at = np.flatnonzero((exchanges.back_ns != LOST_NS) & ~answers.copy)
    if len(at) < 20:
        return None
    # The logging may lie before or behind the send stamp.
    total = exchanges.back_ns[at] - exchanges.back_ns[at].min()
    before = np.where(answers.t_ready_ns[at] > 0, answers.t_send_ns[at] - answers.t_ready_ns[at], 0)
    value = (total + np.maximum(before, 0)).astype(np.float64)
    size = answers.size[at].astype(np.float64)
    if np.ptp(size) < 40 or np.median(value) < case.noise_ns:
        return None
    slope, start = np.polyfit(size, value, 1)
    left = value - (slope * size + start)
    explained = 1 - float(np.var(left) / np.var(value)) if np.var(value) else 0.0
    if slope <= 0 or explained < 0.9:
        return None
    baud = next((one for one in BAUDS if abs(slope - 10e9 / one) < 0.08 * 10e9 / one), None)
    clues = [
        Clue(
            f"the delay grows with the datagram: {slope / 1000:.1f} us per byte explain {explained:.0%} of it",
            case.numbers(answers.row[at], 4),
        )
    ]
    if baud:
        clues.append(Clue(f"that is 10 bits per byte at {baud} baud: a log line of the whole datagram"))
    return Support(0.95 if baud else 0.8, tuple(clues), (), f"{baud} baud" if baud else f"{slope / 1000:.1f} us/B")


def receive_waits(case: Case) -> Support | None:
    """A request is taken in only when another frame arrives: its interrupt was missed."""
    exchanges = case.exchanges
    if exchanges is None or not exchanges.stamped or len(case.boots) != 1:
        return None
    known = np.flatnonzero(exchanges.there_ns != LOST_NS)
    if len(known) < 20:
        return None
    there = (exchanges.there_ns[known] - exchanges.there_ns[known].min()).astype(np.float64)
    late = np.flatnonzero(there > np.median(there) + case.noise_ns)
    if len(late) < 3 or len(late) > 0.6 * len(known):
        return None
    table = case.table
    heading = np.array([key.dst == case.addresses["board"] for key in table.flows] + [False], np.bool_)
    arrivals = table.time_ns[np.flatnonzero(heading[table.flow])]
    taken = exchanges.asks.time_ns[known[late]] + there[late].astype(np.int64)
    next_one = np.searchsorted(arrivals, exchanges.asks.time_ns[known[late]], "right")
    hit = next_one < len(arrivals)
    delta = taken[hit] - arrivals[np.minimum(next_one[hit], len(arrivals) - 1)]
    share = float((np.abs(delta) < _AT_ONCE_NS).sum() / len(late))
    # In dense traffic the next frame is never far: what counts is how much more often than by chance.
    chance = float(np.minimum(np.diff(arrivals), 2 * _AT_ONCE_NS).sum() / max(1, arrivals[-1] - arrivals[0]))
    beyond_chance = (share - chance) / max(1 - chance, 1e-9)
    proven = share - chance > 3 * np.sqrt(chance * (1 - chance) / len(late))
    # What waits in a receive FIFO keeps its order.
    all_taken = exchanges.asks.time_ns[known] + there.astype(np.int64)
    overtaken = all_taken > np.minimum.accumulate(all_taken[::-1])[::-1]
    if share < 0.7 or not proven or overtaken[late].mean() > 0.3:
        return None
    clue = Clue(
        f"{share:.0%} of the late requests are taken in within 0.4 ms of the next frame that arrives; by chance it "
        f"would be {chance:.0%}",
        case.numbers(exchanges.asks.row[known[late]]),
    )
    return Support(0.95 * beyond_chance, (clue,))


def burst_tail_lost(case: Case) -> Support | None:
    """Of every burst the last datagrams are missing, from about the same place on: a pool or ring runs out."""
    exchanges = case.exchanges
    if exchanges is None or not exchanges.stamped or len(case.boots) != 1:
        return None
    missing, _ = case.board_gaps
    lost = exchanges.lost
    answers = exchanges.answers
    if missing.sum() < 4 or not len(lost):
        return None
    owned = np.flatnonzero((answers.owner >= 0) & ~answers.copy)
    came = np.bincount(answers.owner[owned], minlength=len(exchanges.asks))
    whole = came[exchanges.answered]
    short = came[lost]
    short = short[short > 0]
    if len(short) < 3 or (len(whole) and whole.max() > np.median(short) + 1):
        return None
    steady = np.mean(np.abs(short - np.median(short)) <= 1)
    if np.median(short) < 2 or steady < 0.9:
        return None
    clue = Clue(
        f"{len(short)} answers end after {int(np.median(short))} datagrams, always at about the same place",
        case.numbers(exchanges.asks.row[lost]),
    )
    return Support(0.93, (clue,), (), f"after {int(np.median(short))} datagrams")


def stale_payload(case: Case) -> Support | None:
    """Token ids count up within a datagram; blocks that break it come from another one (a cache line not written)."""
    exchanges = case.exchanges
    if exchanges is None or not exchanges.stamped:
        return None
    table, answers = case.table, exchanges.answers
    header = token_v2.HEADER_LENGTH
    at = np.flatnonzero(answers.tokens >= 2)[:20_000]
    bad, steady, aligned = [], 0, 0
    for index in at:
        row = answers.row[index]
        begin = int(table.payload_off[row]) + header
        count = min(int(answers.tokens[index]), max(0, int(table.payload_cap[row]) - header) // 4)
        if count < 2 or begin + 4 * count > len(table.data):
            continue
        ids = np.frombuffer(table.data, "<u4", count, begin)
        breaks = np.flatnonzero(np.diff(ids) != 1) + 1
        if not len(breaks):
            steady += 1
            continue
        bad.append(int(row))
        # Lines of 32 bytes, counted from the frame's first byte or from the payload's.
        offset = (header + 4 * breaks) % 32
        aligned += bool((offset == offset[0]).all())
    if not bad or steady < 4 * len(bad):
        return None
    clues = [Clue(f"{len(bad)} datagrams carry tokens that do not belong to them", case.numbers(np.array(bad)))]
    if aligned > 0.7 * len(bad):
        clues.append(Clue("the wrong parts begin at places of one 32-byte raster, as cache lines do"))
    return Support(0.93, tuple(clues), (), f"{len(bad)} datagrams")


def corrupted(case: Case) -> Support | None:
    rows = case.bad_checksums
    if not len(rows):
        return None
    mine = np.array([key.src == case.addresses.get("board") for key in case.table.flows] + [False], np.bool_)
    of_board = int(np.count_nonzero(mine[case.table.flow[rows]]))
    clue = Clue(
        f"{len(rows)} token headers have a wrong checksum, {of_board} of them from the board", case.numbers(rows)
    )
    return Support(0.88, (clue,))


def _rule(name: str, title: str, picture: str, experiment: str, examine):  # type: ignore[no-untyped-def]
    return Rule(name, "board", "board", title, picture, experiment, examine)


RULES = (
    _rule("tx-kick-lost", "A frame waits in the board until the next one is sent", "leaves with the next frame",
          "write the transmit poll register after every descriptor, and read it back", kick_lost),
    _rule("tx-batched", "The board holds datagrams back and sends them in groups", "leaves in groups",
          "flush after every token; compare frames per second and time to the first token", batches),
    _rule("tx-wait-quantised", "Some frames wait in the board for a fixed time", "some late by one time from the board",
          "look for a semaphore or select with this time-out in the transmit path; change it, and see whether the wait "
          "follows", quantised),
    _rule("board-periodic-stall", "Something stalls the board at a fixed period", "late at a fixed period",
          "stop periodic work (PHY polling over MDIO, timers) one by one", periodic),
    _rule("board-stall", "The board stood still once", "one stall",
          "run again on an idle machine, or with more repeats: does it come back at the same place?", stall),
    _rule("wakes-slowly", "The first frame after a pause is late", "late after a pause",
          "ethtool --set-eee IFACE eee off on both ends, power saving off; or send a frame every few milliseconds",
          after_idle),
    _rule("tx-cost-per-byte", "The board spends time on every byte that it sends", "delay by length from the board",
          "switch the firmware's logging off, then its checksums; the slope tells which one it was", by_length),
    _rule("rx-interrupt-missed", "Requests wait in the board until another frame arrives",
          "taken in with the next frame",
          "drain the receive FIFO again after acknowledging the interrupt", receive_waits),
    _rule("tx-pool-exhausted", "A pool or ring of the board runs out within a burst", "tails of bursts missing",
          "raise MEMP_NUM_PBUF or the transmit ring and see whether the place moves", burst_tail_lost),
    _rule("stale-payload", "Datagrams of the board carry pieces of older ones", "corrupt datagrams",
          "clean the data cache over every buffer before it is given to the DMA (32-byte alignment)", stale_payload),
    _rule("corrupt-datagrams", "Datagrams arrive damaged", "corrupt datagrams",
          "call lwIP from one context only (LWIP_ASSERT_CORE_LOCKED), then look for who else writes the buffer",
          corrupted),
)  # fmt: skip
