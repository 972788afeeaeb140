"""How well this bench measures: e from echo exchanges whose turnaround the board itself reports. Pure.

Method: RFC 7679 section 3.7.3, applied to a round trip. The board's answer carries when it took the request from its
stack and when it sent the answer (token-v2 `t_rx`, `t_send`), so captured response time minus that turnaround is path
plus noise, and varies only with what the measurement cannot tell apart. The systematic error is the median at minimal
load; e is the largest distance from it of the 2.5th and the 97.5th percentile, idle and under load since plans measure
at both, plus what the clocks add, so that at least 95 % of time differences lie within ±e. Percentiles are order
statistics at the far end of their confidence interval, so that e is not too small by chance. docs/calibration.md
explains it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from rig.errors import BenchError
from rig.plan.units import format_ns
from rig.protocol import token_v2
from rig.timing.binomial import quantile_interval, rank
from rig.timing.flows import Selection
from rig.timing.table import FrameTable

COVERAGE: Final = Fraction(95, 100)
"""Share of time differences that lie within ±e (RFC 7679 section 3.7.3)."""
CONFIDENCE: Final = Fraction(95, 100)
"""With which the two percentiles are bounded together."""
LEAST: Final = 400
"""Echoes that a series must have; the RFC asks for hundreds, and 146 give no bound on the 97.5th percentile."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)


class Series(_Record):
    """One series of echoes: path plus noise, ns. low, high: bounds on the 2.5th and the 97.5th percentile."""

    load: Literal["idle", "loaded"]
    n: int
    min_ns: int
    median_ns: int
    low_ns: int
    high_ns: int
    max_ns: int


class Calibration(_Record):
    """What `rig bench calibrate` found, as it is kept in the bench's state folder.

    e_ns = max(|low - systematic|, |high - systematic|) + clock_ns over low and high of all series; systematic_ns is the
    median of the idle one. clock_ns: resolution of both clocks, and their rates' difference over the turnaround.
    rate_ppm: the board's clock against the capture's. settings: of NICs, kernel and capture point, which make it stale
    when they change. record: folder of the runs.
    """

    schema_: Literal["rig.calibration/1"] = Field("rig.calibration/1", alias="schema")
    bench: str
    date_utc: str
    e_ns: int
    systematic_ns: int
    clock_ns: int
    rate_ppm: float
    turnaround_ns: int
    series: tuple[Series, ...]
    settings: Mapping[str, str]
    controller: Mapping[str, str | bool | None]
    record: str

    @property
    def n(self) -> int:
        """Echoes behind e."""
        return sum(one.n for one in self.series)


@dataclass(frozen=True)
class Echoes:
    """Echo exchanges of one capture, in order of their requests. All ns, i8.

    request: capture time of the request; board: when the board took it, by its own clock. path: captured response time
    less the board's turnaround. resolution: of the capture's stamps.
    """

    request: NDArray[np.int64]
    turnaround: NDArray[np.int64]
    path: NDArray[np.int64]
    board: NDArray[np.int64]
    resolution: int

    def __len__(self) -> int:
        return len(self.path)


def echoes_of(table: FrameTable, addresses: Mapping[str, str]) -> Echoes:
    """The echoes between the sentinels: each request with the first datagram that answers it.

    A request or an answer that is in the capture twice is left out, since nobody knows which copy was timed. BenchError
    when the board reports no turnaround.
    """
    selection = Selection(table, addresses)
    tokens, time = selection.v2.tokens, table.time_ns
    inside = selection.window.contains(time[tokens.row])
    asked = np.flatnonzero(inside & (tokens.type == token_v2.REQUEST) & selection.between("jetson", "board"))
    told = np.flatnonzero(
        inside & (tokens.type == token_v2.ANSWER) & tokens.first & selection.between("board", "jetson")
    )
    asked, told = _single(tokens.request_id, asked), _single(tokens.request_id, told)
    _, asked_at, told_at = np.intersect1d(
        tokens.request_id[asked], tokens.request_id[told], assume_unique=True, return_indices=True
    )
    asked, told = asked[asked_at], told[told_at]
    if len(told) and not (tokens.t_rx_ns[told] > 0).all():
        raise BenchError(
            "the board's answers do not say when the request came in (t_rx is 0), so its turnaround is unknown",
            hint="calibrate with this project's own firmware, or declare e in the bench file",
        )
    received, sent = (stamps[told].astype(np.int64) for stamps in (tokens.t_rx_ns, tokens.t_send_ns))
    request = time[tokens.row[asked]]
    order = np.argsort(request, kind="stable")
    response = time[tokens.row[told]] - request
    turnaround = sent - received
    resolution = max((math.ceil(one.resolution_ns) for one in table.interfaces), default=1)
    return Echoes(request[order], turnaround[order], (response - turnaround)[order], received[order], resolution)


def summarise(echoes: Echoes, load: Literal["idle", "loaded"]) -> Series:
    """A series in figures; BenchError when it is too short to bound its percentiles."""
    n = len(echoes)
    if n < LEAST:
        raise BenchError(
            f"the {load} series has {n} echoes, {LEAST} are the least",
            hint="look at the verdicts of the calibration's runs: requests were lost, or shown twice",
        )
    ordered = np.sort(echoes.path)
    tail = (1 - COVERAGE) / 2
    # Each side at its own confidence, so that both hold together; only the far side of each interval is used.
    low, _ = quantile_interval(n, tail, CONFIDENCE)
    _, high = quantile_interval(n, 1 - tail, CONFIDENCE)
    return Series(
        load=load,
        n=n,
        min_ns=int(ordered[0]),
        median_ns=int(ordered[rank(n, Fraction(1, 2)) - 1]),
        low_ns=int(ordered[(low or 1) - 1]),
        high_ns=int(ordered[(high or n) - 1]),
        max_ns=int(ordered[-1]),
    )


def error_ns(idle: Series, loaded: Series, clock_ns: int) -> int:
    """e: the percentile farthest from the systematic error, and what the clocks add."""
    ends = (idle.low_ns, idle.high_ns, loaded.low_ns, loaded.high_ns)
    return max(abs(end - idle.median_ns) for end in ends) + clock_ns


def clock_error_ns(echoes: Echoes) -> tuple[int, float]:
    """(what the clocks add to a time difference in ns, rate of the board's clock against the capture's in ppm).

    Two stamps of each clock make a difference, each wrong by up to its resolution; and the turnaround is measured at
    the board's rate. That rate comes from how far the two clocks drift apart between the first and the last tenth of
    the series, as medians, since single exchanges may be held up for long.
    """
    tenth = max(1, len(echoes) // 10)
    apart = echoes.board - echoes.request
    span, drift = (
        float(np.median(column[-tenth:] - column[0]) - np.median(column[:tenth] - column[0]))
        for column in (echoes.request, apart)
    )
    rate = drift / span if span > 0 else 0.0
    longest = int(np.sort(echoes.turnaround)[rank(len(echoes), COVERAGE) - 1])
    grain = int(np.gcd.reduce(np.abs(echoes.turnaround))) or 1
    return 2 * echoes.resolution + 2 * grain + math.ceil(abs(rate) * longest), rate * 1e6


def render(found: Calibration, declared_ns: int, *, emulated: bool = False) -> str:
    """A small table and what it means, for a terminal. emulated: of a bench whose board shares the machine's cores."""
    lines = [f"{'series':<8} {'n':>6} {'median':>12} {'2.5 %':>12} {'97.5 %':>12} {'largest':>12}"]
    for one in found.series:
        cells = (one.median_ns, one.low_ns, one.high_ns, one.max_ns)
        lines.append(f"{one.load:<8} {one.n:>6} " + " ".join(f"{format_ns(_short(value)):>12}" for value in cells))
    e = found.e_ns
    lines += [
        "",
        f"e = {format_ns(e)}: 95 % of time differences on this bench are within ±e of the truth, idle and under load.",
        f"  of it {format_ns(found.clock_ns)} are the clocks'; the board's runs {found.rate_ppm:+.1f} ppm off",
        f"  {format_ns(_short(found.systematic_ns))} is the way itself (median, idle), part of every response time",
        f"  no limit finer than 3 e = {format_ns(3 * e)} is judged; the bench file declares {format_ns(declared_ns)}",
    ]
    if emulated:
        lines.append("  most of it is the emulated board waiting for a processor: calibrate while the machine is calm")
    return "\n".join(lines)


def _short(value_ns: int) -> int:
    """Four digits are enough to look at."""
    return round(value_ns, -max(0, len(str(abs(value_ns))) - 4))


def _single(ids: NDArray[np.uint32], chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of `chosen` whose id occurs once among them."""
    _, first, count = np.unique(ids[chosen], return_index=True, return_counts=True)
    single: NDArray[np.int64] = chosen[first[count == 1]]
    return single
