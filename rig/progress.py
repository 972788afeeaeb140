"""What a person sees while a run goes on: one line per phase, rewritten in place on a terminal."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TextIO

REDRAW_S = 0.1


class Progress(Protocol):
    """Receives what happens; never raises, never slows a phase. name: of a phase, with its number where it has one."""

    def run_begins(self, title: str) -> None: ...

    def phase_begins(self, name: str) -> None: ...

    def update(self, text: str) -> None:
        """How far the phase that runs now has come, such as `12.0 of 28.4 KiB, 18 KiB/s, 1 s left`."""

    def phase_ends(self, name: str, seconds: float, outcome: str, note: str) -> None: ...

    def warn(self, text: str) -> None:
        """Something to see to that ends no run. To be shown once, however many runs find it."""


ERASE = "\r\x1b[K"


def live_line(phase: str, text: str) -> str:
    """What takes the place of the terminal's last line while `phase` runs."""
    width = shutil.get_terminal_size().columns - 1
    return ERASE + f"  {phase:<16} {text}"[:width]


def phase_line(name: str, seconds: float, outcome: str, note: str) -> str:
    """What stays of a phase that is over."""
    mark = "" if outcome == "ok" else f"{outcome.upper()}  "
    return f"  {name:<16} {seconds:6.2f} s  {mark}{note}".rstrip()


def warning_line(text: str) -> str:
    return f"  {'warning':<16} {text}"


def reading_progress(path: Path, stream: TextIO) -> Callable[[int, int], None] | None:
    """Shows on a terminal how much of a capture file has been read; None where there is no terminal."""
    if not stream.isatty():
        return None
    began = time.monotonic()

    def show(done: int, size: int) -> None:
        if done >= size:
            stream.write(ERASE)
        elif (took := time.monotonic() - began) >= REDRAW_S:
            left_s = took * (size - done) / max(done, 1)
            megabytes = f"{done / 1e6:.0f} of {size / 1e6:.0f} MB"
            stream.write(live_line("read", f"{path.name}: {megabytes}, {done * 100 // size} %, {left_s:.0f} s left"))
        stream.flush()

    return show


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

    def warn(self, text: str) -> None:
        pass


class TextProgress:
    """Prints to a stream; on a terminal the running phase is shown on a line that the finished one replaces."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._phase = ""
        self._shown_at = 0.0
        self._warned: set[str] = set()

    def run_begins(self, title: str) -> None:
        self._print(title)

    def phase_begins(self, name: str) -> None:
        self._phase, self._shown_at = name, 0.0
        self.update("…")

    def update(self, text: str) -> None:
        if self._live and time.monotonic() - self._shown_at >= REDRAW_S:
            self._shown_at = time.monotonic()
            self._write(live_line(self._phase, text))

    def phase_ends(self, name: str, seconds: float, outcome: str, note: str) -> None:
        self._print(phase_line(name, seconds, outcome, note))

    def warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._print(warning_line(text))

    def _print(self, line: str) -> None:
        self._write((ERASE if self._live else "") + line + "\n")

    def _write(self, text: str) -> None:
        # A terminal that was closed, or a pipe that nobody reads any more, must not end the run in mid-phase.
        with contextlib.suppress(OSError):
            self._stream.write(text)
            self._stream.flush()
