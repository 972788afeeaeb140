"""What a command prints may be lost, when its reader, its terminal or the disk's room is gone; the command goes on.

A run that prints into `head` is carried to its end like any other, and its exit code says what came out.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Any, TextIO

_READER_GONE = (errno.EPIPE, errno.EIO)
"""A pipe that nobody reads, a terminal that was closed."""


class Output:
    """A stream of text that never fails. lost: why it could not be written to, from the first time on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if self.lost is None:
            try:
                self._stream.write(text)
            except OSError as error:
                self.lost = error
        return len(text)

    def flush(self) -> None:
        if self.lost is None:
            try:
                self._stream.flush()
            except OSError as error:
                self.lost = error

    def settle(self) -> str | None:
        """To be called at the end. Says why text is missing that somebody may be waiting for."""
        self.flush()
        if self.lost is None:
            return None
        # Python flushes once more at its own end, and would fail with what is left in the buffer.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        return None if self.lost.errno in _READER_GONE else self.lost.strerror
