"""Watches the clock that stamps the capture: a step of CLOCK_REALTIME in mid-run makes differences of stamps wrong.

dumpcap's stamps are CLOCK_REALTIME of this host. RFC 2681 section 2.5 counts a clock adjustment between two stamps as
measurement uncertainty, so the offset to CLOCK_MONOTONIC is sampled from before the capture to after it.
"""

from __future__ import annotations

import itertools
import threading
import time
from types import TracebackType

INTERVAL_S = 0.25


def offset_ns() -> tuple[int, int]:
    """(CLOCK_REALTIME - CLOCK_MONOTONIC, how long the reading took), both ns; the best of five readings."""
    best = (0, 1 << 62)
    for _ in range(5):
        before = time.monotonic_ns()
        real = time.time_ns()
        took = time.monotonic_ns() - before
        if took < best[1]:
            best = (real - before - took // 2, took)
    return best


class ClockWatch:
    """Context manager; `summary()` is valid after `stop()`.

    The largest change between two neighbouring samples is a step; the change from first to last minus the steps is
    slewing, which an NTP client does all the time and which stays below 500 ppm.
    """

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="clock-watch", daemon=True)
        self._samples: list[tuple[int, int, int]] = []

    def __enter__(self) -> ClockWatch:
        self._sample()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the watch; harmless when it has ended."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self._sample()

    def summary(self) -> dict[str, int]:
        """`offset_start_ns`, `offset_end_ns`, `largest_step_ns` (signed), `reading_error_ns`, `samples`."""
        samples = self._samples
        steps = [later[1] - earlier[1] for earlier, later in itertools.pairwise(samples)]
        return {
            "offset_start_ns": samples[0][1],
            "offset_end_ns": samples[-1][1],
            "largest_step_ns": max(steps, key=abs, default=0),
            "reading_error_ns": max(took for _, _, took in samples),
            "samples": len(samples),
        }

    def _sample(self) -> None:
        offset, took = offset_ns()
        self._samples.append((time.monotonic_ns(), offset, took))

    def _watch(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self._sample()
