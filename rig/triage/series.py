"""What the report draws, as compact columns: samples over time, sequences, and where the time of exchanges went."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from rig.timing.metrics.measurement import INFINITE_NS
from rig.timing.statistics import percentile_of
from rig.triage.case import Case, samples_of
from rig.triage.exchange_model import LOST_NS
from rig.triage.jetson_log import JetsonLog
from rig.triage.side_files import is_number
from rig.triage.timeline import board_offset, jetson_offset

if TYPE_CHECKING:
    from rig.timing.verdict import CheckResult

MOST_POINTS: Final = 150_000
"""Points of one series that the page carries: of more, a third each of smallest, largest and lost ones."""
FEWEST_POINTS: Final = 5
"""A gauge with fewer values is a table, not a plot."""


@dataclass(frozen=True)
class Line:
    """One limit on durations. quantile: the share in percent that must be within it, None for every sample. holds: the
    limit is kept, so that points beyond it are no violations."""

    rule: str
    ns: int
    is_max: bool
    quantile: float | None
    holds: bool


@dataclass(frozen=True)
class Series:
    """One set of points. time_ns i8: from the first frame. value i8: ns, or a sequence number; LOST_NS for lost.
    frame u4: number in the file, 0 if none. thinned: points left out."""

    name: str
    label: str
    time_ns: NDArray[np.int64]
    value: NDArray[np.int64]
    frame: NDArray[np.uint32]
    limits: tuple[Line, ...] = ()
    thinned: int = 0

    def packed(self) -> dict[str, Any]:
        """The columns as base64 of little-endian typed arrays, times and values exact as float64 (below 2**53)."""
        value = self.value.astype(np.float64)
        value[self.value == LOST_NS] = np.inf
        return {
            "name": self.name,
            "label": self.label,
            "time": _packed(self.time_ns.astype("<f8")),
            "value": _packed(value.astype("<f8")),
            "frame": _packed(self.frame.astype("<u4")),
            "limits": [
                {"rule": one.rule, "ns": one.ns, "max": one.is_max, "quantile": one.quantile, "holds": one.holds}
                for one in self.limits
            ],
            "thinned": self.thinned,
        }

    @property
    def has_bad(self) -> bool:
        """True when points lie beyond a limit that does not hold, or samples were lost."""
        return any(not line.holds for line in self.limits) or bool((self.value == LOST_NS).any())


@dataclass(frozen=True)
class Gauge:
    """One number that board or Jetson told several times. time_s: seconds of the report's time line."""

    name: str
    time_s: tuple[float, ...]
    value: tuple[float, ...]


@dataclass(frozen=True)
class StageShare:
    """One stage of an exchange: quantiles in ns over all exchanges. where: whose it is."""

    name: str
    where: str
    p50_ns: int
    p90_ns: int
    p99_ns: int
    max_ns: int


@dataclass(frozen=True)
class Drawn:
    """All series of a report. latency: one per check that measures durations (or the response times of a bare
    capture). sequence: requests and answers by sequence number. few: gauges of too few values to draw."""

    latency: tuple[Series, ...] = ()
    sequence: tuple[Series, ...] = ()
    stages: tuple[StageShare, ...] = ()
    telemetry: tuple[Gauge, ...] = ()
    few: tuple[Gauge, ...] = ()


def drawn(case: Case) -> Drawn:
    """Everything to draw of a case."""
    gauges = _gauges(case)
    return Drawn(
        latency=tuple(_latency(case)),
        sequence=tuple(_sequences(case)),
        stages=tuple(_stages(case)),
        telemetry=tuple(gauge for gauge in gauges if len(gauge.value) >= FEWEST_POINTS),
        few=tuple(gauge for gauge in gauges if len(gauge.value) < FEWEST_POINTS),
    )


def _latency(case: Case) -> list[Series]:
    found = []
    checks: dict[str, CheckResult] = {check.check: check for check in case.result.checks} if case.result else {}
    samples = samples_of(case)
    for name, measured in samples.items():
        if measured.kind != "durations" or not len(measured.value_ns):
            continue
        value = np.where(measured.value_ns == INFINITE_NS, LOST_NS, measured.value_ns)
        limits = []
        if name in checks:
            for limit in checks[name].limits:
                if limit.limit_ns is not None:
                    quantile = float(percentile_of(limit.spec.key) * 100) if limit.spec.key.startswith("p") else None
                    holds = limit.verdict == "PASS"
                    limits.append(Line(limit.rule, limit.limit_ns, limit.is_max, quantile, holds))
        frame = np.where(measured.number > 0, measured.number, measured.reference)
        found.append(
            _thinned(
                Series(
                    name,
                    f"{name}: {measured.metric.replace('_', ' ')}",
                    measured.time_ns - case.origin_ns,
                    value,
                    frame.astype(np.uint32),
                    tuple(limits),
                )
            )
        )
    if not found and case.exchanges is not None and len(case.exchanges.asks):
        exchanges = case.exchanges
        frame = exchanges.asks.number.copy()
        frame[exchanges.answered] = exchanges.answers.number[exchanges.final[exchanges.answered]]
        at = exchanges.asks.time_ns - case.origin_ns
        found.append(_thinned(Series("response", "response time of each request", at, exchanges.response_ns, frame)))
    # The same samples judged under several checks are drawn once, with all limits.
    unique: list[Series] = []
    for series in found:
        twin = next((i for i, other in enumerate(unique) if _same(series, other)), None)
        if twin is None:
            unique.append(series)
        else:
            other = unique[twin]
            unique[twin] = Series(
                other.name,
                f"{other.name}, {series.label}",
                other.time_ns,
                other.value,
                other.frame,
                other.limits + series.limits,
                other.thinned,
            )
    return unique


def _same(one: Series, other: Series) -> bool:
    return len(one.value) == len(other.value) and bool(
        (one.value == other.value).all() and (one.frame == other.frame).all()
    )


def _sequences(case: Case) -> list[Series]:
    exchanges = case.exchanges
    if exchanges is None:
        return []
    found = []
    for name, label, side in (("requests", "requests", exchanges.asks), ("answers", "answers", exchanges.answers)):
        if len(side):
            sequence = side.sequence - int(side.sequence.min())
            found.append(_thinned(Series(name, label, side.time_ns - case.origin_ns, sequence, side.number)))
    return found


def _thinned(series: Series) -> Series:
    count = len(series.value)
    if count <= MOST_POINTS:
        return series
    lost = np.flatnonzero(series.value == LOST_NS)
    some = lost[np.linspace(0, len(lost) - 1, min(len(lost), MOST_POINTS // 3)).astype(np.int64)]
    finite = np.flatnonzero(series.value != LOST_NS)
    index = np.union1d(some, finite[_extremes(series.value[finite], MOST_POINTS // 3)])
    return Series(
        series.name,
        series.label,
        series.time_ns[index],
        series.value[index],
        series.frame[index],
        series.limits,
        count - len(index),
    )


def _extremes(value: NDArray[np.int64], slices: int) -> NDArray[np.int64]:
    """Where the smallest and the largest value of each slice stand, the earliest of equal ones."""
    count = len(value)
    edges = np.unique(np.linspace(0, count, slices + 1, dtype=np.int64))
    of = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    found = [np.empty(0, np.int64)]
    for extreme in (np.minimum, np.maximum):
        at = np.flatnonzero(value == extreme.reduceat(value, edges[:-1])[of]) if count else found[0]
        found.append(at[np.flatnonzero(np.diff(of[at], prepend=-1))])
    return np.concatenate(found)


def _stages(case: Case) -> list[StageShare]:
    """Where the time of answered exchanges went, in the order in which it passes."""
    found: list[StageShare] = []
    exchanges = case.exchanges
    if case.info is not None:
        found += _jetson_stages(case.jetson_log)
    if exchanges is None or not exchanges.stamped or not len(exchanges.answers):
        return found
    answers = exchanges.answers
    if len(exchanges.answered):
        first, final = exchanges.first[exchanges.answered], exchanges.final[exchanges.answered]
        ready = answers.t_ready_ns[first] > 0
        if len(case.boots) == 1:
            _add(found, "wire and stacks, both ways", "link", exchanges.path_ns)
        if ready.any():
            inference = (answers.t_ready_ns[first] - answers.t_rx_ns[first])[ready]
            _add(found, "t_rx to t_ready: inference", "board", inference)
            _add(found, "t_ready to t_send", "board", (answers.t_send_ns[first] - answers.t_ready_ns[first])[ready])
        streamed = answers.t_send_ns[final] - answers.t_send_ns[first]
        if (streamed > 0).any():
            _add(found, "first to last datagram", "board", streamed)
    return found


def _jetson_stages(log: JetsonLog) -> list[StageShare]:
    columns: dict[str, list[int]] = {"pre": [], "prefill": [], "decode": [], "post": [], "wait and send": []}
    for event in log.requests:
        try:
            if event.get("warmup"):
                continue
            if "prefill_start_ns" in event:
                columns["pre"].append(event["pre_end_ns"] - event["pre_start_ns"])
                columns["prefill"].append(event["first_token_ns"] - event["prefill_start_ns"])
                columns["decode"].append(event["decode_end_ns"] - event["first_token_ns"])
                columns["post"].append(event["post_end_ns"] - event["decode_end_ns"])
            columns["wait and send"].append(event["sent_ns"] - event["post_end_ns"])
        except (KeyError, TypeError):
            continue
    found: list[StageShare] = []
    for name, values in columns.items():
        if values:
            _add(found, name, "jetson", np.array(values, np.int64))
    return found


def _gauges(case: Case) -> list[Gauge]:
    """Numbers of the board's RAM ring and of the Jetson's host state, by name, as far as they change."""
    told: dict[str, list[tuple[float, float]]] = {}

    def note(name: str, t_ns: int, value: Any) -> None:
        if is_number(value) and not isinstance(value, bool) and len(told.get(name, ())) < MOST_POINTS:
            told.setdefault(name, []).append((t_ns / 1e9, float(value)))

    board_ns, jetson_ns = board_offset(case), jetson_offset(case)
    if board_ns is not None:
        for event in case.telemetry:
            for key, value in event["values"].items():
                if key not in ("id", "seq"):
                    note(f"board, {event['event']} {key}", event["t_ns"] + board_ns, value)
    if jetson_ns is not None:
        for event in case.jetson_log.others:
            if event["event"] != "host":
                continue
            for name, value in event.items():
                if name in ("temperature_c", "cpu_khz", "power_mw", "memory_kib", "clocks_mhz", "gpu_load"):
                    several = value if isinstance(value, dict) else {"": value}
                    for part, one in several.items():
                        note(f"Jetson, {name} {part}".strip(), event["t_ns"] + jetson_ns, one)
    return [
        Gauge(name, tuple(t for t, _ in values), tuple(v for _, v in values))
        for name, values in sorted(told.items())
        if len({v for _, v in values}) > 1
    ]


def _add(found: list[StageShare], name: str, where: str, value: NDArray[np.int64]) -> None:
    ordered = np.sort(value)
    p50, p90, p99 = (int(ordered[min(len(ordered) - 1, int(len(ordered) * q))]) for q in (0.5, 0.9, 0.99))
    found.append(StageShare(name, where, p50, p90, p99, int(ordered[-1])))


def _packed(column: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(column).tobytes()).decode("ascii")
