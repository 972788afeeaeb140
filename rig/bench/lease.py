"""The rig-side half of the bench lock: one controller at a time on one bench, told apart by the bench's name.

An flock on a file in the state folder: the kernel drops it with the process, however that ended, so it never goes
stale. The file's content only names the holder for the message that the second one gets.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import socket
import sys
from pathlib import Path
from types import TracebackType
from typing import IO

from rig.errors import BenchError, InternalError
from rig.record import utc_now


def state_folder(bench: str) -> Path:
    """The folder of a bench's lasting state (XDG base directory specification): lease, emulated flash, keys."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "rig" / bench


class BenchLease:
    """Context manager that holds the bench; raises BenchError naming the holder when it is busy."""

    def __init__(self, bench: str) -> None:
        self._bench = bench
        self._path = state_folder(bench) / "lease"
        self._file: IO[str] | None = None

    def __enter__(self) -> BenchLease:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            stream = self._path.open("a+", encoding="utf-8")
        except OSError as error:
            raise InternalError(
                f"cannot open the lease file {self._path}: {error.strerror}",
                hint="make the folder writable, or set XDG_STATE_HOME to one that is",
            ) from error
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            stream.seek(0)
            seen = stream.read()
            stream.close()
            raise BenchError(
                f"bench {self._bench!r} is busy: held by {_holder(seen)}",
                hint="wait for that run to end, or name another bench with --bench",
            ) from error
        stream.truncate(0)
        json.dump(
            {
                "user": _user(),
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
                "since": utc_now(),
            },
            stream,
        )
        stream.flush()
        self._file = stream
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()
            self._file = None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an id without an account, as containers have them
        return f"uid {os.getuid()}"


def _holder(content: str) -> str:
    try:
        held = json.loads(content)
        return f"{held['user']}@{held['host']} (pid {held['pid']}, `{held['command']}`) since {held['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process that has not said who it is yet"
