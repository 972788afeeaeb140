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
from rig.timing.metrics.measurement import INFINITE_NS

CORRELATED: Final = 0.3
"""|lag-1 autocorrelation| beyond which samples are not taken for independent."""


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
    """Samples in figures. lost are the infinite ones. lag1: None below 3 finite samples or without any spread."""

    n: int
    lost: int
    min_ns: int | None
    max_ns: int | None
    quantiles: tuple[Quantile, ...]
    lag1: float | None

    @property
    def correlated(self) -> bool:
        """True when successive samples depend on each other, so that the binomial rule claims too much."""
        return self.lag1 is not None and abs(self.lag1) > max(CORRELATED, 3 / math.sqrt(self.n))


def summarise(value_ns: NDArray[np.int64], percentiles: Iterable[Fraction], confidence: Fraction) -> Summary:
    """Order statistics of int64 samples; `percentiles` as fractions (0.99 for p99)."""
    ordered = np.sort(value_ns)
    n = len(ordered)
    lost = int(n - np.searchsorted(ordered, INFINITE_NS, "left"))
    return Summary(
        n=n,
        lost=lost,
        min_ns=int(ordered[0]) if n else None,
        max_ns=int(ordered[-1]) if n else None,
        quantiles=tuple(_quantile(ordered, q, confidence) for q in percentiles),
        lag1=autocorrelation(value_ns[value_ns != INFINITE_NS]),
    )


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


def _quantile(ordered: NDArray[np.int64], q: Fraction, confidence: Fraction) -> Quantile:
    n = len(ordered)
    needed = samples_needed(0, min(q, 1 - q), confidence)
    if n < needed:
        return Quantile(percentile_name(q), None, None, None, needed)
    low, high = quantile_interval(n, q, confidence)
    return Quantile(
        percentile_name(q),
        int(ordered[rank(n, q) - 1]),
        None if low is None else int(ordered[low - 1]),
        None if high is None else int(ordered[high - 1]),
        needed,
    )
