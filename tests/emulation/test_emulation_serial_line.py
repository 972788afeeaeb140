"""The serial line between pseudo-terminal and UART: its speed, and what becomes of bytes that nobody takes."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import termios
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from rig.emulation.messages import ask
from rig.emulation.serial_line import LinePacer, open_terminal, run_serial_line

SECOND = 1_000_000_000


def test_pacer_gives_a_steady_stream_its_exact_rate() -> None:
    pacer, now, taken = LinePacer(), 0, 0
    while taken < 11_520:
        room = pacer.room(now, 115_200)
        assert room
        taken += room
        arrives = pacer.take(now, room, 115_200)
        now = arrives + 70_000  # woken late each time
    assert now - 70_000 == pytest.approx(taken * 10 * SECOND / 115_200, rel=1e-6)


def test_pacer_gives_nothing_while_the_line_is_busy() -> None:
    pacer = LinePacer()
    assert pacer.take(0, 1, 115_200) == 86_805
    assert pacer.room(86_804, 115_200) == 0
    assert pacer.room(86_805, 115_200) == 11


def test_pacer_starts_afresh_after_a_pause() -> None:
    pacer = LinePacer()
    pacer.take(0, 100, 9600)
    assert pacer.take(SECOND, 1, 9600) == SECOND + 1_041_666


def test_pacer_moves_single_bytes_on_a_slow_line() -> None:
    assert LinePacer().room(0, 300) == 1


@dataclass
class Line:
    """A serial line at work in a thread. uart: the emulator's end."""

    control: socket.socket
    uart: socket.socket
    path: str

    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = ask(self.control, {"op": "counters"}, 5.0)["counters"]
        return counters

    def open(self, baud: int = termios.B115200) -> int:
        fd = os.open(self.path, os.O_RDWR | os.O_NOCTTY)
        attributes = termios.tcgetattr(fd)  # raw as the line made it; setting it anew could flush
        attributes[4] = attributes[5] = baud
        termios.tcsetattr(fd, termios.TCSANOW, attributes)
        self.await_counters(lambda counters: counters["in_use"] == 1)
        return fd

    def await_counters(self, condition: Callable[[dict[str, int]], bool]) -> dict[str, int]:
        end = time.monotonic() + 10
        while not condition(counters := self.counters()):
            assert time.monotonic() < end, counters
        return counters


@pytest.fixture
def line() -> Iterator[Line]:
    control, control_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    uart_theirs, uart = socket.socketpair()
    uart.settimeout(5.0)
    controller, path = open_terminal()
    thread = threading.Thread(target=run_serial_line, args=(control_theirs, uart_theirs, uart, controller, path))
    thread.start()
    yield Line(control, uart, path)
    control.close()
    thread.join()
    for sock in (control_theirs, uart_theirs, uart):
        sock.close()
    os.close(controller)


def read_exactly(fd: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        assert select.select([fd], [], [], 5.0)[0], f"only {len(data)} of {count} bytes came"
        data += os.read(fd, count - len(data))
    return data


def test_bytes_of_all_values_pass_unchanged_both_ways(line: Line) -> None:
    fd = line.open()
    every = bytes(range(256))
    line.uart.sendall(every)
    assert read_exactly(fd, 256) == every
    os.write(fd, every)
    received = b""
    while len(received) < 256:
        received += line.uart.recv(256)
    assert received == every
    os.close(fd)


def test_line_is_never_faster_than_its_baud_rate(line: Line) -> None:
    fd = line.open(termios.B57600)
    start = time.monotonic()
    line.uart.sendall(bytes(1024))
    read_exactly(fd, 1024)
    assert time.monotonic() - start >= 1023 * 10 / 57_600
    start = time.monotonic()
    os.write(fd, bytes(512))
    received = 0
    while received < 512:
        received += len(line.uart.recv(512))
    assert time.monotonic() - start >= 511 * 10 / 57_600
    os.close(fd)


def test_firmware_that_writes_faster_than_the_line_is_blocked(line: Line) -> None:
    fd = line.open(termios.B115200)
    start = time.monotonic()
    for _ in range(1024):  # one byte at a time, as the emulated UART does
        line.uart.sendall(b"x")
    assert time.monotonic() - start >= (1024 - 32) * 10 / 115_200, "more than a few bytes were sent ahead"
    read_exactly(fd, 1024)
    os.close(fd)


def test_speed_may_change_while_the_port_is_open(line: Line) -> None:
    fd = line.open(termios.B57600)
    attributes = termios.tcgetattr(fd)
    attributes[4] = attributes[5] = termios.B9600
    termios.tcsetattr(fd, termios.TCSANOW, attributes)
    start = time.monotonic()
    line.uart.sendall(bytes(100))
    read_exactly(fd, 100)
    assert time.monotonic() - start >= 99 * 10 / 9_600
    os.close(fd)


def test_bytes_for_nobody_are_lost_and_the_uart_is_not_blocked(line: Line) -> None:
    line.uart.sendall(bytes(2000))
    line.await_counters(lambda counters: counters["to_rig_lost"] == 2000)
    fd = line.open()
    line.uart.sendall(b"after")
    assert read_exactly(fd, 5) == b"after"
    os.close(fd)


def test_reader_that_sleeps_loses_bytes_but_does_not_stop_the_board(line: Line) -> None:
    fd = line.open(termios.B921600)
    line.uart.sendall(bytes(40_000))
    counters = line.await_counters(lambda counters: counters["to_rig"] + counters["to_rig_lost"] == 40_000)
    assert counters["to_rig_lost"] > 0
    os.close(fd)


def test_bytes_that_one_program_left_unread_do_not_reach_the_next(line: Line) -> None:
    fd = line.open()
    line.uart.sendall(b"stale")
    line.await_counters(lambda counters: counters["to_rig"] == 5)
    os.close(fd)
    line.await_counters(lambda counters: counters["in_use"] == 0)
    fd = line.open()
    line.uart.sendall(b"fresh")
    assert read_exactly(fd, 5) == b"fresh"
    os.close(fd)


def test_port_stays_in_use_until_the_last_of_two_programs_closes_it(line: Line) -> None:
    first, second, third = line.open(), line.open(), line.open()
    os.close(second)
    os.close(third)
    line.uart.sendall(b"still here")
    assert read_exactly(first, 10) == b"still here"
    os.close(first)


def test_bytes_written_just_before_closing_still_go_out(line: Line) -> None:
    fd = line.open(termios.B9600)
    os.write(fd, bytes(range(200)))
    os.close(fd)
    received = b""
    while len(received) < 200:
        received += line.uart.recv(200)
    assert received == bytes(range(200))


@pytest.mark.skipif(os.getuid() != 0, reason="the kernel lets only root end another's exclusive use of a terminal")
def test_exclusive_use_ends_with_the_port_that_asked_for_it(line: Line) -> None:
    fd = line.open()
    fcntl.ioctl(fd, termios.TIOCEXCL)
    os.close(fd)
    line.await_counters(lambda counters: counters["in_use"] == 0)
    fd = line.open()
    assert fcntl.ioctl(fd, 0x80045440, bytes(4)) == bytes(4)  # TIOCGEXCL
    os.close(fd)
