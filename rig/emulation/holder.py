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
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rig.emulation import network
from rig.emulation.linux import MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_REC, mount
from rig.emulation.messages import DisconnectedError, Message, ask, failed, ok, receive_message, send_message
from rig.emulation.qemu import EmulatedBoard, EmulatorError
from rig.emulation.relay import RelayPorts, run_relay
from rig.emulation.serial_line import open_terminal, run_serial_line
from rig.emulation.sshd import JetsonFiles, run_jetson

_PART_ANSWER_S = 2.0
_SSHD_START_S = 10.0
_TERM_GRACE_S = 1.0


@dataclass(frozen=True)
class Settings:
    """What the controller hands to the bench. uid, gid: its own; rules: the bench file's impairments as JSON."""

    name: str
    state: str
    rom: str
    uid: int
    gid: int
    controller_pid: int
    control_fd: int
    lock_fd: int
    listen_fd: int
    """Listening socket for clients that join; -1 on a private bench."""
    rules: list[dict[str, Any]]

    @classmethod
    def from_json(cls, text: str) -> Settings:
        return cls(**json.loads(text))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def fds(self) -> list[int]:
        """The inherited descriptors, the control socket first."""
        return [fd for fd in (self.control_fd, self.lock_fd, self.listen_fd) if fd >= 0]


class SetupError(Exception):
    """Part of the bench did not come up."""

    def __init__(self, what: str, seen: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what, self.seen, self.hint = what, seen, hint


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
        self._parts: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._orphans: list[_SpawnedChild] = []
        self._link_up = True
        self._selector = selectors.DefaultSelector()
        self._build(privileged)

    # --- set-up, in the order that lets the slow starters run side by side --------------------------------------------

    def _build(self, privileged: bool) -> None:
        settings, state = self._settings, Path(self._settings.state)
        run = state / "run"
        mount("none", Path("/"), "", MS_REC | MS_PRIVATE)
        mount("proc", Path("/proc"), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        with contextlib.suppress(OSError):  # where parts of it are masked; nothing here depends on it
            mount("sysfs", Path("/sys"), "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        mount("tmpfs", run, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")

        uart, uart_emulator = socket.socketpair()
        wire, wire_emulator = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._board = EmulatedBoard(
            Path(settings.rom), state / "ddr.img", run / "qemu.log", uart_emulator, wire_emulator, network.BOARD_MAC
        )
        self._board.start()

        files = JetsonFiles(run / "jetson", state / "host_key", state / "user_key", run / "sshd.log")
        files.run.mkdir()
        ready, ready_jetson = os.pipe()
        links_wait, links_moved = os.pipe()
        jetson = self._fork("sshd", run_jetson, files, settings.uid, settings.gid, privileged, ready_jetson, links_wait)
        os.close(ready_jetson)
        os.close(links_wait)
        if os.read(ready, 1) != b"1":
            raise SetupError("the emulated Jetson could not make its network namespace")
        network.build_segment(jetson)
        os.write(links_moved, b"1")

        controller, self._terminal = open_terminal()
        self._serial, serial_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._fork("serial line", run_serial_line, serial_theirs, uart, uart_emulator, controller, self._terminal)
        self._relay, relay_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._fork("relay", run_relay, relay_theirs, wire, RelayPorts())
        for theirs in (serial_theirs, relay_theirs, uart, wire):
            theirs.close()
        os.close(controller)

        signal.set_wakeup_fd(self._watch_children())
        self._ask_part("relay", {"op": "rules", "rules": settings.rules})
        self._ask_part("serial line", {"op": "counters"})
        if os.read(ready, 1) != b"2":  # an attempt before its link is up would wait a second for the next ARP request
            raise SetupError("the emulated Jetson could not configure its links")
        for fd in (ready, links_moved):
            os.close(fd)
        self._await_sshd(files.log)
        self._board.wait_started()

    def _fork(self, name: str, work: Callable[..., None], *arguments: Any) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                work(*arguments)
            except BaseException:  # noqa: BLE001 - nothing may return into the parent's code
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        self._parts[name] = pid
        return pid

    def _watch_children(self) -> int:
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        os.set_blocking(read_end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(read_end, selectors.EVENT_READ, lambda: self._children_ended(read_end))
        return write_end

    def _await_sshd(self, log: Path) -> None:
        address = (network.JETSON_MANAGEMENT_ADDRESS, network.JETSON_SSH_PORT)
        end = time.monotonic() + _SSHD_START_S
        while True:
            self._reap()
            with contextlib.suppress(OSError), socket.create_connection(address, timeout=1.0) as probe:
                if probe.recv(4) == b"SSH-":
                    return
            if "sshd" in self._ended or time.monotonic() > end:
                lines = log.read_text(errors="replace").splitlines() if log.exists() else []
                raise SetupError(
                    f"sshd of the emulated Jetson did not come up within {_SSHD_START_S:.0f} s"
                    if "sshd" not in self._ended
                    else f"sshd of the emulated Jetson ended with status {self._ended['sshd']}",
                    seen=lines[-1] if lines else "",
                )
            time.sleep(0.002)

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
            handler = self._operations().get(request["op"])
            if handler is None:
                send_message(client.sock, failed(f"the bench knows no operation {request['op']!r}"))
                return
            try:
                answer, out_fds = handler(client, request, fds)
            except (SetupError, EmulatorError, OSError) as error:
                code = error.errno if isinstance(error, OSError) else None
                answer, out_fds = _failure(error) | {"errno": code}, ()
                if isinstance(error, OSError):
                    answer["error"] = str(error)
            if answer:
                send_message(client.sock, answer, out_fds)
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
                self._restore()

    def _restore(self) -> None:
        self._ask_part("relay", {"op": "rules", "rules": self._settings.rules})
        self._board.set_boot0(False)
        if self._board.in_reset:
            self._set_reset(False)
        self._set_power(True)
        self._set_link(True)

    # --- operations -------------------------------------------------------------------------------------------------

    def _operations(self) -> dict[str, Callable[[_Client, Message, tuple[int, ...]], tuple[Message, tuple[int, ...]]]]:
        return {
            "hello": lambda *_: (ok(terminal=self._terminal), ()),
            "status": lambda *_: (ok(**self._status()), ()),
            "counters": lambda *_: (ok(relay=self._relay_counters(), serial=self._serial_counters()), ()),
            "spawn": self._spawn,
            "signal": self._signal,
            "connect": self._connect,
            "reset": self._line(self._set_reset),
            "boot": self._line(lambda on: self._board.set_boot0(on)),
            "power": self._line(self._set_power),
            "link": self._line(self._set_link),
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

    def _set_reset(self, asserted: bool) -> None:
        self._ask_part("serial line", {"op": "board", "listens": False})
        self._board.set_reset(asserted)
        self._let_board_listen()

    def _let_board_listen(self) -> None:
        listens = self._board.running() and not self._board.in_reset
        self._ask_part("serial line", {"op": "board", "listens": listens})

    def _set_power(self, on: bool) -> None:
        if on and not self._board.running():
            self._board.power_off()  # after a crash of the emulator: forget the old one
            self._ended.pop("emulator", None)
            self._board.start()
            self._board.wait_started()
            if not self._link_up:
                self._board.set_link(False)
        elif not on:
            self._board.power_off()
            self._ask_part("relay", {"op": "forget"})
        self._let_board_listen()
        network.set_board_cable(on and self._link_up)

    def _set_link(self, up: bool) -> None:
        self._link_up = up
        self._board.set_link(up)
        network.set_board_cable(up and self._board.running())

    def _impairment(self, client: _Client, request: Message, _: tuple[int, ...]) -> tuple[Message, tuple[int, ...]]:
        client.touched = True
        return self._ask_part("relay", {"op": "rules", "rules": request["rules"]}), ()

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
                    send_message(client.sock, failed(os.strerror(result), errno=result))
                else:
                    send_message(client.sock, ok(), (sock.fileno(),))
            sock.close()

        self._selector.register(sock, selectors.EVENT_WRITE, finished)
        self._after(request["timeout_s"], functools.partial(finished, timed_out=True))
        return {}, ()

    def _status(self) -> Message:
        return {
            "name": self._settings.name,
            "since": self._since,
            "terminal": self._terminal,
            "power": self._board.running(),
            "in_reset": self._board.in_reset,
            "boot0": self._board.boot0,
            "link": self._link_up,
            "clients": len(self._clients) - 1,
            "ended_parts": self._ended,
            "relay": self._relay_counters(),
            "serial": self._serial_counters(),
        }

    def _relay_counters(self) -> Message:
        counters: Message = self._ask_part("relay", {"op": "counters"})["counters"]
        return counters

    def _serial_counters(self) -> Message:
        counters: Message = self._ask_part("serial line", {"op": "counters"})["counters"]
        return counters

    def _ask_part(self, name: str, request: Message) -> Message:
        sock = self._relay if name == "relay" else self._serial
        try:
            answer = ask(sock, request, _PART_ANSWER_S)
        except (DisconnectedError, TimeoutError) as error:
            self._reap()
            ended = f"ended with status {self._ended[name]}" if name in self._ended else "does not answer"
            raise SetupError(f"the {name} of the emulated bench {ended}", hint="start the bench again") from error
        return answer

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
        for name, part in self._parts.items():
            if part == pid:
                self._ended[name] = code
        if self._board.process is not None and self._board.process.pid == pid:
            self._board.process.returncode = code
            self._ended["emulator"] = code
            network.set_board_cable(False)
        for client in self._clients.values():
            child = client.children.pop(pid, None)
            if child is not None:
                child.ended(code)
        for child in self._orphans:
            if child.process.pid == pid:
                child.ended(code)
        self._orphans = [child for child in self._orphans if child.process.returncode is None]


def _kill(process: subprocess.Popen[bytes], signum: int) -> None:
    """Signal a child's whole session; harmless once it has ended."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signum)
