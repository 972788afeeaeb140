"""Signals that ask a program to end, and the moments when it must not be interrupted.

SIGINT, SIGTERM and SIGHUP all become KeyboardInterrupt in the main thread: one way out, whoever asks. What closes
sockets, stops processes and writes the last file does so with the signals held back; all of that is short.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt(signum: int, frame: FrameType | None) -> None:
    """Signal handler: raises KeyboardInterrupt with the signal's name."""
    raise KeyboardInterrupt(signal.Signals(signum).name)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Signals that would end the program wait until the block is over; the first that is not ignored ends it then.

    Only the main thread is ever interrupted, so in any other one this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {}
    try:
        for signum in ENDINGS:
            before[signum] = signal.signal(signum, lambda number, _: came.append(number))
        yield
    finally:
        for signum, handler in before.items():
            if handler is not None:  # None: not installed from Python, so it cannot be put back
                signal.signal(signum, handler)
        for number in came:  # under nohup a SIGHUP has no effect, and must not take the place of a later Ctrl-C
            signal.raise_signal(number)


class Ends(contextlib.ExitStack):
    """An ExitStack that is left without interruption."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        with held_back():
            return bool(super().__exit__(kind, error, trace))
