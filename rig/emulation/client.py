"""The controller's side of an emulated bench: requests to its holder, and the `Host` that runs things inside it."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rig.bench.host import child_environment, run_to_end
from rig.deadline import Deadline
from rig.emulation.messages import DisconnectedError, Message, receive_message, send_message
from rig.errors import InternalError

_ANSWER_S = 15.0
"""The holder answers at once or after its own, shorter, limits; beyond this it is stuck."""


_HINT = "a part of the emulated bench is stopped, overloaded or gone: see `rig bench status`, then run again"


class RequestError(Exception):
    """The holder refused or could not do it. message: its answer."""

    def __init__(self, message: Message) -> None:
        super().__init__(message["error"])
        self.message = message


class HolderClient:
    """One connection to the holder; safe to use from several threads. Closing it ends what was started through it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)

    def close(self) -> None:
        self._sock.close()

    def ask(
        self, op: str, *, fds: tuple[int, ...] = (), patience_s: float = _ANSWER_S, **fields: Any
    ) -> tuple[Message, tuple[int, ...]]:
        """One request; returns answer and passed descriptors.

        Raises RequestError, DisconnectedError when the bench has ended, InternalError when it does not answer.
        """
        with self._lock:
            if self._sock.fileno() < 0:
                raise DisconnectedError
            number = next(self._numbers)
            send_message(self._sock, {"op": op, "number": number, **fields}, fds)
            answer, out_fds = self._receive(op, patience_s)
            while answer.get("number", number) != number:
                # That of a request whose asker was interrupted while it waited.
                for fd in out_fds:
                    os.close(fd)
                answer, out_fds = self._receive(op, patience_s)
        answer.pop("number", None)
        if not answer["ok"]:
            raise RequestError(answer)
        return answer, out_fds

    def _receive(self, op: str, patience_s: float) -> tuple[Message, tuple[int, ...]]:
        if not select.select([self._sock], [], [], patience_s)[0]:
            self._sock.close()
            raise InternalError(f"the emulated bench did not answer to {op!r} within {patience_s:g} s", hint=_HINT)
        return receive_message(self._sock)

    def do(self, op: str, **fields: Any) -> Message:
        """A request whose failure is the bench's own: raises InternalError."""
        try:
            return self.ask(op, **fields)[0]
        except RequestError as error:
            seen, hint = error.message.get("seen") or None, error.message.get("hint") or _HINT
            raise InternalError(f"{error.message['error']} (asked for: {op})", seen=seen, hint=hint) from error
        except DisconnectedError as error:
            raise bench_ended() from error


def bench_ended() -> InternalError:
    return InternalError(
        "the emulated bench has ended while it was in use",
        hint="was it stopped (`rig bench up` interrupted), or killed for want of memory? Start the run again",
    )


class HolderChild:
    """A process inside the bench (`rig.bench.host.Child`)."""

    def __init__(self, client: HolderClient, pid: int, exit_fd: int) -> None:
        self._client = client
        self._pid = pid
        self._exit_fd = exit_fd
        self._status: int | None = None

    @property
    def pid(self) -> int:
        return self._pid

    def poll(self) -> int | None:
        return self._collect(0)

    def wait(self, deadline: Deadline) -> int | None:
        return self._collect(deadline.left())

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(DisconnectedError):
                self._client.ask("signal", pid=self._pid, signum=int(signum))

    def _collect(self, timeout_s: float) -> int | None:
        if self._status is None and select.select([self._exit_fd], [], [], timeout_s)[0]:
            data = os.read(self._exit_fd, 4)
            # No status but an end of file: the bench ended, and the kernel killed all that was in it.
            self._status = struct.unpack("<i", data)[0] if data else -signal.SIGKILL
            os.close(self._exit_fd)
        return self._status

    def __del__(self) -> None:
        if self._status is None:
            with contextlib.suppress(OSError):
                os.close(self._exit_fd)


class HolderHost:
    """The rig's side of an emulated bench (`rig.bench.host.Host`): the holder starts programs and opens sockets."""

    def __init__(self, client: HolderClient) -> None:
        self._client = client

    def spawn(self, argv: Sequence[str], *, stdout: Path, stderr: Path) -> HolderChild:
        with stdout.open("ab") as out, stderr.open("ab") as err:
            return self._start(argv, out.fileno(), err.fileno())

    def run(self, argv: Sequence[str], deadline: Deadline) -> subprocess.CompletedProcess[bytes]:
        return run_to_end(self._start, argv, deadline)

    def connect(self, address: tuple[str, int], deadline: Deadline) -> socket.socket:
        host, port = address
        left = deadline.left()
        try:
            _, fds = self._client.ask("connect", host=host, port=port, timeout_s=left, patience_s=left + _ANSWER_S)
        except RequestError as error:
            raise OSError(error.message.get("errno"), error.message["error"]) from error
        except DisconnectedError as error:
            raise bench_ended() from error
        return socket.socket(fileno=fds[0])

    def _start(self, argv: Sequence[str], stdout: int, stderr: int) -> HolderChild:
        try:
            answer, fds = self._client.ask(
                "spawn", fds=(stdout, stderr), argv=list(argv), env=child_environment(), cwd=str(Path.cwd())
            )
        except RequestError as error:
            raise InternalError(
                f"cannot start {argv[0]!r} on the emulated bench: {error.message['error']}",
                hint=f"install the program, or put it into PATH: {argv[0]}",
            ) from error
        except DisconnectedError as error:
            raise bench_ended() from error
        return HolderChild(self._client, answer["pid"], fds[0])
