"""The emulated board: QEMU's MPS3-AN547 (Arm AN547, Cortex-M55, LAN9118 Ethernet) and what drives its lines.

Its flash is the machine's DDR at 0x60000000 in a file of the state folder, so it outlives power; RAM does not. The
lines: reset low halts and resets the machine (QMP `stop`, `system_reset`), release lets it run (`cont`); BOOT0 is a
word of the file that the boot ROM samples; power off kills the emulator, as pulling the plug would. Nothing but that
word is written into the file while the emulator lives: it would go on running code that it has translated already.

QEMU itself keeps up to 32 received serial bytes that the firmware has not read, also across a reset. So nothing is
sent to a board in reset (see `serial_line`); what a hung firmware left unread does reach the one that starts next.

A core that faults while it enters its fault handler locks up (Arm v8-M, Lockup), as half an image makes it do. Silicon
then sits there until its next reset; QEMU ends itself. `locked_up` tells that end from all others.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

DDR_BYTES = 2 << 30
BOOT0_OFFSET = 0x00F0_0000
_QMP_TIMEOUT_S = 5.0
_LOCKUP = b"qemu: fatal: Lockup"
_LAST_GASP_S = 2.0
"""From the emulator's last output to its end: it dumps core."""


class EmulatorError(Exception):
    """The emulator did not start, ended, or does not answer; `seen` is its last word."""

    def __init__(self, what: str, seen: str = "") -> None:
        super().__init__(what)
        self.seen = seen


class EmulatedBoard:
    """One QEMU at a time. uart, network: the emulator's ends of connected socket pairs; they outlive a power cycle."""

    def __init__(self, rom: Path, ddr: Path, log: Path, uart: socket.socket, network: socket.socket, mac: str) -> None:
        self._rom, self._ddr, self._log, self._mac = rom, ddr, log, mac
        self._uart, self._network = uart, network
        self._qmp: _Qmp | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._log_begin = 0
        self.in_reset = False
        self.boot0 = False

    def start(self) -> None:
        """Switch power on: start the emulator. It runs once `wait_started` returns."""
        _drain(self._uart)
        _drain(self._network)
        with self._ddr.open("ab") as ddr:
            ddr.truncate(DDR_BYTES)
        self.set_boot0(self.boot0)
        ours, theirs = socket.socketpair()
        fds = [self._uart.fileno(), self._network.fileno(), theirs.fileno()]
        with theirs, self._log.open("ab") as log:
            self._log_begin = log.tell()
            self.process = subprocess.Popen(
                _command(self._rom, self._ddr, self._mac, *fds) + (["-S"] if self.in_reset else []),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=fds,
                start_new_session=True,
            )
        self._qmp = _Qmp(ours)

    def wait_started(self) -> None:
        """Raises EmulatorError when the emulator does not come up; a board that locks up at once is up all the same."""
        try:
            if self._qmp is None:
                raise EOFError("no monitor")
            self._qmp.greet()
        except (OSError, EOFError) as error:
            if self.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(_LAST_GASP_S)
            if self.locked_up():
                return
            self.power_off()
            raise EmulatorError(f"the emulated board did not start: {error}", self._last_words()) from error

    def power_off(self) -> None:
        """Kill the emulator and wait for its end. The flash file keeps what was written."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = None
        if self._qmp is not None:
            self._qmp.close()
        self._qmp = None

    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def locked_up(self) -> bool:
        """Whether the core has locked up since power was switched on: only reset or power bring it back."""
        if self.process is None or self.process.poll() is None:
            return False
        with self._log.open("rb") as log:
            log.seek(self._log_begin)
            return _LOCKUP in log.read()

    def set_reset(self, asserted: bool) -> None:
        """Hold the board in reset or let it go. Raises EmulatorError."""
        if asserted == self.in_reset:
            return
        self.in_reset = asserted
        if not self.running():
            return
        if asserted:
            self._execute("stop")
            self._execute("system_reset", event="RESET")
            return
        try:
            self._execute("cont")
        except EmulatorError:
            # The first instructions may lock the core up, and the emulator ends before it has answered.
            if self.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(_LAST_GASP_S)
            if not self.locked_up():
                raise

    def set_boot0(self, high: bool) -> None:
        """The level that the boot ROM finds at its next start."""
        self.boot0 = high
        fd = os.open(self._ddr, os.O_WRONLY)
        try:
            os.pwrite(fd, struct.pack("<I", high), BOOT0_OFFSET)
        finally:
            os.close(fd)

    def set_link(self, up: bool) -> None:
        """The PHY's link as the board's Ethernet controller sees it. Raises EmulatorError."""
        if self.running():
            self._execute("set_link", name="n0", up=up)

    def _execute(self, command: str, event: str | None = None, **arguments: Any) -> None:
        try:
            if self._qmp is None:
                raise EOFError("no monitor")
            self._qmp.execute(command, event, **arguments)
        except (OSError, EOFError) as error:
            raise EmulatorError(
                f"the emulated board does not answer to {command!r}: {error}", self._last_words()
            ) from error

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return lines[-1] if lines else ""


def _command(rom: Path, ddr: Path, mac: str, uart_fd: int, network_fd: int, qmp_fd: int) -> list[str]:
    path = str(ddr).replace(",", ",,")
    return [
        *["qemu-system-arm", "-M", "mps3-an547,memory-backend=ddr", "-nodefaults", "-display", "none"],
        *["-object", f"memory-backend-file,id=ddr,size={DDR_BYTES},mem-path={path},share=on"],
        *["-kernel", str(rom)],
        # The multiplexer's buffer takes bytes ahead of the one-byte UART: flashing is two to four times as fast.
        # No byte equals its escape character.
        *["-chardev", f"socket,id=uart0,fd={uart_fd},mux=on", "-echr", "0x200", "-serial", "chardev:uart0"],
        *["-chardev", f"socket,id=qmp,fd={qmp_fd}", "-mon", "chardev=qmp,mode=control"],
        *["-netdev", f"dgram,id=n0,local.type=fd,local.str={network_fd}"],
        *["-net", f"nic,netdev=n0,macaddr={mac},model=lan9118"],
    ]


def _drain(sock: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while sock.recv(65_536, socket.MSG_DONTWAIT):
            pass


class _Qmp:
    """QEMU Machine Protocol, one command at a time. Raises EOFError, OSError, TimeoutError."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = b""

    def greet(self) -> None:
        if "QMP" not in self._read(time.monotonic() + _QMP_TIMEOUT_S):
            raise OSError("no QMP greeting")
        self.execute("qmp_capabilities")

    def execute(self, command: str, event: str | None = None, **arguments: Any) -> None:
        """Run one command; with `event`, wait for that too: `system_reset` only asks, the reset itself comes later."""
        end = time.monotonic() + _QMP_TIMEOUT_S
        self._sock.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
        returned = happened = False
        while not (returned and (happened or event is None)):
            message = self._read(end)
            if "error" in message:
                raise OSError(message["error"]["desc"])
            returned = returned or "return" in message
            happened = happened or message.get("event") == event

    def close(self) -> None:
        self._sock.close()

    def _read(self, end: float) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            if not select.select([self._sock], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError(f"nothing from its monitor for {_QMP_TIMEOUT_S} s")
            data = self._sock.recv(65_536)
            if not data:
                raise EOFError("its monitor was closed")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer
