"""A controller in a terminal of its own, as an engineer sits at it, and everything here that belongs to it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import subprocess
import termios
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0
GONE_S = 30.0
KINDS = ("pid", "net", "mnt", "user")


class Controller:
    """Context manager. Its descendants carry a mark in their environment, or live in namespaces that those made."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._mark = f"RIG_TEST_MARK={uuid.uuid4().hex}"
        self._terminal, inner = pty.openpty()
        self._leaving, self._leave = os.pipe()
        name, _, value = self._mark.partition("=")
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environment, name: value, "TERM": "xterm", "COLUMNS": "120"},
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            preexec_fn=_sit_down,
        )
        os.close(inner)
        self._text = ""
        self._news = threading.Condition()
        self._closed = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.hang_up()

    @property
    def text(self) -> str:
        with self._news:
            return self._text

    def wait_for(self, text: str) -> bool:
        """Wait until `text` is on the terminal; False when the controller ended without it."""
        end = time.monotonic() + PATIENCE_S
        with self._news:
            while text not in self._text:
                if self._closed:
                    return False
                assert self._news.wait(end - time.monotonic()), f"{text!r} did not come:\n{self._text[-2000:]}"
        return True

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """For what no terminal shows: poll until it holds or the controller has ended."""
        end = time.monotonic() + PATIENCE_S
        while not condition() and self.process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.005)

    def press_ctrl_c(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._terminal, b"\x03")

    def hang_up(self) -> None:
        """The terminal is gone: the kernel sends SIGHUP, and whoever still writes to it gets EIO."""
        if self._terminal >= 0:
            # As long as somebody reads from it a terminal is not closed, and who writes nothing wakes no reader.
            os.write(self._leave, b"\n")
            self._reader.join()
            for descriptor in (self._terminal, self._leaving, self._leave):
                os.close(descriptor)
            self._terminal = -1

    def members(self) -> dict[int, str]:
        """Process id → command line, of the controller itself and of all that it has brought up."""
        marked = [pid for pid in _pids() if self._mark.encode() in _read(pid, "environ").split(b"\0")]
        own = {kind: _namespace(os.getpid(), kind) for kind in KINDS}
        made = {(k, name) for pid in marked for k in KINDS if (name := _namespace(pid, k)) not in ("", own[k])}
        return processes_in(made) | {pid: _command(pid) for pid in marked}

    def _read(self) -> None:
        while True:
            data = b""
            ready, _, _ = select.select([self._terminal, self._leaving], [], [])
            with contextlib.suppress(OSError):
                data = b"" if self._leaving in ready else os.read(self._terminal, 4096)
            with self._news:
                self._text += data.decode(errors="replace")
                self._closed = not data
                self._news.notify_all()
            if not data:
                return


def _sit_down() -> None:
    """The terminal is ours, and no signal is ignored: who started these tests in the background had some ignored."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)


def processes_in(namespaces: set[tuple[str, str]]) -> dict[int, str]:
    """Process id → command line, of every process in one of these namespaces, which somebody must still keep.

    The kernel gives the number of a namespace that is gone to the next one that is made.
    """
    kinds = {kind for kind, _ in namespaces}
    return {pid: _command(pid) for pid in _pids() if any((kind, _namespace(pid, kind)) in namespaces for kind in kinds)}


@dataclass(frozen=True)
class Members:
    """Processes at one moment, told from later ones with the same ids by their start times.

    PID 1 of a bench is among them. Once it has ended, the kernel has ended everything else in its namespaces, and with
    the last process a namespace without a name is gone.
    """

    started: dict[int, tuple[str, str]]

    @classmethod
    def of(cls, processes: Iterable[int]) -> Members:
        return cls({pid: (_start(pid), _command(pid)) for pid in processes})

    def left(self) -> dict[int, str]:
        return {pid: command for pid, (start, command) in self.started.items() if start and _start(pid) == start}


def left_of(controller: Controller, before: Members) -> dict[int, str]:
    """What still runs GONE_S after the controller's end; SIGKILL leaves the work to the kernel: that takes a moment."""
    end = time.monotonic() + GONE_S
    while left := controller.members() | before.left():
        if time.monotonic() > end:
            break
        time.sleep(0.02)
    return left


def is_free(lock: Path) -> bool:
    """Whether nobody holds the flock on a file."""
    with lock.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


def _start(pid: int) -> str:
    """Start time of a process (proc_pid_stat(5), field 22); empty when it is gone or only waits to be reaped."""
    fields = _read(pid, "stat").decode(errors="replace").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""


def _command(pid: int) -> str:
    return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace")[:200]


def _namespace(pid: int, kind: str) -> str:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/{kind}").readlink())
    return ""
