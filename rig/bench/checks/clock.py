"""The wall clock that stamps the capture: set, synchronised, and not being stepped (adjtimex(2))."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from typing import Final

from rig.bench.checks import Finding, Site, fail, ok, warn

_BUILT: Final = 1_767_225_600
"""2026-01-01: a wall clock before this has never been set."""


class _Timex(ctypes.Structure):
    """struct timex (adjtimex(2)), 64-bit layout."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


_STA_UNSYNC: Final = 0x0040
_STA_CLOCKERR: Final = 0x1000


@dataclass(frozen=True)
class ClockFacts:
    """unix_s: wall clock. status, max_error_us: of adjtimex(2), None where it is refused.

    moved_ns: by how much CLOCK_REALTIME moved against CLOCK_MONOTONIC in watched_ns.
    """

    unix_s: int
    status: int | None
    max_error_us: int
    moved_ns: int
    watched_ns: int


def clock(site: Site) -> Finding:
    from rig.capture.clock import offset_ns

    timex = _Timex()
    refused = ctypes.CDLL(None).adjtimex(ctypes.byref(timex)) < 0
    offset, began = site.began
    now = offset_ns()[0]
    facts = ClockFacts(
        int(time.time()),
        None if refused else timex.status,
        timex.maxerror,
        now - offset if began else 0,
        time.monotonic_ns() - began if began else 0,
    )
    return judge_clock(facts, site.file.uncertainty.declared)


def judge_clock(facts: ClockFacts, e_ns: int) -> Finding:
    if facts.unix_s < _BUILT:
        return fail(
            f"the wall clock says {time.strftime('%Y-%m-%d', time.gmtime(facts.unix_s))}: it was never set",
            "sudo timedatectl set-ntp true, or install chrony",
        )
    # Slewing is at most 500 ppm (adjtimex(2)); what goes beyond it is a step.
    if abs(facts.moved_ns) > e_ns + facts.watched_ns // 2000:
        return warn(
            f"CLOCK_REALTIME stepped by {facts.moved_ns / 1e6:.3f} ms meanwhile; it would void a run",
            "let the clock settle (`chronyc tracking` or `timedatectl timesync-status`), and run one time service only",
        )
    watched = f"no step in {facts.watched_ns / 1e9:.1f} s"
    if facts.status is None:
        return warn(f"adjtimex is refused; {watched}", "look at `timedatectl` yourself")
    if facts.status & (_STA_UNSYNC | _STA_CLOCKERR):
        return warn(
            f"not synchronised (latencies do not mind, dates of records do); {watched}",
            "sudo timedatectl set-ntp true, or: sudo apt-get install chrony",
        )
    return ok(f"synchronised within {facts.max_error_us / 1000:.0f} ms; {watched}")
