"""One monotonic deadline, made per phase and handed down; nothing below it invents a time-out of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Deadline:
    """A point on CLOCK_MONOTONIC, in ns, with the budget (s) it was made from for messages."""

    at_ns: int
    budget_s: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """A deadline `seconds` from now."""
        return cls(time.monotonic_ns() + int(seconds * 1e9), seconds)

    def left(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, (self.at_ns - time.monotonic_ns()) / 1e9)

    def expired(self) -> bool:
        return time.monotonic_ns() >= self.at_ns

    def at_most(self, seconds: float) -> Deadline:
        """The earlier of this deadline and one `seconds` from now."""
        other = Deadline.after(seconds)
        return self if self.at_ns <= other.at_ns else other
