"""The night's end of a worker process: starts it, hands it one command at a time, kills it when a run hangs."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from rig.deadline import Deadline
from rig.errors import InternalError
from rig.nightly.journal import Job
from rig.nightly.worker import Settings

WORKER: Final = (sys.executable, "-m", "rig.nightly.worker")
TEARDOWN_S: Final = 45.0
"""For a worker that is told to end: a run's teardown and letting go of the bench."""


@dataclass
class Lane:
    """One worker. job: what it is at; None while it is examined or idle. deadline: when its command has to be done."""

    name: str
    bench: str
    settings: Settings
    log: Path
    job: Job | None = None
    attempt: int = 0
    busy: bool = False
    healthy: bool | None = None
    """None: not examined since the last doubt."""
    dubious: int = 0
    """INCONCLUSIVE attempts in a row."""
    program: tuple[str, ...] = WORKER
    deadline: Deadline = field(default_factory=lambda: Deadline.after(0))
    done: bool = False
    _process: subprocess.Popen[bytes] | None = None
    _log: IO[bytes] | None = None

    def fileno(self) -> int:
        """For a selector; the worker must be busy."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def send(self, command: dict[str, Any], deadline: Deadline) -> None:
        """Begin a command; the worker is started when there is none."""
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self.busy, self.deadline = True, deadline
        with contextlib.suppress(BrokenPipeError):  # its end is seen when the answer is read
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()

    def answered(self) -> bool:
        """Whether `receive` would return at once."""
        return bool(select.select([self.fileno()], [], [], 0)[0])

    def receive(self) -> dict[str, Any] | None:
        """The answer; None when the worker has ended instead."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.busy = False
        try:
            told = json.loads(line)
        except ValueError:
            self.end()
            return None
        assert isinstance(told, dict)
        return told

    def end(self) -> None:
        """End the worker in good order, and if it does not come to an end, by force."""
        process, self._process = self._process, None
        self.busy = False
        if process is not None:
            with contextlib.suppress(OSError):
                process.terminate()
            try:
                process.wait(TEARDOWN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _start(self) -> None:
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        try:
            self._log = self.log.open("ab")
            self._process = subprocess.Popen(
                [*self.program, self.settings.to_json()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=environment,
                # A Ctrl-C is the night's to hand on.
                start_new_session=True,
            )
        except OSError as error:
            raise InternalError(f"cannot start a worker for bench {self.name}: {error}") from error
