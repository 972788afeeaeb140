"""Stamps of a far end: ns of its own monotonic clock, 0 where it does not know.

No clock has run for 146 years: a stamp beyond that is none, and a packet that carries one proves no PASS. Differences
of all others, with each other or with capture times, stay within 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rig.timing.metrics.measurement import present

_END_NS: Final = 1 << 62


@dataclass(frozen=True)
class Stamps:
    """Stamps of the same packets, one column each. sound b: the packets whose stamps are all there and possible.
    impossible: how many have one that no clock can show."""

    columns: tuple[NDArray[np.int64], ...]
    sound: NDArray[np.bool_]
    impossible: int

    @classmethod
    def of(cls, *columns: NDArray[np.uint64]) -> Stamps:
        possible = np.logical_and.reduce([column < _END_NS for column in columns])
        sound = np.logical_and.reduce([possible, *(column != 0 for column in columns)])
        return cls(tuple(column.astype(np.int64) for column in columns), sound, int(np.count_nonzero(~possible)))

    @property
    def missing(self) -> dict[str, int]:
        """The packets without sound stamps, as counts of a measurement."""
        absent = int(np.count_nonzero(~self.sound)) - self.impossible
        return present({"without a stamp": absent, "with an impossible stamp": self.impossible})

    @property
    def unprovable(self) -> str:
        """Why these stamps cannot prove that all is well; empty when they can."""
        if not self.impossible:
            return ""
        return f"{self.impossible} packets carry a stamp beyond 146 years of their sender's clock"
