"""The measured window of a capture: what lies between the sentinels that travelled the measured path.

It begins with the first frame of the last start sentinel and ends with the first end sentinel after it. A capture
without sentinels is measured as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rig.protocol import token_v2
from rig.timing.table import FrameTable
from rig.timing.tokens import Tokens

_I64 = np.iinfo(np.int64)


@dataclass(frozen=True)
class Window:
    """[start_ns, end_ns) of the capture clock, open-ended where a sentinel was not seen.

    *_seen: the runner's frame or the board's answer is in the capture; *_answered: the board's answer is.
    board_counters: what the board counted between its two answers (names as in `token_v2.SENTINEL_COUNTERS`);
    empty when an answer is missing or the board restarted in between. board_span: these two answers, None where there
    are no counters. runner_flows, board_flows: flow keys of the runner's sentinels and of the board's answers to them,
    by which the datagrams of these two are told from those of others at the same addresses.
    """

    start_ns: int = int(_I64.min)
    end_ns: int = int(_I64.max)
    start_seen: bool = False
    start_answered: bool = False
    end_seen: bool = False
    end_answered: bool = False
    board_counters: Mapping[str, int] = field(default_factory=dict)
    board_span: BoardSpan | None = None
    runner_flows: tuple[int, ...] = ()
    board_flows: tuple[int, ...] = ()

    def contains(self, time_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
        return (time_ns >= self.start_ns) & (time_ns < self.end_ns)


class BoardSpan(NamedTuple):
    """From the board's answer to the start sentinel to the one to the end sentinel: its boot, the sequence numbers of
    both and the capture times. What it numbered in between is what its counters counted in between."""

    boot_id: int
    numbers: tuple[int, int]
    time_ns: tuple[int, int]


def find_window(table: FrameTable, tokens: Tokens) -> Window:
    """tokens: all sound token-v2 datagrams of the table."""
    sentinel = tokens.take(np.flatnonzero(tokens.type == token_v2.SENTINEL))
    kind = 0xFFFF_FFFF - sentinel.request_id.astype(np.int64)
    time = table.time_ns[sentinel.row]
    # Only the board's answer carries counters.
    answer = table.payload_len[sentinel.row] > token_v2.HEADER_LENGTH

    starts = np.flatnonzero(kind == token_v2.SENTINEL_START)
    start_ns, start_answer = int(_I64.min), -1
    if len(starts):
        begin = _last_send(sentinel, starts, answer[starts])
        start_ns = int(time[begin])
        answers = starts[answer[starts] & (time[starts] >= start_ns)]
        if len(answers):
            start_answer = int(answers[0])

    ends = np.flatnonzero((kind == token_v2.SENTINEL_END) & (time >= start_ns))
    end_answers = ends[answer[ends]]
    counters: dict[str, int] = {}
    span = None
    if start_answer >= 0 and len(end_answers) and sentinel.boot_id[start_answer] == sentinel.boot_id[end_answers[0]]:
        before = _counters(table, int(sentinel.row[start_answer]))
        after = _counters(table, int(sentinel.row[end_answers[0]]))
        if before and after:
            counters = {name: (after[name] - before[name]) & 0xFFFF_FFFF for name in before}
            first, last = start_answer, int(end_answers[0])
            span = BoardSpan(
                int(sentinel.boot_id[first]),
                (int(sentinel.sequence[first]), int(sentinel.sequence[last])),
                (int(time[first]), int(time[last])),
            )
    marks = ((kind == token_v2.SENTINEL_START) | (kind == token_v2.SENTINEL_END)) & (time >= start_ns)
    flow = table.flow[sentinel.row]
    return Window(
        start_ns=start_ns,
        end_ns=int(time[ends[0]]) if len(ends) else int(_I64.max),
        start_seen=len(starts) > 0,
        start_answered=start_answer >= 0,
        end_seen=len(ends) > 0,
        end_answered=len(end_answers) > 0,
        board_counters=counters,
        board_span=span,
        runner_flows=tuple(np.unique(flow[marks & ~answer]).tolist()),
        board_flows=tuple(np.unique(flow[marks & answer]).tolist()),
    )


def _last_send(sentinel: Tokens, starts: NDArray[np.int64], answer: NDArray[np.bool_]) -> int:
    """The runner's last start sentinel at its first appearance; a copy made by the network does not move the window."""
    sent = starts[~answer]
    if not len(sent):
        return int(starts[-1])
    key = sentinel.boot_id[sent].astype(np.uint64) << np.uint64(32) | sentinel.sequence[sent]
    return int(sent[np.unique(key, return_index=True)[1].max()])


def _counters(table: FrameTable, row: int) -> dict[str, int]:
    begin = int(table.payload_off[row]) + token_v2.HEADER_LENGTH
    end = int(table.payload_off[row]) + int(min(table.payload_len[row], table.payload_cap[row]))
    payload = bytes(table.data[begin:end])
    return token_v2.decode_counters(payload) if len(payload) == 4 * len(token_v2.SENTINEL_COUNTERS) else {}
