"""The way between capture point and board: delay, jitter, rate, loss and reordering, each with its direction.

Directions come from the board's stamps (see `rig.triage.exchanges`): what changed against the exchanges before the
load, towards the board and back. A driver of the board that holds frames back gives the same picture as a link that
delays what comes from it; such causes share a wire picture, and the experiment tells them apart.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rig.triage.diagnosis import Clue, Rule, Support
from rig.triage.rules.capture_point import UNKNOWN, nearer
from rig.triage.rules.outage import outages
from rig.triage.rules.shifts import Way, clock_stepped, kind_of, rate_of, rounded, turnaround

if TYPE_CHECKING:
    from rig.triage.case import Case

_WORDS = {"there": "to the board", "back": "from the board"}
_NAMES = {"there": "to-board", "back": "from-board"}


def _delay_both(case: Case) -> Support | None:
    there, there_shift = kind_of(case, "there")
    back, back_shift = kind_of(case, "back")
    if there == "delay" and back == "delay" and there_shift and back_shift:
        clue = Clue(
            f"over the exchanges before the load, the way to the board takes {rounded(there_shift.at(50))} longer and "
            f"the way back {rounded(back_shift.at(50))}; the board's own share stays at {turnaround(case)}",
            case.numbers(there_shift.row, 4),
        )
        both = there_shift.at(90) + back_shift.at(90)
        usual = rounded(there_shift.at(50) + back_shift.at(50))
        return Support(0.93, (clue,), (), usual, round(both), nearer(case))
    exchanges = case.exchanges
    if exchanges is None or not exchanges.stamped or not len(exchanges.answered) or len(case.boots) != 1:
        return None
    if exchanges.baseline.n or clock_stepped(case):
        return None
    path = float(np.percentile(exchanges.path_ns, 10))
    if path < 3 * case.noise_ns:
        return None
    clue = Clue(
        f"{rounded(path)} of every response time are spent outside of the board; no exchange before the load tells in "
        "which direction"
    )
    return Support(0.6, (clue,), (), rounded(path), None, nearer(case))


def _delay(case: Case, way: Way) -> Support | None:
    kind, found = kind_of(case, way)
    other, _ = kind_of(case, "back" if way == "there" else "there")
    if kind != "delay" or other == "delay" or found is None or not found.based:
        return None
    spread = found.at(90) - found.at(10)
    clues = (
        Clue(
            f"frames {_WORDS[way]} take {rounded(found.at(50))} longer than before the load, all of them "
            f"(p10 {rounded(found.at(10))}, p90 {rounded(found.at(90))})",
            case.numbers(found.row, 4),
        ),
        Clue(f"the other direction and the board's own share ({turnaround(case)}) are as before"),
    )
    against = (Clue("a driver that holds every frame for as long looks the same"),) if way == "back" else ()
    score = 0.92 if spread < found.at(50) / 2 else 0.8
    return Support(score, clues, against, rounded(found.at(50)), round(found.at(90)), nearer(case))


def _jitter(case: Case, way: Way) -> Support | None:
    kind, found = kind_of(case, way)
    if kind != "jitter" or found is None:
        return None
    # A few frames may be later still, for another reason: of evenly spread times p90 shows how far they go.
    widest = min(found.at(99), found.at(90) / 0.85)
    tie = float(np.corrcoef(found.value_ns, found.size)[0, 1]) if np.ptp(found.size) else 0.0
    clue = Clue(
        f"frames {_WORDS[way]} take evenly spread times up to {rounded(widest)} longer "
        f"(p10 {rounded(found.at(10))}, p50 {rounded(found.at(50))}, p90 {rounded(found.at(90))})",
        case.numbers(found.row[_largest(found.value_ns, widest)], 4),
    )
    against = (Clue("a loop in the firmware that polls at this period looks the same"),)
    score = 0.9 if abs(tie) < 0.5 else 0.6
    return Support(score, (clue,), against, f"up to {rounded(widest)}", round(widest), nearer(case))


def _largest(value_ns: NDArray[np.float64], most: float) -> NDArray[np.int64]:
    """Indices from the largest value on that is no outlier."""
    order = np.argsort(value_ns)[::-1]
    index: NDArray[np.int64] = order[value_ns[order] <= most]
    return index


def _rate(case: Case, way: Way) -> Support | None:
    kind, found = kind_of(case, way)
    if kind != "rate" or found is None:
        return None
    if way == "back":
        rate, frames = rate_of(case)
        text = "datagrams of one answer, which the board hands over at once, leave at one rate"
    else:
        median = float(np.median(found.size))
        rate, frames = median * 8e9 / found.at(20), case.numbers(found.row, 4)
        text = "the delay of requests and of the shorter sentinels is in proportion to their length"
    return Support(
        0.93,
        (Clue(f"{text}: {rate / 1000:,.0f} kbit/s", frames),),
        (Clue("something in the board that costs time per byte, such as a log line, looks the same"),),
        f"about {rate / 1000:,.0f} kbit/s",
    )


def _loss_split(case: Case) -> tuple[int, int, NDArray[np.int64], NDArray[np.int64]] | None:
    """(lost on the way to the board, lost on the way back, lost asks, rows after gaps), outages set aside."""
    exchanges = case.exchanges
    if exchanges is None or not exchanges.stamped or (exchanges.push and not len(exchanges.answers)):
        return None
    missing, rows = case.board_gaps
    from_board = int(missing.sum())
    time_ns = exchanges.asks.time_ns[exchanges.lost] - case.origin_ns
    gaps = sorted(outages(case), key=lambda gap: gap.start_ns)
    begin = np.array([gap.start_ns for gap in gaps] or [np.iinfo(np.int64).max])
    end = np.array([gap.start_ns + gap.length_ns for gap in gaps] or [0])
    # One silence ends where the next may begin: they do not overlap.
    last = np.searchsorted(begin, time_ns, "right") - 1
    silent = (last >= 0) & (time_ns <= end[last])
    lost = exchanges.lost[~silent]
    # One answer of several datagrams may lose some of them and be lost once.
    to_board = max(0, len(lost) - from_board)
    if exchanges.window.board_counters:
        to_board = max(0, len(exchanges.asks) - exchanges.window.board_counters["rx_requests"])
    return to_board, from_board, lost, rows


def _loss(case: Case, way: Way) -> Support | None:
    split = _loss_split(case)
    exchanges = case.exchanges
    if split is None or exchanges is None:
        return None
    to_board, from_board, lost, rows = split
    count = to_board if way == "there" else from_board
    if not count or (way == "there" and not len(lost)):
        return None
    total = len(exchanges.asks) if way == "there" else len(exchanges.answers) + from_board
    clues, against = [], []
    counters = exchanges.window.board_counters
    if way == "there":
        clues.append(
            Clue(
                f"{len(lost)} requests passed the capture and were not answered, and the board's sequence has no gap "
                "for them: it never saw them",
                case.numbers(exchanges.asks.row[lost]),
            )
        )
        if counters:
            clues.append(Clue(f"the board received {counters['rx_requests']} of {len(exchanges.asks)} requests"))
        if from_board:
            against.append(Clue(f"{from_board} datagrams of the board are missing too"))
    else:
        clues.append(
            Clue(
                f"{from_board} sequence numbers of the board never came: it sent them, or meant to",
                case.numbers(rows),
            )
        )
        if counters:
            said = counters["pushes"] if exchanges.push else counters["tx_answers"]
            seen = int(np.count_nonzero(~exchanges.answers.copy))
            clues.append(Clue(f"the board counted {said} datagrams sent, the capture holds {seen}"))
        against.append(Clue("a driver that says OK and sends nothing looks the same"))
    score = 0.9
    if (way == "back" and to_board > from_board) or (way == "there" and from_board > to_board):
        score = 0.5
    if len(case.boots) > 1:
        score, against = 0.3, [*against, Clue("the board restarted, which explains losses by itself")]
    if len(case.bad_checksums) >= count / 2:
        score = min(score, 0.4)
        against.append(Clue(f"{len(case.bad_checksums)} datagrams came damaged, which accounts for them"))
    missing_asks = int(case.jetson_gaps[0].sum())
    if missing_asks and np.count_nonzero(exchanges.answers.owner < 0):
        score = min(score, 0.4)
        against.append(Clue("the capture itself lost frames"))
    if (
        way == "back"
        and case.report is not None
        and case.report.count("answers_unique") > int(np.count_nonzero(~exchanges.answers.copy))
    ):
        score = min(score, 0.3)
        against.append(Clue("the Jetson received answers that the capture lacks"))
    return Support(score, tuple(clues), tuple(against), f"{count} of {total}")


def _reordering_back(case: Case) -> Support | None:
    exchanges = case.exchanges
    if exchanges is None or not exchanges.stamped or len(case.boots) != 1:
        return None
    answers = exchanges.answers
    original = np.flatnonzero(~answers.copy)
    sequence = answers.sequence[original]
    late = np.flatnonzero(sequence < np.maximum.accumulate(sequence)) if len(sequence) else np.empty(0, np.int64)
    if not len(late):
        return None
    sent = answers.t_send_ns[original]
    mixed = np.count_nonzero(np.diff(sent[np.argsort(sequence)]) < 0)
    clue = Clue(
        f"{len(late)} datagrams of the board come after ones with higher sequence numbers, although it sent them in "
        "order" + (f" (but for {mixed})" if mixed else ""),
        case.numbers(answers.row[original[late]]),
    )
    return Support(0.91, (clue,), (), f"{len(late)} of {len(original)}")


def _reordering_there(case: Case) -> Support | None:
    exchanges = case.exchanges
    if exchanges is None or not exchanges.stamped or len(case.boots) != 1:
        return None
    some = np.flatnonzero(exchanges.first >= 0)
    t_rx = exchanges.answers.t_rx_ns[exchanges.first[some]]
    if not len(t_rx):
        return None
    late = some[np.flatnonzero(t_rx < np.maximum.accumulate(t_rx))]
    if not len(late):
        return None
    clue = Clue(
        f"the board received {len(late)} requests in another order than they passed the capture",
        case.numbers(exchanges.asks.row[late]),
    )
    return Support(0.91, (clue,), (), f"{len(late)} of {len(some)}")


def _some_late(case: Case, way: Way) -> Support | None:
    kind, found = kind_of(case, way)
    if kind != "some" or found is None:
        return None
    middle = found.at(50)
    late = found.value_ns > max(middle + 2 * case.noise_ns, 2 * case.noise_ns)
    worst = found.value_ns[late]
    low, high = np.percentile(worst, [10, 90])
    steady = high - low < 0.1 * low and low > 5 * case.noise_ns and late.sum() >= 5
    if not steady:
        return None
    clue = Clue(
        f"{late.sum()} of {len(found.value_ns)} frames {_WORDS[way]} are late by nearly the same time, "
        f"{rounded(float(np.median(worst)))} (p10 {rounded(low)}, p90 {rounded(high)}); the others are as before",
        case.numbers(found.row[late]),
    )
    by = float(np.median(worst))
    return Support(0.75, (clue,), (), rounded(by), round(by), nearer(case))


def _rules(way: Way) -> tuple[Rule, ...]:
    to, name = _WORDS[way], _NAMES[way]
    reorder = _reordering_there if way == "there" else _reordering_back
    loss = "requests vanish before the board" if way == "there" else "gap in the board's sequence"
    return (
        Rule(f"path-delay-{name}", "ARP and link", "link", f"The way {to} delays frames", f"constant delay {to}",
             UNKNOWN, partial(_delay, way=way)),
        Rule(f"path-jitter-{name}", "ARP and link", "link", f"The way {to} delays frames by varying times",
             f"spread delay {to}", UNKNOWN, partial(_jitter, way=way)),
        Rule(f"path-rate-{name}", "ARP and link", "link", f"The way {to} is slow: frames wait for its rate",
             f"delay by length {to}",
             "check speed and duplex on both ends (ethtool IFACE); run once with short datagrams",
             partial(_rate, way=way)),
        Rule(f"path-loss-{name}", "ARP and link", "link", f"Frames {to} are lost", loss,
             "compare mac_rx_frames and mac_tx_frames of the board with the capture, then exchange the cable",
             partial(_loss, way=way)),
        Rule(f"path-reordering-{name}", "ARP and link", "link", f"Frames {to} are reordered", f"reordering {to}",
             "look for two ways in parallel (bonding, a second switch) or a relay that holds frames", reorder),
        Rule(f"path-some-late-{name}", "ARP and link", "link", f"Some frames {to} are late by the same time",
             f"some late by one time {to}", UNKNOWN, partial(_some_late, way=way)),
    )  # fmt: skip


RULES = (
    Rule(
        "path-delay",
        "ARP and link",
        "link",
        "The link delays frames in both directions",
        "constant delay both ways",
        UNKNOWN,
        _delay_both,
    ),
    *_rules("there"),
    *_rules("back"),
)
