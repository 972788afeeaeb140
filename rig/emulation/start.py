"""Finding an emulated bench that is up, and starting one: sockets, lock and the launcher process."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

from rig.bench.host import child_environment
from rig.emulation.client import HolderClient
from rig.emulation.impair import Rule, rule_to_json
from rig.emulation.parts import Settings
from rig.emulation.state import BenchState
from rig.errors import BenchError, InternalError

_END_S = 5.0


def join_bench(state: BenchState) -> HolderClient | None:
    """A connection to the bench of this state folder if one was brought up for others, else None."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.connect(state.control_address)
    except OSError:
        sock.close()
        return None
    uid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    if uid != os.getuid():  # anyone can take an abstract address
        sock.close()
        raise BenchError(f"the address of bench {state.name!r} is taken by a process of user id {uid}")
    return HolderClient(sock)


def start_bench(
    state: BenchState, rom: Path, rules: list[Rule], listener: socket.socket | None, *, mirror_copies: int = 1
) -> tuple[HolderClient, Launcher]:
    """Start a bench, which comes up while this returns; its answer to `hello` says that it is ready or why it is not.

    listener: unbound socket on which others may join. mirror_copies: see `relay.RelayPorts`. Raises BenchError when the
    state folder is in use, InternalError when something that it takes is missing or this is not the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise InternalError(
            "an emulated bench was to be started from a thread that is not the main one",
            hint="open it from the main thread: the kernel ends it with the thread that started it",
        )
    if not rom.exists():
        raise InternalError(
            f"the boot ROM of the emulated board is missing: {rom}", hint="run ./bench once: it builds it"
        )
    lock_fd = state.lock()
    try:
        state.make_keys()
        if listener is not None:
            listener.bind(state.control_address)
            listener.listen()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            settings = Settings(
                name=state.name,
                state=str(state.folder),
                rom=str(rom),
                uid=os.getuid(),
                gid=os.getgid(),
                controller_pid=os.getpid(),
                control_fd=theirs.fileno(),
                lock_fd=lock_fd,
                listen_fd=-1 if listener is None else listener.fileno(),
                rules=[rule_to_json(rule) for rule in rules],
                mirror_copies=mirror_copies,
            )
            return HolderClient(ours), Launcher(settings)
    finally:
        os.close(lock_fd)  # the bench holds the lock from here on


class Launcher:
    """The process that made the bench's namespaces; gone when the bench is."""

    def __init__(self, settings: Settings) -> None:
        self._log = os.memfd_create("rig-bench-log")
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("launcher.py")), settings.to_json()]
        if sys.dont_write_bytecode:
            command.insert(1, "-B")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=child_environment(),
            pass_fds=settings.fds(),
            start_new_session=True,  # Ctrl-C in the terminal is the controller's business
        )

    def end(self) -> None:
        """Wait until the bench, whose control socket is closed, is gone; kill it if that takes too long."""
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def wait(self) -> None:
        self._process.wait()

    def last_words(self) -> str | None:
        text = os.pread(self._log, 65_536, 0).decode(errors="replace").strip()
        return text.rpartition("\n")[2] or None
