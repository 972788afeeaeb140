"""What is said about samples: order statistics without interpolation, their intervals, and lag-1 autocorrelation.

A lost sample is infinite and takes part in every quantile (RFC 2681 section 4.1). n samples say nothing about a
percentile that they could not prove (`needed`), so it is not printed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rig.timing.binomial import quantile_interval, rank, samples_needed
from rig.timing.metrics.measurement import INFINITE_NS, NO_FLOOR_NS

INDEPENDENT: Final = 0.1
"""Autocorrelation at and below which samples are taken for independent."""

_UPPER_95: Final = 1.645
"""The normal distribution's quantile."""


@dataclass(frozen=True)
class Quantile:
    """One observed quantile. value_ns: order statistic, INFINITE_NS when lost, None when n does not allow it (then
    `needed` samples would). low_ns, high_ns: two-sided interval at the confidence of the check, None unbounded."""

    name: str
    value_ns: int | None
    low_ns: int | None
    high_ns: int | None
    needed: int


@dataclass(frozen=True)
class Summary:
    """Samples in figures. lost are the infinite ones. mean_ns: of the others. lag1: their autocorrelation, None
    below 3 finite samples or without any spread."""

    n: int
    lost: int
    min_ns: int | None
    max_ns: int | None
    quantiles: tuple[Quantile, ...]
    lag1: float | None
    mean_ns: int | None = None


def summarise(value_ns: NDArray[np.int64], percentiles: Iterable[Fraction], confidence: Fraction) -> Summary:
    """Order statistics of int64 samples; `percentiles` as fractions (0.99 for p99)."""
    n = len(value_ns)
    wanted = [(q, _ranks(n, q, confidence)) for q in percentiles]
    ranks = sorted({1, n, *(each for _, some in wanted for each in some if each is not None)}) if n else []
    # Only these ranks are needed, which costs a fraction of sorting.
    placed = np.partition(value_ns, [each - 1 for each in ranks]) if n else value_ns
    at: dict[int | None, int] = {each: int(placed[each - 1]) for each in ranks}
    lost = int(np.count_nonzero(value_ns == INFINITE_NS)) if n and at[n] == INFINITE_NS else 0
    finite = value_ns if not lost else value_ns[value_ns != INFINITE_NS]
    return Summary(
        n=n,
        lost=lost,
        min_ns=at[1] if n else None,
        max_ns=at[n] if n else None,
        quantiles=tuple(
            Quantile(percentile_name(q), at.get(own), at.get(low), at.get(high), _needed(q, confidence))
            for q, (own, low, high) in wanted
        ),
        lag1=autocorrelation(finite),
        mean_ns=round(float(finite.mean(dtype=np.float64))) if len(finite) else None,
    )


def _ranks(n: int, q: Fraction, confidence: Fraction) -> tuple[int | None, int | None, int | None]:
    """(rank of the q-quantile, ranks of its interval), from 1; None where n samples do not allow it."""
    if n < _needed(q, confidence):
        return None, None, None
    return rank(n, q), *quantile_interval(n, q, confidence)


def figures(value_ns: NDArray[np.int64], names: Iterable[str]) -> dict[str, int]:
    """Figures by name, `mean` or a percentile; a mean with a lost sample is INFINITE_NS, else with one of which nothing
    is known NO_FLOOR_NS. Too few samples for one leave it out."""
    found: dict[str, int] = {}
    n = len(value_ns)
    for name in names:
        if name == "mean" and n:
            beyond = next((each for each in (INFINITE_NS, NO_FLOOR_NS) if (value_ns == each).any()), None)
            found[name] = round(float(value_ns.mean(dtype=np.float64))) if beyond is None else beyond
        elif name != "mean" and n * min(percentile_of(name), 1 - percentile_of(name)) >= 1:
            found[name] = order_statistic(value_ns, percentile_of(name))
    return found


def order_statistic(value_ns: NDArray[np.int64], q: Fraction) -> int:
    """x_(ceil(n q)) of at least one sample."""
    position = rank(len(value_ns), q) - 1
    return int(np.partition(value_ns, position)[position])


def percentile_name(q: Fraction) -> str:
    """Fraction(999, 1000) → `p99.9`."""
    return f"p{float(q * 100):.10g}"


def percentile_of(key: str) -> Fraction:
    """`p99.9` → Fraction(999, 1000)."""
    return Fraction(key[1:]) / 100


def autocorrelation(value: NDArray[np.int64]) -> float | None:
    """Lag-1 autocorrelation of successive samples in [-1, 1]; None where it is not defined."""
    if len(value) < 3:
        return None
    centred = value - value.mean()
    power = float(np.dot(centred, centred))
    return None if power == 0 else round(float(np.dot(centred[:-1], centred[1:])) / power, 4)


def block_length(beyond: NDArray[np.bool_], share: Fraction) -> int:
    """How many successive samples to judge as one, where a `share` of them may be beyond a limit: their `dependence`,
    lengthened by what is not known about it.

    It is estimated from the m stretches that were seen: 1 + 1.645/√m times as much is its upper bound at 95 %, for
    lengths that spread as widely as their mean. A run that seems good shows fewer and shorter stretches than there are
    the more so the rarer they are, and not at all at the median: hence 1 - 4 share² of that increase.
    """
    n, count, distance = len(beyond), int(np.count_nonzero(beyond)), dependence(beyond)
    if distance == 1:
        return 1
    stretches = max(1.0, min(count, n - count) / distance)
    unseen = 1 - 4 * float(min(share, 1 - share)) ** 2
    return min(n, math.ceil(distance * (1 + _UPPER_95 * unseen / math.sqrt(stretches))))


def dependence(beyond: NDArray[np.bool_]) -> int:
    """1, or where being beyond a limit depends on having been so just before, the smallest distance at which it does
    not.

    It does when the lag-1 autocorrelation exceeds `INDEPENDENT` and what chance gives n independent samples (3/√n). The
    distance is the smallest lag with an autocorrelation of at most `INDEPENDENT` or 2/√n. Negative correlation makes
    the exact rule claim less, never more.
    """
    n, count = len(beyond), int(np.count_nonzero(beyond))
    if not 1 < count < n or _correlation(beyond, 1, count) <= max(INDEPENDENT, 3 / math.sqrt(n)):
        return 1
    enough = max(INDEPENDENT, 2 / math.sqrt(n))
    for lag in range(2, min(n, 65)):  # usually near
        if _correlation(beyond, lag, count) <= enough:
            return lag
    centred = beyond - count / n
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    correlation = np.fft.irfft(spectrum * spectrum.conj(), size)[:n]
    low = np.flatnonzero(correlation <= enough * correlation[0])
    return int(low[0]) if len(low) else n


def _correlation(beyond: NDArray[np.bool_], lag: int, count: int) -> float:
    """Autocorrelation of 0 and 1 at a lag, from counts alone: several times as quick as from their deviations."""
    n, share = len(beyond), count / len(beyond)
    early, late = beyond[:-lag], beyond[lag:]
    both = int(np.count_nonzero(early & late))
    ends = int(np.count_nonzero(early)) + int(np.count_nonzero(late))
    return (both - share * ends + share * share * (n - lag)) / (count * (1 - share))


def _needed(q: Fraction, confidence: Fraction) -> int:
    """The least number of samples that can prove anything about the q-quantile."""
    return samples_needed(0, min(q, 1 - q), confidence)
