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

from rig.emulation.linux import be_punctual, set_process_name
from rig.emulation.messages import DisconnectedError, Message, failed, ok, receive_message, send_message

CONSOLE_BAUD = 115_200
BITS_PER_BYTE = 10
_CHUNK_NS = 1_000_000
"""Bytes are moved in portions of this much line time: what a USB serial adapter does too."""
_CATCH_UP_NS = 5_000_000
_BYTE_CHARGE = 768
"""What the kernel charges a socket's send buffer for one byte written by itself, as the emulated UART writes."""
# asm-generic/ioctls.h: termios2 holds the speed as a number
_TCGETS2, _TERMIOS2 = 0x802C542A, struct.Struct("IIIIB19sII")
# linux/inotify.h
_IN_CLOSE, _IN_OPEN = 0x08 | 0x10, 0x20


def portion(baud: int) -> int:
    """Bytes that are moved at a time."""
    return max(1, _CHUNK_NS * baud // (BITS_PER_BYTE * 1_000_000_000))


class LinePacer:
    """One direction of the line in time: how much may be taken now, and when it has arrived. Times in ns."""

    def __init__(self) -> None:
        self._free_ns = 0

    def room(self, now_ns: int, baud: int) -> int:
        """Bytes that may be taken at `now_ns`: 0 while the line is busy, else one portion."""
        if now_ns < self._free_ns:
            return 0
        return portion(baud)

    def take(self, now_ns: int, count: int, baud: int) -> int:
        """`count` bytes are on the line from `now_ns` on; returns when the last one has arrived.

        A stream without pause keeps its exact rate: a portion taken a little late counts from the end of the last one.
        """
        start_ns = self._free_ns if 0 <= now_ns - self._free_ns < _CATCH_UP_NS else now_ns
        self._free_ns = start_ns + count * BITS_PER_BYTE * 1_000_000_000 // baud
        return self._free_ns


def open_terminal() -> tuple[int, str]:
    """A pseudo-terminal in raw mode at the console speed: controller end, and the path that the rig opens.

    Its settings live as long as the controller end, whoever opens and closes the path meanwhile.
    """
    controller, terminal = os.openpty()
    try:
        tty.setraw(terminal)
        attributes = termios.tcgetattr(terminal)
        attributes[4] = attributes[5] = termios.B115200
        attributes[2] |= termios.CLOCAL
        termios.tcsetattr(terminal, termios.TCSANOW, attributes)
        return controller, os.ttyname(terminal)
    finally:
        os.close(terminal)


def run_serial_line(
    control: socket.socket, uart: socket.socket, emulator_end: socket.socket, controller: int, path: str
) -> None:
    """Serve until `control` is closed. uart: connected stream to the emulator's UART, whose own end is emulator_end."""
    set_process_name("rig-serial")
    be_punctual()
    _SerialLine(control, uart, emulator_end, controller, path).serve()


class _SerialLine:
    def __init__(
        self, control: socket.socket, uart: socket.socket, emulator_end: socket.socket, controller: int, path: str
    ) -> None:
        self._control, self._uart, self._emulator_end = control, uart, emulator_end
        self._controller, self._path = controller, path
        self._baud = 0
        self._uart.setblocking(False)
        os.set_blocking(controller, False)
        self._current_baud()
        self._hangup = select.poll()
        self._hangup.register(controller, select.POLLIN)
        self._in_use = False
        self._board_listens = True
        self._opened_or_closed = _watch_opens(path)
        self._to_rig, self._to_board = LinePacer(), LinePacer()
        self._on_line: dict[str, tuple[int, bytes]] = {}  # way -> (arrives at ns, bytes)
        self._counts = {"to_rig": 0, "to_rig_lost": 0, "to_board": 0, "to_board_lost": 0}

    def serve(self) -> None:
        while True:
            now_ns = time.monotonic_ns()
            bytes_wait = self._look_who_is_there()
            self._arrive(now_ns)
            inputs: list[int] = [self._control.fileno(), self._opened_or_closed]
            if "to_rig" not in self._on_line:
                inputs.append(self._uart.fileno())
            if "to_board" not in self._on_line and (self._in_use or bytes_wait):
                inputs.append(self._controller)
            wake_ns = min((at_ns for at_ns, _ in self._on_line.values()), default=None)
            timeout = None if wake_ns is None else max(0, wake_ns - now_ns) / 1e9
            readable = select.select(inputs, [], [], timeout)[0]
            if self._opened_or_closed in readable:
                os.read(self._opened_or_closed, 4096)
            if self._uart.fileno() in readable:
                self._start("to_rig", self._to_rig)
            if self._controller in readable:
                self._start("to_board", self._to_board)
            if self._control.fileno() in readable:
                try:
                    request, _ = receive_message(self._control)
                    send_message(self._control, self._answer(request))
                except DisconnectedError:
                    return

    def _answer(self, request: Message) -> Message:
        if request["op"] == "board":  # without power or in reset it hears nothing
            self._board_listens = request["listens"]
            return ok()
        if request["op"] == "counters":
            return ok(counters=self._counts | {"in_use": self._in_use})
        return failed(f"the serial line knows no operation {request['op']!r}")

    def _look_who_is_there(self) -> bool:
        """Learn whether anybody has the terminal open; returns whether bytes for the board wait in it."""
        events = dict(self._hangup.poll(0)).get(self._controller, 0)
        in_use = not events & select.POLLHUP
        if self._in_use and not in_use:
            self._tidy_up()
        self._in_use = in_use
        return bool(events & select.POLLIN)

    def _tidy_up(self) -> None:
        """After the last close: drop what was not read, and end an exclusive use, as a real port's driver does."""
        # An ordinary user is refused here after TIOCEXCL, and can then not open the port again either (ioctl_tty(2)).
        with contextlib.suppress(OSError):
            terminal = os.open(self._path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
            try:
                termios.tcflush(terminal, termios.TCIFLUSH)
                fcntl.ioctl(terminal, termios.TIOCNXCL)
            finally:
                os.close(terminal)

    def _start(self, way: str, pacer: LinePacer) -> None:
        baud = self._current_baud()
        now_ns = time.monotonic_ns()
        room = pacer.room(now_ns, baud)
        if not room:
            return
        try:
            data = self._uart.recv(room) if way == "to_rig" else os.read(self._controller, room)
        except OSError:  # nothing there after all, or closed meanwhile (EIO)
            return
        if data:
            self._on_line[way] = (pacer.take(now_ns, len(data), baud), data)

    def _current_baud(self) -> int:
        baud = _baud(self._controller)
        if baud != self._baud:
            self._baud = baud
            # What the emulator may send ahead before the firmware blocks: one portion, charged byte by byte.
            ahead = portion(baud) * _BYTE_CHARGE // 2  # the kernel doubles the figure (socket(7))
            self._emulator_end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ahead)
        return baud

    def _arrive(self, now_ns: int) -> None:
        for way, (at_ns, data) in list(self._on_line.items()):
            if at_ns > now_ns:
                continue
            del self._on_line[way]
            written = self._write_to_rig(data) if way == "to_rig" else self._write_to_board(data)
            self._counts[way] += written
            self._counts[f"{way}_lost"] += len(data) - written

    def _write_to_rig(self, data: bytes) -> int:
        if not self._in_use:
            return 0
        try:
            return os.write(self._controller, data)
        except BlockingIOError:  # 4 KiB wait unread: the reader is gone or asleep, as an overrun on a real port
            return 0

    def _write_to_board(self, data: bytes) -> int:
        if not self._board_listens:
            return 0
        try:
            return self._uart.send(data)
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            return 0


def _baud(controller: int) -> int:
    """The speed set on the terminal, in bit/s, also when it is none of the standard ones; never 0."""
    speed: int = _TERMIOS2.unpack(fcntl.ioctl(controller, _TCGETS2, bytes(_TERMIOS2.size)))[7]
    return speed or CONSOLE_BAUD


def _watch_opens(path: str) -> int:
    """A descriptor that is readable when the file was opened or closed, through whatever mount (inotify(7)).

    Only a wake-up: equal events are merged, so counting them would go wrong.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0 or libc.inotify_add_watch(fd, os.fsencode(path), _IN_OPEN | _IN_CLOSE) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"inotify on {path}: {os.strerror(code)}")
    return fd
