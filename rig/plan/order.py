"""The order in which the points of a plan run when each runs several times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def interleaved(points: Sequence[T], repeat: int) -> list[T]:
    """Every point `repeat` times, in rounds that hold each point once; every second round runs backwards.

    The k-th run of one point so lies next to the k-th of another, and what drifts in the course of a set favours
    neither: a b, b a, a b, …
    """
    order: list[T] = []
    for number in range(repeat):
        order += points if number % 2 == 0 else reversed(points)
    return order
