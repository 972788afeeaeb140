"""A month of nights on three benches, with what tends to happen: the truth that history and morning pages must tell.

every night   four plans on lab-1, lab-2, lab-3; figures scatter by some per cent, lab-2 is 8 % slower than the rest
from night 2  lab-3 gets slower, 4 % of its first value a night: warm, or its NIC has been set otherwise
night 5       another firmware, nothing changes
always        jitter-under-load::in-order on lab-2 fails on about a third of the nights, whatever runs
night 12      another firmware: zero-copy-latency::answer-time is over its limit on all benches, until night 20
night 13      the rig PC is off: nothing at all
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from written_runs import Conditions, counted, timed, write_run

from rig.nightly.journal import Journal, Order

FIRST = datetime(2026, 1, 1, 1, 0, tzinfo=UTC)
NIGHTS = 30
DEAD = 13
BENCHES = ("lab-1", "lab-2", "lab-3")
PLANS = ("copy-latency", "jitter-under-load", "push-latency", "zero-copy-latency")
FLAKES = frozenset({2, 3, 6, 8, 9, 12, 15, 18, 19, 22, 25, 26, 28})
REGRESSION, REPAIR = 12, 20


def set_of(night: int) -> str:
    return f"{begin(night):%Y%m%dT%H%M%SZ}-{night:06x}"


def begin(night: int) -> datetime:
    return FIRST + timedelta(days=night - 1)


def build_of(night: int) -> str:
    """Which firmware ran."""
    number = sum(night >= change for change in (1, 5, REGRESSION, REPAIR))
    return f"{number}bad{number}cafe".ljust(40, "0")


def write_month(records: Path, nights: int = NIGHTS) -> None:
    """All records and journals of the month."""
    scatter = random.Random(20260101)
    for night in range(1, nights + 1):
        if night == DEAD:
            continue
        at = begin(night)
        for bench in BENCHES:
            for plan in PLANS:
                at += timedelta(minutes=2)
                level = 1_500_000 * scatter.gauss(1, 0.02) * (1.08 if bench == "lab-2" else 1)
                if bench == "lab-3":
                    level += 1_500_000 * 0.04 * max(0, night - 2)
                if plan == "zero-copy-latency" and REGRESSION <= night < REPAIR:
                    level *= 4
                flake = bench == "lab-2" and plan == "jitter-under-load" and night in FLAKES
                checks = [
                    timed("answer-time", int(level)),
                    counted("in-order", 3 if flake else 0),
                    counted("no-loss", 0),
                ]
                write_run(records, set_of(night), at, plan, checks, Conditions(bench, build_of(night)))
        journal = Journal(records / set_of(night))
        journal.begin(Order((), (), 1, 3600.0, 600.0, None, begin(night).timestamp()), [])
        for bench in BENCHES:
            journal.health(bench, [])
        journal.end()
        journal.close()
