"""Packets beyond a limit, all of them up to a cap, and what each one is in words.

The verdict shows the worst few; whoever looks for a pattern needs the rest. A packet counts as beyond exactly when the
limit's own rule says that it surely is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rig.plan.bounds import AtMost, CountBound, DurationBound, ShareBound
from rig.plan.units import format_rate
from rig.timing.limits import LimitResult, worst_samples
from rig.timing.metrics.measurement import INFINITE_NS, Measurement
from rig.timing.verdict import CheckResult, Verdict, Violation
from rig.triage.case import Case, samples_of
from rig.triage.headline import figure

MOST: Final = 100
"""Packets of one check that are listed, filtered for and annotated."""
EVENTS: Final = frozenset({"loss", "duplicates", "reordering"})
"""Metrics that count events: a packet of theirs is one, it has no value and no margin."""


@dataclass(frozen=True)
class Broken:
    """shown: worst first, at most `MOST`. total: how many there are."""

    shown: tuple[Violation, ...] = ()
    total: int = 0

    @property
    def frames(self) -> tuple[int, ...]:
        """Numbers of the shown packets and of those that they are measured against, in order."""
        return tuple(sorted({n for each in self.shown for n in (each.frame, each.reference) if n}))

    @property
    def display_filter(self) -> str:
        return f"frame.number in {{{','.join(map(str, self.frames))}}}" if self.frames else ""

    @property
    def cut(self) -> str:
        """`100 of 143 shown`, empty when all are."""
        return f"{len(self.shown)} of {self.total} shown" if self.total > len(self.shown) else ""


@lru_cache(maxsize=2)
def broken_of(case: Case) -> dict[str, Broken]:
    """Check → its packets beyond limits that do not hold; checks without any are left out."""
    samples = samples_of(case)
    found = {}
    for check in case.result.checks if case.result is not None else ():
        packets = _of_check(case, check, samples.get(check.check))
        if packets.shown:
            found[check.check] = packets
    return found


def _of_check(case: Case, check: CheckResult, measured: Measurement | None) -> Broken:
    judged = check.violations
    if measured is None or not judged:
        return Broken(judged, max(len(judged), *(limit.beyond for limit in check.limits), 0))
    known: dict[tuple[int, int, int], Violation] = {(each.frame, each.reference, each.at_ns): each for each in judged}
    total = len(known)
    for limit in check.limits:
        mask = _beyond(case, limit, measured) if limit.verdict != Verdict.PASS.value else None
        if mask is None:
            continue
        total = max(total, int(np.count_nonzero(mask)))
        for index in worst_samples(measured.value_ns, mask, limit.is_max, MOST):
            each = _violation(case, limit, measured, index)
            known.setdefault((each.frame, each.reference, each.at_ns), each)
    return Broken(tuple(known.values())[:MOST], max(total, len(known)))


def _beyond(case: Case, limit: LimitResult, measured: Measurement) -> NDArray[np.bool_] | None:
    """The mask of samples surely beyond a limit; None where the verdict's own list has to do."""
    bound, e_ns = limit.spec.bound, 0 if measured.far_clock else case.e_ns + measured.error_ns
    counted = isinstance(bound, CountBound | ShareBound) and limit.spec.key in ("count", "ratio")
    if measured.kind == "events" and counted:
        return np.ones(len(measured.value_ns), np.bool_)
    plain = isinstance(bound, DurationBound) or (isinstance(bound, AtMost) and bound.in_any is None)
    if measured.kind != "durations" or not plain or limit.limit_ns is None:
        return None
    if limit.is_max:
        return np.asarray(measured.floor_ns > limit.limit_ns + e_ns)
    return np.asarray(measured.value_ns < limit.limit_ns - e_ns)


def _violation(case: Case, limit: LimitResult, measured: Measurement, index: int) -> Violation:
    value, bound = int(measured.value_ns[index]), limit.limit_ns
    margin = None if bound is None or value == INFINITE_NS else bound - value if limit.is_max else value - bound
    return Violation(
        rule=limit.rule,
        place=limit.spec.place,
        frame=int(measured.number[index]),
        reference=int(measured.reference[index]),
        at_ns=int(measured.time_ns[index]) - case.origin_ns,
        value_ns=value,
        limit_ns=bound,
        margin_ns=margin,
    )


def said(check: CheckResult, each: Violation) -> str:
    """What a packet is, in words: `copy of frame 623, 64.5 us later`, `never answered`."""
    if each.value_ns == INFINITE_NS:
        return "never came" if check.metric in ("gap", "loss") and "requests" not in check.of else "never answered"
    if each.unit != "ns":
        return format_rate(each.value_ns) if each.unit == "bit/s" else f"{each.value_ns} {each.unit}"
    value = figure(each.value_ns)
    if not each.reference:
        return value
    return _WORDS.get(check.metric, _OTHERS)[0].format(reference=each.reference, value=value)


def said_of_reference(check: CheckResult, each: Violation) -> str:
    """What the frame is that a packet is measured against."""
    return _WORDS.get(check.metric, _OTHERS)[1].format(frame=each.frame)


_WORDS: Final = {
    "duplicates": ("copy of frame {reference}, {value} later", "first copy; frame {frame} repeats it"),
    "reordering": (
        "should have come before frame {reference}, came {value} after it",
        "came before frame {frame}, which was sent earlier",
    ),
    "response_time": ("answers frame {reference} after {value}", "request of frame {frame}"),
    "gap": ("comes {value} after frame {reference}", "frame before the gap to frame {frame}"),
}
"""Metric → (what its packet is, what the frame is that it is measured against)."""
_OTHERS: Final = ("{value}, measured against frame {reference}", "frame {frame} is measured against this one")


def worst_packets(case: Case) -> Iterator[tuple[CheckResult, Violation]]:
    """Packets of the failed checks, check by check, worst first."""
    for check in case.result.checks if case.result is not None else ():
        if check.verdict is Verdict.FAIL:
            yield from ((check, each) for each in broken_of(case).get(check.check, Broken()).shown)
