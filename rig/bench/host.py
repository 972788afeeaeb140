"""Where the rig's own processes and sockets live: this machine's namespace, or that of an emulated bench.

The rest of the controller asks a `Host` and never enters a namespace itself, so it runs the same code on both.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rig.deadline import Deadline


class Child(Protocol):
    """A process started through a `Host`; it ends with the run at the latest."""

    @property
    def pid(self) -> int:
        """The process id as seen where it runs (for messages, never for signals)."""

    def poll(self) -> int | None:
        """The exit status (negative: signal number), or None while it runs."""

    def wait(self, deadline: Deadline) -> int | None:
        """Wait for the end; None if the deadline came first."""

    def send_signal(self, signum: int) -> None:
        """Send a signal; harmless once it has ended."""


class Host(Protocol):
    """Runs programs and opens sockets on the rig's side of the bench."""

    def spawn(self, argv: Sequence[str], *, stdout: Path, stderr: Path) -> Child:
        """Start `argv` (no shell) with stdin from /dev/null and both outputs appended to files."""

    def run(self, argv: Sequence[str], deadline: Deadline) -> subprocess.CompletedProcess[bytes]:
        """Run `argv` to its end and return status and both outputs; raises InternalError when late or missing."""

    def connect(self, address: tuple[str, int], deadline: Deadline) -> socket.socket:
        """A connected TCP socket as seen from the rig's side; raises OSError as socket.connect does."""
