"""Where the rig's own processes and sockets live: this machine's namespace, or that of an emulated bench.

The rest of the controller asks a `Host` and never enters a namespace itself, so it runs the same code on both.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from rig.deadline import Deadline
from rig.errors import InternalError


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
        """Start `argv` (no shell) with stdin from /dev/null and both outputs appended to files.

        Raises InternalError when the program cannot be started.
        """

    def run(self, argv: Sequence[str], deadline: Deadline) -> subprocess.CompletedProcess[bytes]:
        """Run `argv` to its end and return status and both outputs; raises InternalError when late or missing."""

    def connect(self, address: tuple[str, int], deadline: Deadline) -> socket.socket:
        """A connected TCP socket as seen from the rig's side; raises OSError as socket.connect does."""


class LocalHost:
    """This machine's own namespace: the rig of a hardware bench."""

    def spawn(self, argv: Sequence[str], *, stdout: Path, stderr: Path) -> LocalChild:
        with stdout.open("ab") as out, stderr.open("ab") as err:
            child = _start_local(argv, out.fileno(), err.fileno())
        child.guard()
        return child

    def run(self, argv: Sequence[str], deadline: Deadline) -> subprocess.CompletedProcess[bytes]:
        return run_to_end(_start_local, argv, deadline)

    def connect(self, address: tuple[str, int], deadline: Deadline) -> socket.socket:
        sock = socket.create_connection(address, timeout=max(0.001, deadline.left()))
        sock.settimeout(None)
        return sock


class LocalChild:
    """A child process in its own session, killed by the kernel when the thread that started it ends.

    A program with file capabilities, such as a dumpcap that users may run, has lost that at its exec (prctl(2)), so a
    long-lived child gets a guard: a shell that kills the session when this process is gone, told by a pipe.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        self._guard: subprocess.Popen[bytes] | None = None

    def guard(self) -> None:
        """Let the child end with this process, whatever its program may do."""
        self._guard = subprocess.Popen(
            ["sh", "-c", 'read -r ended || kill -KILL "-$1"', "sh", str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        status = self._process.poll()
        if status is not None:
            self._dismiss_guard()
        return status

    def wait(self, deadline: Deadline) -> int | None:
        if self._process.returncode is None:
            select.select([self._pidfd], [], [], deadline.left())
        return self.poll()

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signum)

    def _dismiss_guard(self) -> None:
        """The child has ended, so its number may soon be another's."""
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.communicate(b"ended\n")

    def __del__(self) -> None:
        os.close(self._pidfd)


def child_environment() -> dict[str, str]:
    """This process's environment, with the places where Debian keeps ip, ethtool and sshd in PATH for users too."""
    return {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"}


def run_to_end(
    start: Callable[[Sequence[str], int, int], Child], argv: Sequence[str], deadline: Deadline
) -> subprocess.CompletedProcess[bytes]:
    """`Host.run` on top of a function that starts a program with two output descriptors."""
    with _memory_file("stdout") as out, _memory_file("stderr") as err:
        child = start(argv, out.fileno(), err.fileno())
        status = child.wait(deadline)
        if status is None:
            child.send_signal(signal.SIGKILL)
            child.wait(Deadline.after(1.0))
        stdout, stderr = (os.pread(stream.fileno(), os.fstat(stream.fileno()).st_size, 0) for stream in (out, err))
    if status is None:
        raise InternalError(
            f"{argv[0]!r} did not end within {deadline.budget_s:g} s and was killed",
            seen=stderr.decode(errors="replace").strip().rpartition("\n")[2] or None,
        )
    return subprocess.CompletedProcess(list(argv), status, stdout, stderr)


def _memory_file(name: str) -> contextlib.AbstractContextManager[_MemoryFile]:
    return contextlib.closing(_MemoryFile(name))


class _MemoryFile:
    """Takes a program's output whatever its size, without a pipe that somebody must drain."""

    def __init__(self, name: str) -> None:
        self._fd = os.memfd_create(name)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None)


def _start_local(argv: Sequence[str], stdout: int, stderr: int) -> LocalChild:
    parent = os.getpid()

    def die_with_parent() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=child_environment(),
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    except OSError as error:
        raise InternalError(
            f"cannot start {argv[0]!r}: {error.strerror}", hint=f"install the program, or put it into PATH: {argv[0]}"
        ) from error
    return LocalChild(process)
