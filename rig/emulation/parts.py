"""What an emulated bench is made of, built and switched inside its namespaces: board, Jetson, links, relay, serial.

Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rig.emulation import network
from rig.emulation.linux import MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_REC, mount
from rig.emulation.messages import DisconnectedError, Message, ask
from rig.emulation.qemu import EmulatedBoard
from rig.emulation.relay import RelayPorts, run_relay
from rig.emulation.serial_line import open_terminal, run_serial_line
from rig.emulation.sshd import JetsonFiles, run_jetson

_PART_ANSWER_S = 2.0
_SSHD_START_S = 10.0


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
    mirror_copies: int = 1

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


class BenchParts:
    """The bench's parts in this process's namespaces. ended: parts that ended, which none should, and their status.

    reap: collects ended children and tells `note_end` of each.
    """

    def __init__(self, settings: Settings, reap: Callable[[], None]) -> None:
        self._settings = settings
        self._reap = reap
        self._pids: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        self._link_up = True
        self._uart, self._uart_emulator = socket.socketpair()
        self._wire, wire_emulator = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._serial, self._serial_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._relay, self._relay_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        state = Path(settings.state)
        self._run = state / "run"
        log = self._run / "qemu.log"
        self._board = EmulatedBoard(
            Path(settings.rom), state / "ddr.img", log, self._uart_emulator, wire_emulator, network.BOARD_MAC
        )

    def build(self, privileged: bool) -> None:
        """Make everything, in the order that lets the slow starters run side by side.

        Returns once sshd accepts, the board runs and the relay forwards. Raises SetupError, EmulatorError, OSError or,
        with the words of ip(8), subprocess.CalledProcessError.
        """
        self._private_mounts()
        self._board.start()
        ready, links_moved = self._start_jetson(privileged)
        self._start_serial_line()
        self._fork(
            "relay", run_relay, self._relay_theirs, self._wire, RelayPorts(mirror_copies=self._settings.mirror_copies)
        )
        for theirs in (self._serial_theirs, self._relay_theirs, self._uart, self._wire):
            theirs.close()
        self.set_rules(self._settings.rules)
        self.serial_counters()
        if os.read(ready, 1) != b"2":
            raise SetupError("the emulated Jetson could not configure its links")
        for fd in (ready, links_moved):
            os.close(fd)
        network.await_links()
        self._await_sshd()
        self._board.wait_started()

    def _private_mounts(self) -> None:
        mount("none", Path("/"), "", MS_REC | MS_PRIVATE)
        mount("proc", Path("/proc"), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        with contextlib.suppress(OSError):  # where parts of it are masked; nothing here depends on it
            mount("sysfs", Path("/sys"), "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        mount("tmpfs", self._run, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")

    def _start_jetson(self, privileged: bool) -> tuple[int, int]:
        """Returns the pipes of `run_jetson`: what it says, and what it waits for and has been given."""
        settings, state = self._settings, Path(self._settings.state)
        files = JetsonFiles(self._run / "jetson", state / "host_key", state / "user_key", self._run / "sshd.log")
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
        return ready, links_moved

    def _start_serial_line(self) -> None:
        controller, self.terminal = open_terminal()
        line = (self._uart, self._uart_emulator, controller, self.terminal)
        self._fork("serial line", run_serial_line, self._serial_theirs, *line)
        os.close(controller)

    def _fork(self, name: str, work: Callable[..., None], *arguments: Any) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                work(*arguments)
            except BaseException:  # noqa: BLE001 - nothing may return into the parent's code
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        self._pids[name] = pid
        return pid

    def _await_sshd(self) -> None:
        log = self._run / "sshd.log"
        address = (network.JETSON_MANAGEMENT_ADDRESS, network.JETSON_SSH_PORT)
        end = time.monotonic() + _SSHD_START_S
        while True:
            self._reap()
            with contextlib.suppress(OSError), socket.create_connection(address, timeout=1.0) as probe:
                if probe.recv(4) == b"SSH-":
                    return
            if "sshd" in self.ended or time.monotonic() > end:
                lines = log.read_text(errors="replace").splitlines() if log.exists() else []
                raise SetupError(
                    f"sshd of the emulated Jetson did not come up within {_SSHD_START_S:.0f} s"
                    if "sshd" not in self.ended
                    else f"sshd of the emulated Jetson ended with status {self.ended['sshd']}",
                    seen=lines[-1] if lines else "",
                )
            time.sleep(0.002)

    def set_reset(self, asserted: bool) -> None:
        self._ask_part("serial line", {"op": "board", "listens": False})
        if asserted and self._board.locked_up():
            self._board.in_reset = True
            self.set_power(True)  # the emulator has ended over it: start it again, in reset
        self._board.set_reset(asserted)
        self._let_board_listen()

    def set_boot(self, high: bool) -> None:
        self._board.set_boot0(high)

    def set_rules(self, rules: list[dict[str, Any]]) -> None:
        """Impairments for the relay, as JSON."""
        self._ask_part("relay", {"op": "rules", "rules": rules})

    def note_end(self, pid: int, code: int) -> None:
        """A child of this process ended; keeps it in mind if it is one of the parts."""
        for name, part in self._pids.items():
            if part == pid:
                self.ended[name] = code
        if self._board.process is not None and self._board.process.pid == pid:
            self._board.process.returncode = code
            if not self._board.locked_up():  # a core that locks up leaves its PHY alone
                self.ended["emulator"] = code
                network.set_board_cable(False)

    def _let_board_listen(self) -> None:
        listens = self._board.running() and not self._board.in_reset
        self._ask_part("serial line", {"op": "board", "listens": listens})

    def set_power(self, on: bool) -> None:
        if on and not self._board.running():
            self._board.power_off()  # after a crash of the emulator: forget the old one
            self.ended.pop("emulator", None)
            self._board.start()
            self._board.wait_started()
            if not self._link_up:
                self._board.set_link(False)
        elif not on:
            self._board.power_off()
            self._ask_part("relay", {"op": "forget"})
        self._let_board_listen()
        network.set_board_cable(on and self._link_up)

    def set_link(self, up: bool) -> None:
        self._link_up = up
        self._board.set_link(up)
        network.set_board_cable(up and self._board.running())

    def restore(self) -> None:
        """As the bench file wants it: its impairments, all lines released, power on, cable plugged."""
        self.set_rules(self._settings.rules)
        self.set_boot(False)
        if self._board.in_reset:
            self.set_reset(False)
        self.set_power(True)
        self.set_link(True)

    def status(self) -> Message:
        """The state of all parts, for people and for `rig bench status`."""
        return {
            "terminal": self.terminal,
            "power": self._board.running() or self._board.locked_up(),
            "in_reset": self._board.in_reset,
            "boot0": self._board.boot0,
            "link": self._link_up,
            "ended_parts": self.ended,
            "relay": self.relay_counters(),
            "serial": self.serial_counters(),
        }

    def relay_counters(self) -> Message:
        counters: Message = self._ask_part("relay", {"op": "counters"})["counters"]
        return counters

    def serial_counters(self) -> Message:
        counters: Message = self._ask_part("serial line", {"op": "counters"})["counters"]
        return counters

    def _ask_part(self, name: str, request: Message) -> Message:
        sock = self._relay if name == "relay" else self._serial
        try:
            answer = ask(sock, request, _PART_ANSWER_S)
        except (DisconnectedError, TimeoutError) as error:
            self._reap()
            ended = f"ended with status {self.ended[name]}" if name in self.ended else "does not answer"
            raise SetupError(f"the {name} of the emulated bench {ended}", hint="start the bench again") from error
        return answer
