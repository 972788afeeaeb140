"""The Jetson as the place where a capture runs (`rig.bench.host.Host`): capture point `jetson`.

Programs run there under an uploaded keeper (keeper.py), which ends with the connection. What they write stays on the
Jetson until it is asked for, so that no bulk transfer disturbs the traffic that is measured.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import queue
import socket
import subprocess
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rig.deadline import Deadline
from rig.errors import InternalError, JetsonError
from rig.jetson.session import JetsonSession, RemoteProcess

if TYPE_CHECKING:
    import paramiko

ALIVE_S: Final = 10.0
"""An order at least this often, or the keeper takes the rig for dead (keeper.SILENCE_S)."""
ANSWER_S: Final = 10.0
"""A keeper answers at once; beyond this it or its machine is frozen."""

_MARK = b"@rig "
_SHELL = ("sh", "-c", 'PATH="$PATH:/usr/sbin:/sbin" exec "$@"', "sh")
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # exit status of a shell, POSIX XCU 2.8.2


class JetsonHost:
    """Runs programs on the Jetson. Local files of `spawn` get stderr at once and stdout when `fetch` is called."""

    def __init__(self, session: JetsonSession) -> None:
        self._session = session
        self._children: list[JetsonChild] = []
        self._sftp: paramiko.SFTPClient | None = None

    @property
    def where(self) -> str:
        """`user@host:port`, for messages."""
        return self._session.where

    def spawn(self, argv: Sequence[str], *, stdout: Path, stderr: Path) -> JetsonChild:
        deadline = Deadline.after(ANSWER_S)
        keeper = self._session.path(f"keeper-{_keeper_sha256()[:16]}.py")
        if not self._session.has(keeper, len(_keeper_source()), deadline):
            self._session.put(_keeper_source(), keeper, deadline)
        python = self._session.jetson.python.removeprefix("~/")
        process = self._session.start([python, keeper, self._session.path("captures"), *argv], deadline)
        child = JetsonChild(self._session, process, argv[0], stdout, stderr)
        try:
            child.wait_started(deadline)
        except BaseException:
            child.close()
            raise
        self._children.append(child)
        return child

    def run(self, argv: Sequence[str], deadline: Deadline) -> subprocess.CompletedProcess[bytes]:
        result = self._session.run([*_SHELL, *argv], deadline)
        if result.status in (_NOT_FOUND, _NOT_EXECUTABLE):
            raise InternalError(
                f"cannot start {argv[0]!r} on {self.where}: "
                + ("no such program" if result.status == _NOT_FOUND else "permission denied"),
                seen=result.stderr.decode("utf-8", "replace").strip() or None,
                hint=f"install the program on the Jetson, or put it into PATH there: {argv[0]}",
            )
        return subprocess.CompletedProcess(list(argv), result.status, result.stdout, result.stderr)

    def connect(self, address: tuple[str, int], deadline: Deadline) -> socket.socket:
        raise InternalError(f"no connection is made from the Jetson, and one to {address[0]} was asked for")

    def fetch(self, deadline: Deadline) -> None:
        """Bring the local copies of stdout up to date. JetsonError when that fails."""
        for child in self._children:
            if child.announced is None or child.fetched < child.announced["bytes"]:
                with self._session.within(deadline, "fetching the capture") as transport:
                    child.fetch(self._files(transport))

    def close(self) -> None:
        """End what still runs and remove what it left on the Jetson."""
        for child in self._children:
            child.close()
        self._children.clear()
        if self._sftp is not None:
            self._sftp.close()
            self._sftp = None

    def _files(self, transport: paramiko.Transport) -> paramiko.SFTPClient:
        import paramiko

        if self._sftp is None:
            self._sftp = paramiko.SFTPClient.from_transport(transport)
            if self._sftp is None:
                raise paramiko.SSHException("the SSH server offers no SFTP")
        return self._sftp


class JetsonChild:
    """A program on the Jetson (`rig.bench.host.Child`). fetched: bytes of its output that are here."""

    def __init__(
        self, session: JetsonSession, process: RemoteProcess, program: str, stdout: Path, stderr: Path
    ) -> None:
        self._session = session
        self._process = process
        self._program = program
        self._stdout, self._stderr = stdout, stderr
        self._remote = ""
        self._pid = 0
        self._noise = ""
        self._file: paramiko.SFTPFile | None = None
        self._digest = hashlib.sha256()
        self._closed = threading.Event()
        self.fetched = 0
        self.announced: dict[str, Any] | None = None
        """What the keeper said at the end: `status`, `bytes`, `sha256`, `clock`."""
        self.faults: list[str] = []
        for path in (stdout, stderr):
            path.touch()

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def clock(self) -> dict[str, int] | None:
        """The Jetson's wall clock against its monotonic one, as `rig.capture.clock` sums it up; after the end."""
        return dict(self.announced["clock"]) if self.announced else None

    def wait_started(self, deadline: Deadline) -> None:
        """InternalError when the program cannot be started there, JetsonError when the keeper cannot."""
        while not self._pid:
            said = self._next(deadline)
            if said is None:
                status = self._process.wait(deadline.at_most(1.0))
                raise JetsonError(
                    f"the capture's keeper on {self._session.where} ended with status {status} before it began",
                    seen=self._process.stderr_tail or self._noise or None,
                    hint=f"check that `{self._session.jetson.python}` (jetson.python) is a Python 3.6 or later there",
                )
            if said["event"] == "refused":
                what = f"cannot start {self._program!r} on {self._session.where}: {said['what']}"
                if said["missing"]:
                    raise InternalError(what)
                raise JetsonError(what, hint=f"check owner and mode of {self._session.jetson.work_dir} there")
        threading.Thread(target=self._stay_alive, name="capture-alive", daemon=True).start()

    def poll(self) -> int | None:
        """Raises JetsonError when the connection was lost: nobody knows what became of the program."""
        with contextlib.suppress(queue.Empty):
            while self.announced is None:
                self._take(self._process.lines.get_nowait())
        return None if self.announced is None else int(self.announced["status"])

    def wait(self, deadline: Deadline) -> int | None:
        while self.announced is None:
            try:
                line = self._process.lines.get(timeout=max(0.001, deadline.left()))
            except queue.Empty:
                return None
            self._take(line)
        return int(self.announced["status"])

    def send_signal(self, signum: int) -> None:
        with contextlib.suppress(JetsonError):
            if self.poll() is None:
                self._process.write(b"signal %d\n" % signum, Deadline.after(ANSWER_S))

    def fetch(self, files: paramiko.SFTPClient) -> None:
        """Append what is new to the local file."""
        if self._file is None:
            self._file = files.open(self._remote, "rb")
        size = self._file.stat().st_size or 0
        if size <= self.fetched:
            return
        self._file.seek(self.fetched)
        self._file.prefetch(size)
        with self._stdout.open("ab") as local:
            while self.fetched < size:
                block = self._file.read(min(size - self.fetched, 1 << 18))
                if not block:
                    break
                try:
                    local.write(block)
                except OSError as error:
                    raise InternalError(f"cannot write {self._stdout}: {error.strerror}", hint="make room") from error
                self._digest.update(block)
                self.fetched += len(block)

    def mismatch(self) -> str | None:
        """After the end: what is wrong with the local copy, None when size and SHA-256 are as the keeper has them."""
        if self.announced is None:
            return f"the keeper on {self._session.where} never said how the capture ended"
        if (self.fetched, self._digest.hexdigest()) == (self.announced["bytes"], self.announced["sha256"]):
            return None
        return (
            f"the capture from {self._session.where} arrived with {self.fetched} bytes and SHA-256 "
            f"{self._digest.hexdigest()[:16]}…, announced were {self.announced['bytes']} and "
            f"{self.announced['sha256'][:16]}…"
        )

    def close(self) -> None:
        """End the program, if it still runs, and remove its folder on the Jetson."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._session.alive:
            with contextlib.suppress(JetsonError):
                self._process.write(b"bye\n", Deadline.after(ANSWER_S))
                self._process.wait(Deadline.after(ANSWER_S))
        self._process.close()

    def _stay_alive(self) -> None:
        while not self._closed.wait(ALIVE_S):
            with contextlib.suppress(JetsonError):
                self._process.write(b"alive\n", Deadline.after(ANSWER_S))

    def _next(self, deadline: Deadline) -> dict[str, Any] | None:
        """The keeper's next event; None when it has ended."""
        while True:
            try:
                line = self._process.lines.get(timeout=max(0.001, deadline.left()))
            except queue.Empty:
                raise JetsonError(
                    f"the capture's keeper on {self._session.where} did not start within {deadline.budget_s:g} s",
                    seen=self._process.stderr_tail or self._noise or None,
                ) from None
            if line is None:
                return None
            said = self._understand(line)
            if said is not None:
                return said

    def _take(self, line: bytes | None) -> None:
        if line is None:
            self._process.lines.put(None)  # for whoever asks again
            raise JetsonError(
                f"the connection to {self._session.where} was lost while {self._program} recorded there"
                if not self._session.alive
                else f"the capture's keeper on {self._session.where} ended by itself",
                seen=self._process.stderr_tail or None,
                hint="check the Jetson's power, memory and management link; what it had recorded is lost",
            )
        self._understand(line)

    def _understand(self, line: bytes) -> dict[str, Any] | None:
        said = _parse(line)
        if said is None:
            self._noise = line.decode("utf-8", "replace").strip() or self._noise
            return None
        if said["event"] == "kept":
            self._remote = said["output"]
        elif said["event"] == "started":
            self._pid = said["pid"]
        elif said["event"] == "stderr":
            with self._stderr.open("a", encoding="utf-8") as stream:
                stream.write(said["line"] + "\n")
        elif said["event"] == "fault":
            self.faults.append(f"{said['what']} (on {self._session.where})")
        elif said["event"] == "ended":
            self.announced = said
        return said


@cache
def _keeper_source() -> bytes:
    return Path(__file__).with_name("keeper.py").read_bytes()


@cache
def _keeper_sha256() -> str:
    return hashlib.sha256(_keeper_source()).hexdigest()


def _parse(line: bytes) -> dict[str, Any] | None:
    """A line of the keeper; None for anything else that a login shell prints."""
    if not line.startswith(_MARK):
        return None
    try:
        said = json.loads(line[len(_MARK) :])
    except ValueError:
        return None
    return said if isinstance(said, dict) and isinstance(said.get("event"), str) else None
