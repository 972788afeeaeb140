"""PID 1 of an emulated bench: builds it, serves requests about it, ends with its controller.

A request comes as one message (see `messages`) on the controller's socket, or on that of a client that joined a bench
brought up with `rig bench up`. End of file on the controller's socket ends this process and with it, by the kernel's
hand, everything in its namespaces. Single-threaded: one selector loop. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import heapq
import itertools
import os
import selectors
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rig.emulation.messages import DisconnectedError, Message, failed, ok, receive_message, send_message
from rig.emulation.parts import BenchParts, Settings, SetupError
from rig.emulation.qemu import EmulatorError

_TERM_GRACE_S = 1.0


def run_holder(settings: Settings, control: socket.socket, privileged: bool) -> None:
    """Be PID 1 until the controller is gone. Set-up failures go to the controller as the answer to its `hello`."""
    try:
        holder = _Holder(settings, control, privileged)
    except (SetupError, EmulatorError, OSError, subprocess.CalledProcessError) as error:
        with contextlib.suppress(DisconnectedError):
            receive_message(control)
            send_message(control, _failure(error))
        return
    holder.serve()


def _failure(error: Exception) -> Message:
    if isinstance(error, SetupError):
        return failed(error.what, seen=error.seen, hint=error.hint)
    if isinstance(error, EmulatorError):
        return failed(str(error), seen=error.seen)
    if isinstance(error, subprocess.CalledProcessError):
        return failed(f"{error.cmd[0]} could not set up the bench's network", seen=error.stderr.strip())
    return failed(f"the emulated bench could not be set up: {error}")


@dataclass
class _Client:
    """One controller. touched: it changed something that must not outlive it."""

    sock: socket.socket
    children: dict[int, _SpawnedChild] = field(default_factory=dict)
    touched: bool = False


@dataclass
class _SpawnedChild:
    """exit_fd: pipe whose reader learns the exit status."""

    process: subprocess.Popen[bytes]
    exit_fd: int

    def ended(self, code: int) -> None:
        self.process.returncode = code  # or Popen would wait for a process id that may be another's by then
        with contextlib.suppress(BrokenPipeError):
            os.write(self.exit_fd, struct.pack("<i", code))
        os.close(self.exit_fd)


class _Holder:
    def __init__(self, settings: Settings, control: socket.socket, privileged: bool) -> None:
        self._settings = settings
        self._since = time.time()
        self._controller = _Client(control)
        self._clients: dict[socket.socket, _Client] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_order = itertools.count()
        self._orphans: list[_SpawnedChild] = []
        self._selector = selectors.DefaultSelector()
        self._parts = BenchParts(settings, self._reap)
        self._parts.build(privileged)
        signal.set_wakeup_fd(self._watch_children())
        self._reap()

    def _watch_children(self) -> int:
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        os.set_blocking(read_end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(read_end, selectors.EVENT_READ, lambda: self._children_ended(read_end))
        return write_end

    # --- the loop ---------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        self._add_client(self._controller)
        if self._settings.listen_fd >= 0:
            listener = socket.socket(fileno=self._settings.listen_fd)
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
        while True:
            timeout = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
            for key, _ in self._selector.select(timeout):
                key.data()
                if self._controller.sock not in self._clients:
                    return
            while self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2]()

    def _after(self, seconds: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._timer_order), work))

    def _add_client(self, client: _Client) -> None:
        self._clients[client.sock] = client
        self._selector.register(client.sock, selectors.EVENT_READ, lambda: self._serve_client(client))

    def _accept(self, listener: socket.socket) -> None:
        sock, _ = listener.accept()
        uid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        if uid != os.getuid():  # an abstract socket has no file mode
            sock.close()
            return
        self._add_client(_Client(sock))

    def _serve_client(self, client: _Client) -> None:
        fds: tuple[int, ...] = ()
        try:
            request, fds = receive_message(client.sock)
            handler = self._operations().get(request.get("op", ""))
            if handler is None:
                _answer(client, request, failed(f"the bench knows no operation {request.get('op')!r}"))
                return
            try:
                answer, out_fds = handler(client, request, fds)
            except (KeyError, TypeError, ValueError) as error:  # a client's mistake must not end the bench for others
                answer, out_fds = failed(f"malformed request {request['op']!r}: {error!r}"), ()
            except (SetupError, EmulatorError, OSError) as error:
                code = error.errno if isinstance(error, OSError) else None
                answer, out_fds = _failure(error) | {"errno": code}, ()
                if isinstance(error, OSError):
                    answer["error"] = error.strerror or str(error)
            if answer:
                _answer(client, request, answer, out_fds)
            for fd in out_fds:
                os.close(fd)
        except DisconnectedError:
            self._drop_client(client)
        finally:
            for fd in fds:
                os.close(fd)

    def _drop_client(self, client: _Client) -> None:
        """A controller is gone: end what it started and undo what it set, so that the next one finds a clean bench."""
        self._selector.unregister(client.sock)
        del self._clients[client.sock]
        client.sock.close()
        if client is self._controller:
            return
        for child in client.children.values():
            _kill(child.process, signal.SIGTERM)
            self._orphans.append(child)
            self._after(_TERM_GRACE_S, functools.partial(_kill, child.process, signal.SIGKILL))
        if client.touched:
            with contextlib.suppress(SetupError, EmulatorError, OSError):
                self._parts.restore()

    # --- operations -------------------------------------------------------------------------------------------------

    def _operations(self) -> dict[str, Callable[[_Client, Message, tuple[int, ...]], tuple[Message, tuple[int, ...]]]]:
        return {
            "hello": lambda *_: (ok(terminal=self._parts.terminal), ()),
            "status": lambda *_: (ok(**self._status()), ()),
            "counters": lambda *_: (ok(relay=self._parts.relay_counters(), serial=self._parts.serial_counters()), ()),
            "spawn": self._spawn,
            "signal": self._signal,
            "connect": self._connect,
            "reset": self._line(self._parts.set_reset),
            "boot": self._line(self._parts.set_boot),
            "power": self._line(self._parts.set_power),
            "link": self._line(self._parts.set_link),
            "impairment": self._impairment,
        }

    def _line(
        self, switch: Callable[[bool], None]
    ) -> Callable[[_Client, Message, tuple[int, ...]], tuple[Message, tuple[int, ...]]]:
        def operation(client: _Client, request: Message, _: tuple[int, ...]) -> tuple[Message, tuple[int, ...]]:
            client.touched = True
            switch(request["on"])
            return ok(), ()

        return operation

    def _impairment(self, client: _Client, request: Message, _: tuple[int, ...]) -> tuple[Message, tuple[int, ...]]:
        client.touched = True
        self._parts.set_rules(request["rules"])
        return ok(), ()

    def _spawn(self, client: _Client, request: Message, fds: tuple[int, ...]) -> tuple[Message, tuple[int, ...]]:
        stdout, stderr = fds
        process = subprocess.Popen(
            request["argv"],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=request["env"],
            cwd=request["cwd"],
            start_new_session=True,
        )
        exit_reader, exit_writer = os.pipe()
        client.children[process.pid] = _SpawnedChild(process, exit_writer)
        return ok(pid=process.pid), (exit_reader,)

    def _signal(self, client: _Client, request: Message, _: tuple[int, ...]) -> tuple[Message, tuple[int, ...]]:
        child = client.children.get(request["pid"])
        if child is not None:
            _kill(child.process, request["signum"])
        return ok(), ()

    def _connect(self, client: _Client, request: Message, _: tuple[int, ...]) -> tuple[Message, tuple[int, ...]]:
        """Answer when the connection stands or failed; others are served meanwhile."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        code = sock.connect_ex((request["host"], request["port"]))
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            raise OSError(code, os.strerror(code))

        def finished(timed_out: bool = False) -> None:
            if sock.fileno() < 0:
                return
            self._selector.unregister(sock)
            result = errno.ETIMEDOUT if timed_out else sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            sock.setblocking(True)
            with contextlib.suppress(DisconnectedError, OSError):  # the client may have gone meanwhile
                if result:
                    _answer(client, request, failed(os.strerror(result), errno=result))
                else:
                    _answer(client, request, ok(), (sock.fileno(),))
            sock.close()

        self._selector.register(sock, selectors.EVENT_WRITE, finished)
        self._after(request["timeout_s"], functools.partial(finished, timed_out=True))
        return {}, ()

    def _status(self) -> Message:
        about = {"name": self._settings.name, "since": self._since, "clients": len(self._clients) - 1}
        return about | self._parts.status()

    # --- children ---------------------------------------------------------------------------------------------------

    def _children_ended(self, wakeup: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(wakeup, 4096)
        self._reap()

    def _reap(self) -> None:
        """Collect every ended process, orphans included: that is the duty of PID 1."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._note_end(pid, os.waitstatus_to_exitcode(status))

    def _note_end(self, pid: int, code: int) -> None:
        self._parts.note_end(pid, code)
        for client in self._clients.values():
            child = client.children.pop(pid, None)
            if child is not None:
                child.ended(code)
        for child in self._orphans:
            if child.process.pid == pid:
                child.ended(code)
        self._orphans = [child for child in self._orphans if child.process.returncode is None]


def _answer(client: _Client, request: Message, answer: Message, fds: tuple[int, ...] = ()) -> None:
    """Answers carry the number of their request: who was interrupted while waiting finds the old one first."""
    send_message(client.sock, answer | {"number": request.get("number")}, fds)


def _kill(process: subprocess.Popen[bytes], signum: int) -> None:
    """Signal a child's whole session; harmless once it has ended."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signum)
