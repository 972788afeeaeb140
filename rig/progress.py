"""What a person sees while a run goes on: one line per phase, rewritten in place on a terminal."""

from __future__ import annotations

import shutil
import time
from typing import Protocol, TextIO

REDRAW_S = 0.1


class Progress(Protocol):
    """Receives what happens; never raises, never slows a phase."""

    def run_begins(self, title: str) -> None: ...

    def phase_begins(self, name: str) -> None: ...

    def update(self, text: str) -> None:
        """How far the phase that runs now has come, such as `12.0 of 28.4 KiB, 18 KiB/s, 1 s left`."""

    def phase_ends(self, name: str, seconds: float, outcome: str, note: str) -> None: ...


class SilentProgress:
    """For callers that want nothing printed."""

    def run_begins(self, title: str) -> None:
        pass

    def phase_begins(self, name: str) -> None:
        pass

    def update(self, text: str) -> None:
        pass

    def phase_ends(self, name: str, seconds: float, outcome: str, note: str) -> None:
        pass


class TextProgress:
    """Prints to a stream; on a terminal the running phase is shown on a line that the finished one replaces."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._phase = ""
        self._shown_at = 0.0

    def run_begins(self, title: str) -> None:
        self._print(title)

    def phase_begins(self, name: str) -> None:
        self._phase, self._shown_at = name, 0.0
        self.update("…")

    def update(self, text: str) -> None:
        if self._live and time.monotonic() - self._shown_at >= REDRAW_S:
            self._shown_at = time.monotonic()
            width = shutil.get_terminal_size().columns - 1
            self._stream.write("\r\x1b[K" + f"  {self._phase:<16} {text}"[:width])
            self._stream.flush()

    def phase_ends(self, name: str, seconds: float, outcome: str, note: str) -> None:
        mark = "" if outcome == "ok" else f"{outcome.upper()}  "
        self._print(f"  {name:<16} {seconds:6.2f} s  {mark}{note}".rstrip())

    def _print(self, line: str) -> None:
        self._stream.write(("\r\x1b[K" if self._live else "") + line + "\n")
        self._stream.flush()
