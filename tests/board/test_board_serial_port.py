"""Opening, sharing and losing a serial port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_board import FakeBoard

from rig.bench.model import Serial
from rig.board import serial_port
from rig.board.port_holders import holders
from rig.board.serial_port import BoardLostError, SerialPort, UsbTty, resolve
from rig.errors import BoardError

NOBODY = 65534


@pytest.fixture
def board() -> Iterator[FakeBoard]:
    with FakeBoard() as board:
        yield board


def test_path_is_resolved_at_each_open(board: FakeBoard, tmp_path: Path) -> None:
    link = tmp_path / "board"
    link.symlink_to(board.path)
    with SerialPort.open(Serial(port=str(link))) as port:
        assert port.node == board.path
        assert port.is_pty
    with FakeBoard() as other:
        link.unlink()
        link.symlink_to(other.path)
        assert resolve(str(link)) == other.path


def test_missing_port_and_what_is_no_port(tmp_path: Path) -> None:
    with pytest.raises(BoardError, match="does not exist") as caught:
        SerialPort.open(Serial(port="/dev/serial/by-id/usb-none"))
    assert caught.value.hint
    (tmp_path / "file").touch()
    with pytest.raises(BoardError, match="is not a serial device"):
        resolve(str(tmp_path / "file"))
    with pytest.raises(BoardError, match="unknown scheme `telnet`"):
        resolve("telnet://host:23")


def test_adapters_with_one_identity_make_a_by_id_name_ambiguous(tmp_path: Path, board: FakeBoard) -> None:
    folder = tmp_path / "serial" / "by-id"
    folder.mkdir(parents=True)
    link = folder / "usb-CH340-if00"
    link.symlink_to(board.path)
    one = UsbTty(board.path, (0x1A86, 0x7523, None, "1.0"))
    twin = UsbTty("/dev/ttyUSB9", (0x1A86, 0x7523, None, "1.0"))
    second_interface = UsbTty("/dev/ttyUSB8", (0x1A86, 0x7523, None, "1.1"))
    assert resolve(str(link), lambda: [one, second_interface]) == board.path
    with pytest.raises(BoardError, match=f"{board.path} and /dev/ttyUSB9 carry the same USB identity") as caught:
        resolve(str(link), lambda: [one, twin, second_interface])
    assert "by-path" in (caught.value.hint or "")


def test_busy_port_names_its_holder(board: FakeBoard) -> None:
    code = (
        "import sys, fcntl, os; fd = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY);"
        "fcntl.flock(fd, fcntl.LOCK_EX); print('locked', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, board.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(BoardError) as caught:
            SerialPort.open(Serial(port=board.path))
        assert f"is busy: held by pid {holder.pid} ({sys.executable}" in caught.value.what
        assert holders(board.path) == [next(iter(holders(board.path)))]
    finally:
        holder.communicate("")
    with SerialPort.open(Serial(port=board.path)):
        assert holders(board.path) == [], "our own descriptors are not another holder"


def test_second_open_in_this_process_is_busy_too(board: FakeBoard) -> None:
    with SerialPort.open(Serial(port=board.path)):
        with pytest.raises(BoardError, match="is busy: held by this process itself"):
            SerialPort.open(Serial(port=board.path))
    SerialPort.open(Serial(port=board.path)).close()


def as_another_user(code: str, path: str) -> str:
    """What a Python program of the user `nobody` prints about the port at `path`."""
    Path(path).chmod(0o666)
    done = subprocess.run(
        [sys.executable, "-c", code, path], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to be two users")
def test_busy_port_names_a_holder_of_another_user(board: FakeBoard) -> None:
    code = (
        "import sys\nfrom rig.bench.model import Serial\nfrom rig.board.serial_port import SerialPort\n"
        "try: SerialPort.open(Serial(port=sys.argv[1]))\nexcept Exception as error: print(error)"
    )
    with SerialPort.open(Serial(port=board.path)):
        told = as_another_user(code, board.path)
    assert f"is busy: held by pid {os.getpid()} of user root (" in told


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to be two users")
def test_terminal_is_shut_for_programs_that_ask_for_no_lock_until_it_is_closed(board: FakeBoard) -> None:
    code = "import os, sys\ntry: os.open(sys.argv[1], os.O_RDWR)\nexcept OSError as error: print(error.strerror)"
    port = SerialPort.open(Serial(port=board.path))
    assert as_another_user(code, board.path) == "", "a pseudo-terminal is left open"
    port.is_pty = False
    port._settle_tty()
    assert as_another_user(code, board.path) == "Device or resource busy\n"
    port.close()  # the fake board has its own end open still
    assert as_another_user(code, board.path) == ""


def test_pseudo_terminal_refuses_parity_and_modem_lines_with_a_way_out(board: FakeBoard) -> None:
    with SerialPort.open(Serial(port=board.path)) as port:
        with pytest.raises(BoardError, match="cannot carry parity `even`") as caught:
            port.configure(115_200, "even")
        assert "parity: none" in (caught.value.hint or "")
        with pytest.raises(BoardError, match="has no DTR line"):
            port.set_modem_line("dtr", True)


def test_speed_changes_while_open(board: FakeBoard) -> None:
    import termios

    with SerialPort.open(Serial(port=board.path)) as port:
        port.configure(921_600, "none")
        fd = os.open(board.path, os.O_RDWR | os.O_NOCTTY)
        try:
            assert termios.tcgetattr(fd)[5] == termios.B921600
            port.configure(115_200, "none")
            assert termios.tcgetattr(fd)[5] == termios.B115200
        finally:
            os.close(fd)


def test_unplugged_port_is_a_lost_board_in_every_call(board: FakeBoard) -> None:
    port = SerialPort.open(Serial(port=board.path))
    board.unplug()
    for call in (lambda: port.read(1), port.read_some, lambda: port.write(b"x")):
        with pytest.raises(BoardLostError, match=r"board lost: serial port .* failed while") as caught:
            call()
        assert "replugged" in (caught.value.hint or "")
    port.close()
    with pytest.raises(BoardLostError):
        port.read(1)
    port.close()


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), TypeError("fd"), ValueError("fd")])
def test_errors_of_every_class_are_mapped(board: FakeBoard, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    import termios

    with SerialPort.open(Serial(port=board.path)) as port:
        for raised in (error, termios.error(5, "Input/output error")):

            def fail(size: int, raised: Exception = raised) -> bytes:
                raise raised

            with monkeypatch.context() as patch:
                patch.setattr(port._port, "read", fail)
                with pytest.raises(BoardLostError):
                    port.read(1)


def test_full_line_ends_in_a_write_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial_port, "WRITE_TIMEOUT_S", 0.05)
    controller, terminal = os.openpty()  # nobody reads the other end
    try:
        with SerialPort.open(Serial(port=os.ttyname(terminal))) as port:
            with pytest.raises(BoardError, match=r"took no byte for 0.05 s"):
                port.write(b"x" * 1_000_000)
    finally:
        os.close(controller)
        os.close(terminal)


def test_socket_port_carries_bytes_and_ignores_speed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"socket://127.0.0.1:{server.getsockname()[1]}"
        with SerialPort.open(Serial(port=url)) as port:
            peer, _ = server.accept()
            with peer:
                port.configure(9600, "even")
                port.write(b"ping")
                assert peer.recv(4) == b"ping"
                peer.sendall(b"pong")
                got = b""
                while len(got) < 4:
                    got += port.read_some()
                assert got == b"pong"
                with pytest.raises(BoardError, match="raw TCP port"):
                    port.set_modem_line("rts", True)
            with pytest.raises(BoardLostError):
                port.read(1)


def test_unreachable_serial_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"socket://127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(BoardError, match="cannot reach the serial server"):
        SerialPort.open(Serial(port=url))


class _Modem:
    """The far side of RFC 2217 for pyserial's own PortManager: a port that notes what it is set to."""

    def __init__(self) -> None:
        self.log: list[tuple[str, object]] = []
        self.baudrate, self.bytesize, self.parity, self.stopbits = 115200, 8, "N", 1
        self.xonxoff = self.rtscts = self.break_condition = False
        self.cts = self.dsr = self.ri = self.cd = False
        self.is_open = True

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("dtr", "rts", "parity", "baudrate") and "log" in self.__dict__:
            self.log.append((name, value))
        super().__setattr__(name, value)

    def reset_input_buffer(self) -> None: ...

    def reset_output_buffer(self) -> None: ...


@pytest.mark.filterwarnings("ignore:set:DeprecationWarning")  # pyserial's own
def test_rfc2217_port_has_parity_and_modem_lines_and_both_start_released() -> None:
    from serial import rfc2217

    modem = _Modem()
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()

            class Connection:
                def write(self, data: bytes) -> None:
                    peer.sendall(data)

            manager = rfc2217.PortManager(modem, Connection())
            with peer:
                while data := peer.recv(1024):
                    payload = b"".join(manager.filter(data))
                    received.append(payload)
                    if b"ping" in payload:
                        peer.sendall(b"".join(manager.escape(b"pong")))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"rfc2217://127.0.0.1:{server.getsockname()[1]}"
        with SerialPort.open(Serial(port=url), dtr=False, rts=True) as port:
            first = {name: [value for key, value in modem.log if key == name] for name in ("dtr", "rts")}
            assert first == {"dtr": [False], "rts": [True]}, "no pulse at open"
            port.configure(57_600, "even")
            assert (modem.baudrate, modem.parity) == (57_600, "E")
            port.set_modem_line("dtr", True)
            assert modem.log[-1] == ("dtr", True)
            port.write(b"ping")
            got = b""
            while len(got) < 4:
                got += port.read(4 - len(got))
            assert got == b"pong"
        thread.join(10)
        assert not thread.is_alive()
