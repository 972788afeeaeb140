"""One check on one bench over time: pure functions from its results to what a reader wants to know about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

from rig.history.drift import WINDOW, Drift, find_drift
from rig.history.rows import State

FLAKY_WINDOW: Final = 20
FLAKY_FLIPS: Final = 3
"""Changes between green and red with the same firmware and plan, of the last FLAKY_WINDOW: more than a fault that came
and was repaired makes."""
FLAKY_STREAK: Final = 5
"""So many reds in a row are no flake any more."""


_RANK: Final = ("red", "green", "open", "skip")


@dataclass(frozen=True, order=True)
class Key:
    """What a series is of."""

    plan: str
    point: str
    check: str
    bench: str

    @property
    def name(self) -> str:
        """`plan[point]::check`, as pytest ids have it."""
        return f"{self.plan}{f'[{self.point}]' if self.point else ''}::{self.check}"


class Result(NamedTuple):
    """One check of one run, as the index holds it. value, bound: see `rig.history.rows.ResultRow`."""

    started_ms: int
    set_id: str
    folder: str
    attempt: int
    state: State
    verdict: str
    n: int
    figure: str | None
    value: int | None
    bound: int | None
    falling: bool
    reason: str
    error: str
    firmware: str
    build: str
    commit: str
    plan_hash: str
    dirty: bool = False


class Settled(NamedTuple):
    """All attempts and repetitions of one set, as one: a red one is never outvoted, an open one only by a settled one.

    attempts: in order. result: the one that settled it.
    """

    attempts: tuple[Result, ...]
    result: Result

    @property
    def state(self) -> State:
        return self.result.state

    @property
    def mixed(self) -> bool:
        """Both green and red in one set."""
        return {"green", "red"} <= {one.state for one in self.attempts}


@dataclass(frozen=True)
class Standing:
    """Where a series stands with its last settled result.

    since: the first red of the streak it is in, None unless red. last_good: the green before it. changed: what differs
    between the two, `firmware build abc… → def…`. flips of pairs: how often it changed colour with nothing else
    changed. before: the state before this set, None at the first.
    """

    key: Key
    now: Settled
    before: State | None
    since: Settled | None
    last_good: Settled | None
    changed: tuple[str, ...]
    streak: int
    flips: int
    pairs: int
    flaky: bool
    drift: Drift | None
    drift_since: Settled | None
    settled: tuple[Settled, ...]

    @property
    def flaky_rate(self) -> float:
        return self.flips / self.pairs if self.pairs else 0.0


def settle(results: Iterable[Result]) -> list[Settled]:
    """Results in order of time, one entry for each set in which the check was looked at."""
    sets: dict[str, list[Result]] = {}
    for one in sorted(results, key=_started):
        sets.setdefault(one.set_id, []).append(one)
    return [Settled(tuple(attempts), _best(attempts)) for attempts in sets.values()]


def _started(result: Result) -> int:
    return result.started_ms


def _best(attempts: Sequence[Result]) -> Result:
    if len(attempts) == 1:
        return attempts[0]
    state = min((one.state for one in attempts), key=_RANK.index)
    return [one for one in attempts if one.state == state][-1]


def standing(key: Key, settled: Sequence[Settled]) -> Standing:
    """`settled` must not be empty. Open and skipped sets neither end nor make a streak."""
    coloured = [one for one in settled if one.state in ("green", "red")]
    streak = 0
    for one in reversed(coloured):
        if one.state != "red":
            break
        streak += 1
    since = coloured[-streak] if streak else None
    last_good = coloured[-streak - 1] if streak and streak < len(coloured) else None
    flips, pairs = _flips(coloured[-FLAKY_WINDOW:])
    drift, drift_since = (None, None) if streak else _drift(coloured)
    earlier = [one for one in coloured if one is not settled[-1]]
    return Standing(
        key=key,
        now=settled[-1],
        before=earlier[-1].state if earlier else None,
        since=since,
        last_good=last_good,
        changed=changes(last_good.result, since.result) if since and last_good else (),
        streak=streak,
        flips=flips,
        pairs=pairs,
        flaky=flips >= FLAKY_FLIPS and streak < FLAKY_STREAK,
        drift=drift,
        drift_since=drift_since,
        settled=tuple(settled),
    )


def changes(before: Result, after: Result) -> tuple[str, ...]:
    """What a change of colour may follow from, most likely first."""
    found = []
    if before.firmware != after.firmware:
        found.append(f"firmware {_short(before.build or before.firmware)} → {_short(after.build or after.firmware)}")
    if before.plan_hash != after.plan_hash:
        found.append("the plan itself")
    if before.commit != after.commit or before.dirty or after.dirty:
        found.append(f"commit {_tree(before)} → {_tree(after)}")
    return tuple(found)


def _tree(result: Result) -> str:
    """The controller's source; what was not committed may be anything, so two such trees are never the same."""
    return _short(result.commit) + (" with uncommitted changes" if result.dirty else "")


def _short(identity: str) -> str:
    return identity[:12] or "unknown"


def _flips(coloured: Sequence[Settled]) -> tuple[int, int]:
    """(changes of colour, pairs) of neighbours that ran the same firmware by the same plan."""
    same = [
        (a, b)
        for a, b in pairwise(coloured)
        if (a.result.firmware, a.result.plan_hash) == (b.result.firmware, b.result.plan_hash)
    ]
    return sum(a.state != b.state or b.mixed for a, b in same), len(same)


def _drift(coloured: Sequence[Settled]) -> tuple[Drift | None, Settled | None]:
    last = coloured[-1].result if coloured else None
    if last is None or last.bound is None:
        return None, None
    # Another figure, or a loss that has no value, is no neighbour of the rest.
    usable = [one for one in coloured[-WINDOW:] if one.result.figure == last.figure and one.result.value is not None]
    values = [one.result.value for one in usable if one.result.value is not None]
    drift = find_drift(values, last.bound, falling=last.falling)
    return drift, usable[drift.begun] if drift else None


@dataclass(frozen=True)
class Bias:
    """A bench against the median of the others on the same occasions: ratio - 1, number of occasions, two-sided sign
    test p."""

    bench: str
    offset: float
    sets: int
    p: float


def biases(by_bench: dict[str, Sequence[Settled]], together: Callable[[Settled], int]) -> list[Bias]:
    """Bias of each bench, over the occasions (by `together`, such as the day) on which at least two measured.

    Only the same figure is compared: by its bench's profile a check may be followed by its p50 here and its p99 there.
    """
    values: dict[tuple[int, str | None], dict[str, int]] = {}
    for bench, settled in by_bench.items():
        for one in settled:
            if one.result.value is not None and one.state in ("green", "red"):
                values.setdefault((together(one), one.result.figure), {})[bench] = one.result.value
    occasions = [found for found in values.values() if len(found) > 1]
    result = []
    for bench in sorted(by_bench):
        ratios = []
        for found in occasions:
            others = [value for name, value in found.items() if name != bench]
            if bench in found and median(others) > 0:
                ratios.append(found[bench] / median(others))
        if ratios:
            above, below = sum(ratio > 1 for ratio in ratios), sum(ratio < 1 for ratio in ratios)
            result.append(Bias(bench, median(ratios) - 1, len(ratios), _sign_test(above, below)))
    return result


def _sign_test(above: int, below: int) -> float:
    from math import comb

    n, k = above + below, min(above, below)
    return min(1.0, 2 * sum(comb(n, i) for i in range(k + 1)) / 2**n) if n else 1.0
