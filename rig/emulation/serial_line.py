"""The board's serial line: a pseudo-terminal towards the rig, the emulator's UART behind it, a baud rate between.

The emulated UART has no speed of its own. Here each byte takes ten bit times (8N1) at the speed that is set on the
pseudo-terminal; while the line is busy nothing more is taken from the UART, so a firmware that logs too much blocks
just as it does on copper. Bytes for a terminal that nobody has open, or that nobody reads, are lost and counted.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import socket
import struct
import termios
import time
import tty

from rig.emulation.linux import set_process_name
from rig.emulation.messages import DisconnectedError, failed, ok, receive_message, send_message

CONSOLE_BAUD = 115_200
BITS_PER_BYTE = 10
_CHUNK_NS = 1_000_000
"""Bytes are moved in portions of this much line time: what a USB serial adapter does too."""
_CATCH_UP_NS = 5_000_000
# asm-generic/ioctls.h: termios2 holds the speed as a number
_TCGETS2, _TERMIOS2 = 0x802C542A, struct.Struct("IIIIB19sII")
# linux/inotify.h
_IN_CLOSE, _IN_OPEN = 0x08 | 0x10, 0x20
_INOTIFY_EVENT = struct.Struct("iIII")


class LinePacer:
    """One direction of the line in time: how much may be taken now, and when it has arrived. Times in ns."""

    def __init__(self) -> None:
        self._free_ns = 0

    def room(self, now_ns: int, baud: int) -> int:
        """Bytes that may be taken at `now_ns`: 0 while the line is busy, else one portion."""
        if now_ns < self._free_ns:
            return 0
        return max(1, _CHUNK_NS * baud // (BITS_PER_BYTE * 1_000_000_000))

    def take(self, now_ns: int, count: int, baud: int) -> int:
        """`count` bytes are on the line from `now_ns` on; returns when the last one has arrived.

        A stream without pause keeps its exact rate: a portion taken a little late counts from the end of the last one.
        """
        start_ns = self._free_ns if 0 <= now_ns - self._free_ns < _CATCH_UP_NS else now_ns
        self._free_ns = start_ns + count * BITS_PER_BYTE * 1_000_000_000 // baud
        return self._free_ns


def open_terminal() -> tuple[int, int, str]:
    """A pseudo-terminal in raw mode at the console speed: controller end, terminal end, path of the latter."""
    controller, terminal = os.openpty()
    tty.setraw(terminal)
    attributes = termios.tcgetattr(terminal)
    attributes[4] = attributes[5] = termios.B115200
    attributes[2] |= termios.CLOCAL
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)
    return controller, terminal, os.ttyname(terminal)


def run_serial_line(control: socket.socket, uart: socket.socket, controller: int, terminal: int) -> None:
    """Serve until `control` is closed. `uart` is a connected stream to the emulator's UART."""
    set_process_name("rig-serial")
    _SerialLine(control, uart, controller, terminal).serve()


class _SerialLine:
    def __init__(self, control: socket.socket, uart: socket.socket, controller: int, terminal: int) -> None:
        self._control, self._uart = control, uart
        self._controller, self._terminal = controller, terminal
        self._uart.setblocking(False)
        os.set_blocking(controller, False)
        self._watch = _OpenCount(os.ttyname(terminal))
        self._to_rig, self._to_board = LinePacer(), LinePacer()
        self._on_line: dict[str, tuple[int, bytes]] = {}  # way -> (arrives at ns, bytes)
        self._counts = {"to_rig": 0, "to_rig_lost": 0, "to_board": 0, "to_board_lost": 0}

    def serve(self) -> None:
        while True:
            now_ns = time.monotonic_ns()
            self._arrive(now_ns)
            inputs: list[int] = [self._control.fileno(), self._watch.fd]
            if "to_rig" not in self._on_line:
                inputs.append(self._uart.fileno())
            if "to_board" not in self._on_line:
                inputs.append(self._controller)
            wake_ns = min((at_ns for at_ns, _ in self._on_line.values()), default=None)
            timeout = None if wake_ns is None else max(0, wake_ns - now_ns) / 1e9
            readable = select.select(inputs, [], [], timeout)[0]
            if self._watch.fd in readable:
                self._openers_changed()
            if self._uart.fileno() in readable:
                self._start("to_rig", self._to_rig)
            if self._controller in readable:
                self._start("to_board", self._to_board)
            if self._control.fileno() in readable:
                try:
                    request, _ = receive_message(self._control)
                    known = request["op"] == "counters"
                    answer = ok(counters=self._counts | {"openers": self._watch.count}) if known else failed("unknown")
                    send_message(self._control, answer)
                except DisconnectedError:
                    return

    def _start(self, way: str, pacer: LinePacer) -> None:
        baud = _baud(self._terminal)
        now_ns = time.monotonic_ns()
        room = pacer.room(now_ns, baud)
        if not room:
            return
        try:
            data = self._uart.recv(room) if way == "to_rig" else os.read(self._controller, room)
        except BlockingIOError:
            return
        if data:
            self._on_line[way] = (pacer.take(now_ns, len(data), baud), data)

    def _arrive(self, now_ns: int) -> None:
        for way, (at_ns, data) in list(self._on_line.items()):
            if at_ns > now_ns:
                continue
            del self._on_line[way]
            written = self._write_to_rig(data) if way == "to_rig" else self._write_to_board(data)
            self._counts[way] += written
            self._counts[f"{way}_lost"] += len(data) - written

    def _write_to_rig(self, data: bytes) -> int:
        if not self._watch.count:
            return 0
        try:
            return os.write(self._controller, data)
        except BlockingIOError:  # 4 KiB wait unread: the reader is gone or asleep, as an overrun on a real port
            return 0

    def _write_to_board(self, data: bytes) -> int:
        try:
            return self._uart.send(data)
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            return 0

    def _openers_changed(self) -> None:
        before, after = self._watch.update()
        if after and not before:
            termios.tcflush(self._terminal, termios.TCIFLUSH)
        if before and not after:
            # A port that asked for exclusive use gives it up by its last close; ours never closes for the last time.
            fcntl.ioctl(self._terminal, termios.TIOCNXCL)


def _baud(terminal: int) -> int:
    """The speed set on the terminal, in bit/s, also when it is none of the standard ones; never 0."""
    speed: int = _TERMIOS2.unpack(fcntl.ioctl(terminal, _TCGETS2, bytes(_TERMIOS2.size)))[7]
    return speed or CONSOLE_BAUD


class _OpenCount:
    """How many times others have the terminal open now, told by inotify(7), which sees every mount of its file."""

    def __init__(self, path: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd: int = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.fd < 0 or libc.inotify_add_watch(self.fd, os.fsencode(path), _IN_OPEN | _IN_CLOSE) < 0:
            raise OSError(ctypes.get_errno(), f"inotify on {path}: {os.strerror(ctypes.get_errno())}")
        self.count = 0

    def update(self) -> tuple[int, int]:
        """Take what happened; returns the count before and after."""
        before = self.count
        with contextlib.suppress(BlockingIOError):
            events = os.read(self.fd, 4096)
            for _, mask, _, _ in _INOTIFY_EVENT.iter_unpack(events):
                self.count += 1 if mask & _IN_OPEN else -1
        self.count = max(0, self.count)
        return before, self.count
