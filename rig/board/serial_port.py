"""The board's serial port, opened through pyserial: device path, `/dev/serial/by-*`, `rfc2217://` or `socket://`.

One object owns the port and one thread reads at a time; two readers would split the bytes between them. The read
time-out is fixed when the port opens, because changing it makes pyserial renegotiate an RFC 2217 port.

Reference: termios(3), tty_ioctl(4), flock(2), RFC 2217.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rig.bench.model import Serial
from rig.board.port_holders import held_here, holders
from rig.errors import BoardError

Parity = Literal["none", "even"]

POLL_S = 0.05
"""Longest wait of one `read`; deadlines are looked at this often."""
WRITE_TIMEOUT_S = 5.0
"""A port that takes no byte for this long is stuck (flow control, wedged adapter)."""

_log = logging.getLogger(__name__)


class BoardLostError(BoardError):
    """The serial port went away while in use: adapter unplugged, remote end closed, device gone."""


class PortMissingError(BoardError):
    """Nothing is there under the port's name: adapter not plugged in, or without the power that feeds it."""


@dataclass(frozen=True)
class UsbTty:
    """What tells USB serial ports apart: device node, (vendor, product, serial number, interface)."""

    device: str
    identity: tuple[int | None, int | None, str | None, str]


def resolve(port: str, usb: Callable[[], Iterable[UsbTty]] | None = None) -> str:
    """The device node behind a path, now; URLs are returned as they are.

    A `by-id` link names an adapter by its serial number. Two adapters that share one (or have none) fight for the same
    link, so such a link is refused. Raises BoardError when nothing is there or the name fits two devices.
    """
    if "://" in port:
        scheme = port.split("://", 1)[0]
        if scheme not in ("rfc2217", "socket"):
            raise BoardError(
                f"serial port `{port}` has the unknown scheme `{scheme}`",
                hint="use a device path, /dev/serial/by-id/…, /dev/serial/by-path/…, rfc2217://host:port or "
                "socket://host:port",
            )
        return port
    path = Path(port)
    if not path.exists():
        raise PortMissingError(f"serial port {port} does not exist", hint=_what_is_there())
    node = os.path.realpath(port)
    if not stat.S_ISCHR(Path(node).stat().st_mode):
        raise BoardError(
            f"{port} is not a serial device",
            seen=f"it resolves to {node}",
            hint="correct `board.serial.port` of the bench file; " + _what_is_there(),
        )
    if "/serial/by-id/" in port:
        ports = list((usb or _usb_ttys)())
        mine = next((tty for tty in ports if tty.device == node), None)
        twins = sorted(tty.device for tty in ports if mine and tty.identity == mine.identity)
        if len(twins) > 1:
            raise BoardError(
                f"serial port {port} is ambiguous: {' and '.join(twins)} carry the same USB identity",
                hint="name the port by its socket instead: /dev/serial/by-path/…",
            )
    return node


def _usb_ttys() -> Iterator[UsbTty]:
    from serial.tools import list_ports

    for info in list_ports.comports():
        if info.vid is not None:
            interface = (info.location or "").rpartition(":")[2] if ":" in (info.location or "") else ""
            yield UsbTty(os.path.realpath(info.device), (info.vid, info.pid, info.serial_number, interface))


def _what_is_there() -> str:
    names = [str(path) for path in sorted(Path("/dev/serial/by-id").glob("*"))]
    if not names:
        names = [str(p) for pattern in ("ttyUSB*", "ttyACM*") for p in sorted(Path("/dev").glob(pattern))]
    if not names:
        return "no USB serial adapter is plugged in here: check cable and power, then `ls -l /dev/serial/by-id`"
    return "serial ports that exist here: " + ", ".join(names[:8])


class SerialPort:
    """An open port. Every method raises BoardLostError when the device went away; never a bare OSError."""

    def __init__(self, port: Any, url: str, node: str) -> None:
        self._port = port
        self.url = url
        """The name in the bench file."""
        self.node = node
        """What it resolved to at this open."""
        self.is_network = "://" in node
        self.is_pty = node.startswith("/dev/pts/")

    @classmethod
    def open(cls, serial: Serial, *, dtr: bool = False, rts: bool = False) -> SerialPort:
        """Open exclusively at the console's speed, 8N1. `dtr` and `rts` are the released states of lines wired to them.

        The kernel may still pulse DTR once on open: treat every open as a possible reset of the board.
        Raises BoardError when the port is missing, ambiguous, busy (the holder is named) or not permitted.
        """
        import serial as pyserial

        node = resolve(serial.port)
        network = "://" in node
        try:
            port = pyserial.serial_for_url(
                node,
                do_not_open=True,
                baudrate=serial.baud,
                timeout=POLL_S,
                # An RFC 2217 port raises NotImplementedError for a write time-out; its socket has one of its own.
                write_timeout=None if node.startswith("rfc2217:") else WRITE_TIMEOUT_S,
                exclusive=None if network else True,
            )
            port.dtr, port.rts = dtr, rts
            port.open()
        except _PORT_ERRORS() as error:
            raise _cannot_open(serial.port, node, error) from error
        opened = cls(port, serial.port, node)
        if not network and not opened.is_pty:
            opened._settle_tty()
        return opened

    def _settle_tty(self) -> None:
        """No further open (TIOCEXCL), no DTR pulse at close (HUPCL off), no 16 ms wait in an FTDI adapter (low latency)
        where the driver can. A lock alone keeps out nobody who does not ask for one."""
        import fcntl
        import termios

        with contextlib.suppress(OSError):
            fcntl.ioctl(self._port.fd, termios.TIOCEXCL)
        with contextlib.suppress(OSError, termios.error):
            attributes = termios.tcgetattr(self._port.fd)
            attributes[2] &= ~termios.HUPCL
            termios.tcsetattr(self._port.fd, termios.TCSANOW, attributes)
        with contextlib.suppress(OSError, ValueError, AttributeError, NotImplementedError):
            self._port.set_low_latency_mode(True)
        for holder in self.other_holders():
            _log.warning("%s is also open in %s, which takes part of the bytes if it reads", self.node, holder)

    def other_holders(self) -> list[str]:
        """Other processes that have the device open without our lock; empty for network ports."""
        return [] if self.is_network else holders(self.node)

    def is_there(self) -> bool:
        """False once the device node is gone, as it is when a USB adapter disconnects; network ports cannot tell."""
        return self.is_network or Path(self.node).exists()

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; fewer, or none, when POLL_S ends or `cancel_read` was called."""
        with self._mapped("reading"):
            return bytes(self._port.read(size))

    def read_some(self) -> bytes:
        """Whatever has arrived, as soon as there is at least one byte; empty when POLL_S ends."""
        with self._mapped("reading"):
            first = bytes(self._port.read(1))
            waiting = self._port.in_waiting if first else 0
            return first + bytes(self._port.read(waiting)) if waiting else first

    def waiting(self) -> int:
        """Bytes that have arrived and were not read yet."""
        with self._mapped("reading"):
            return int(self._port.in_waiting)

    def write(self, data: bytes) -> None:
        """Hand all of `data` to the driver. Never waits for it to leave the wire (tcdrain can hang for ever)."""
        with self._mapped("writing"):
            self._port.write(data)

    def cancel_read(self) -> None:
        """Make a `read` in another thread return at once where the transport can; elsewhere POLL_S bounds it."""
        if hasattr(self._port, "cancel_read"):
            with contextlib.suppress(OSError, TypeError):
                self._port.cancel_read()

    def discard_input(self) -> None:
        """Drop what has arrived and was not read."""
        with self._mapped("purging"):
            self._port.reset_input_buffer()

    def configure(self, baud: int, parity: Parity) -> None:
        """Change speed and parity. Input must be drained first: bytes in flight change meaning.

        A `socket://` port carries bytes only; its far end sets the speed. A pseudo-terminal has no parity bit.
        """
        if self.node.startswith("socket:"):
            return
        if self.is_pty and parity != "none":
            raise BoardError(
                f"{self.url} is a pseudo-terminal and cannot carry parity `{parity}`",
                hint="set `flash: {parity: none}` in the bench file, or reach the board through rfc2217://",
            )
        import serial as pyserial

        letter = {"none": pyserial.PARITY_NONE, "even": pyserial.PARITY_EVEN}[parity]
        with self._mapped(f"setting {baud} baud, parity {parity}"):
            if self._port.baudrate != baud:
                self._port.baudrate = baud
            if self._port.parity != letter:
                self._port.parity = letter

    def set_modem_line(self, name: Literal["dtr", "rts"], level: bool) -> None:
        """Drive DTR or RTS; on TTL adapters true is a low pin. Raises BoardError where there is no such line."""
        if self.is_pty or self.node.startswith("socket:"):
            kind = "pseudo-terminal" if self.is_pty else "raw TCP port"
            raise BoardError(
                f"{self.url} is a {kind} and has no {name.upper()} line",
                hint="choose another driver for the reset and boot lines, or an rfc2217:// port",
            )
        with self._mapped(f"setting {name.upper()}"):
            setattr(self._port, name, level)

    def close(self) -> None:
        """Close and unlock; never raises, a port that is gone is closed."""
        if not self.is_network and not self.is_pty:
            self._admit_others()
        with contextlib.suppress(*_PORT_ERRORS(), AttributeError):
            self._port.close()

    def _admit_others(self) -> None:
        """TIOCEXCL would outlive this process while another one has the device open."""
        import fcntl
        import termios

        with contextlib.suppress(OSError, TypeError, ValueError):
            fcntl.ioctl(self._port.fd, termios.TIOCNXCL)

    def __enter__(self) -> SerialPort:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _mapped(self, doing: str) -> Iterator[None]:
        try:
            yield
        except _PORT_ERRORS() as error:
            raise self._lost(doing, error) from error

    def _lost(self, doing: str, error: BaseException) -> BoardError:
        import serial as pyserial

        if isinstance(error, pyserial.SerialTimeoutException):
            return BoardError(
                f"serial port {self.url} took no byte for {WRITE_TIMEOUT_S:g} s",
                hint="flow control or a wedged adapter: unplug it, plug it in again",
            )
        seen = f"{type(error).__name__}: {error}"
        others = self.other_holders()
        if others and "readiness" in str(error):
            return BoardLostError(
                f"serial port {self.url} is read by another program too",
                seen=seen,
                hint=f"end {', '.join(others)}",
            )
        return BoardLostError(
            f"board lost: serial port {self.url} failed while {doing}",
            seen=seen,
            hint="check the cable, the adapter's power and `dmesg | tail`; a replugged adapter is found again by its "
            "/dev/serial/by-id or by-path name",
        )


def _PORT_ERRORS() -> tuple[type[BaseException], ...]:  # noqa: N802 - stands in for a constant, see below
    """What an unplugged port raises, by transport and moment; a function because termios is imported late.

    SerialException is an OSError; termios.error is not; TypeError comes from a descriptor that became None.
    """
    import termios

    return (OSError, termios.error, TypeError, ValueError, NotImplementedError)


def _cannot_open(url: str, node: str, error: BaseException) -> BoardError:
    number = getattr(error, "errno", None)
    name = url if url == node else f"{url} ({node})"
    # EAGAIN is somebody's flock, EBUSY a driver's or TIOCEXCL's refusal.
    if number in (errno.EAGAIN, errno.EBUSY):
        who = holders(node)
        held = " and ".join(who) or ("this process itself" if held_here(node) else "a process of another user")
        return BoardError(
            f"serial port {name} is busy: held by {held}",
            hint="end that program, or wait until its run is over",
        )
    if number in (errno.EACCES, errno.EPERM):
        return BoardError(
            f"no permission to open serial port {name}",
            hint="add yourself to the group that owns it (`ls -l` shows it, usually dialout), then log in again",
        )
    if "://" in node:
        return BoardError(
            f"cannot reach the serial server at {url}",
            seen=str(error),
            hint="check host and port, and that no other client holds the port",
        )
    return BoardError(f"cannot open serial port {name}", seen=f"{type(error).__name__}: {error}")
