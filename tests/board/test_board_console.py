"""The console: what is logged, what is recognised, what is waited for."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_board import FakeBoard
from hypothesis import given
from hypothesis import strategies as st

from rig.bench.model import Serial
from rig.board import console as console_module
from rig.board.console import CommandRefusedError, Console, ConsoleSilentError
from rig.board.events import LINE_LIMIT, Boot, Event, Fault, Line, LineAssembler, Link, Ready, parse_event, printable
from rig.board.serial_port import BoardLostError, SerialPort
from rig.board.telemetry import TelemetryEvent, parse_telemetry
from rig.deadline import Deadline
from rig.errors import BoardError, InternalError

BANNER = "rig-fw variant=copy build=00ff boot_id=12345678 reset=cold identity=missing name=b mac=02:52:49:47:00:10"


def event(text: str, banner: str | None = None) -> Event | None:
    return parse_event(Line(0, 0, 0, text), re.compile(banner) if banner else None)


# --- lines and events, pure -------------------------------------------------------------------------------------------


def test_banner_fields() -> None:
    boot = event(BANNER)
    assert isinstance(boot, Boot)
    assert (boot.build, boot.boot_id, boot.reset) == ("00ff", "12345678", "cold")
    assert boot.fields["identity"] == "missing"


@pytest.mark.parametrize("prefix", ["\\x00", "\\xff\\x00\\xfe", "half a li"])
def test_banner_after_the_glitch_of_a_reset_in_mid_byte(prefix: str) -> None:
    assert isinstance(event(prefix + BANNER), Boot)


def test_other_events() -> None:
    fault = event("FAULT assert pbuf != NULL, udp.c:12")
    assert isinstance(fault, Fault)
    assert (fault.kind, fault.detail) == ("assert", "pbuf != NULL, udp.c:12")
    assert isinstance(event("\\x00FAULT HardFault"), Fault)
    assert event("link up") == Link(Line(0, 0, 0, "link up"), True)
    assert event("link down") == Link(Line(0, 0, 0, "link down"), False)
    assert isinstance(event("ready"), Ready)


@pytest.mark.parametrize(
    "text", ["", "rig-fw", "not ready", "ready!", "link sideways", "no FAULT here", "rig-fw says no"]
)
def test_other_text_is_no_event(text: str) -> None:
    assert event(text) is None


def test_foreign_banner_pattern_takes_the_place_of_ours() -> None:
    boot = event("Zephyr v3.7 build abc", r"Zephyr (?P<version>\S+)(?: build (?P<build>\w+))?")
    assert isinstance(boot, Boot)
    assert boot.fields == {"version": "v3.7", "build": "abc"}
    assert event(BANNER, "Zephyr") is None


@given(st.binary(max_size=200), st.data())
def test_lines_are_printable_ascii_whatever_comes_and_however_it_is_cut(raw: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(raw)))
    whole, pieces = LineAssembler(), LineAssembler()
    lines = whole.feed(raw) + whole.flush()
    assert lines == pieces.feed(raw[:cut]) + pieces.feed(raw[cut:]) + pieces.flush()
    assert all(line.replace("\t", " ").isprintable() and line.isascii() for line in lines)
    for line in lines:
        parse_event(Line(0, 0, 0, line))


def test_escape_sequences_are_shown_not_passed_on() -> None:
    assert printable(b"\x1b[2J\x07\xe2\x80\xae\x7f<b>") == r"\x1b[2J\x07\xe2\x80\xae\x7f<b>"


def test_line_without_end_is_cut_at_its_limit() -> None:
    assembler = LineAssembler()
    lines = [line for _ in range(10) for line in assembler.feed(b"x" * 1000)]
    assert [len(line) for line in lines] == [LINE_LIMIT, LINE_LIMIT]
    assert len(assembler.flush()[0]) == 10_000 - 2 * LINE_LIMIT


def test_telemetry_lines() -> None:
    ring = parse_telemetry(
        ["t 100 rx id=7 seq=-1", "t 250 irq", "t x y", "garbage", "t 300 note text=abc", "dropped=3"]
    )
    assert ring.events == (
        TelemetryEvent(100, "rx", {"id": 7, "seq": -1}),
        TelemetryEvent(250, "irq", {}),
        TelemetryEvent(300, "note", {"text": "abc"}),
    )
    assert ring.dropped == 3
    assert ring.unreadable == ("t x y", "garbage")


# --- over a serial line -----------------------------------------------------------------------------------------------


@pytest.fixture
def board() -> Iterator[FakeBoard]:
    with FakeBoard() as board:
        yield board


@pytest.fixture
def console(board: FakeBoard, tmp_path: Path) -> Iterator[Console]:
    with SerialPort.open(Serial(port=board.path)) as port:
        console = Console(port, tmp_path / "board.log", time.monotonic_ns())
        console.start()
        yield console
        console.close()


def test_wait_sees_what_came_before_it_began(board: FakeBoard, console: Console) -> None:
    mark = console.mark()
    board.say("hello", "value=42")
    console.wait_for_line("value", Deadline.after(10), mark)
    match = console.wait_for_line(r"value=(\d+)", Deadline.after(10), mark)
    assert match[1] == "42"


def test_wait_from_now_on_does_not_see_the_past(board: FakeBoard, console: Console) -> None:
    board.say("ready")
    console.wait_for_event(Ready, Deadline.after(10), 0)
    with pytest.raises(ConsoleSilentError, match=r"no ready from the board within 0\.05 s") as caught:
        console.wait_for_event(Ready, Deadline.after(0.05))
    assert caught.value.seen == "ready"


def test_wait_ends_while_the_board_keeps_talking(board: FakeBoard, console: Console) -> None:
    stop = threading.Event()

    def talk() -> None:
        while not stop.is_set():
            board.say("noise")
            stop.wait(0.001)

    talker = threading.Thread(target=talk)
    talker.start()
    try:
        with pytest.raises(ConsoleSilentError):
            console.wait_for_line("never", Deadline.after(0.1))
    finally:
        stop.set()
        talker.join()


def test_log_has_every_line_with_its_time_and_our_notes(board: FakeBoard, console: Console, tmp_path: Path) -> None:
    console.note("reset into\nthe application é")
    board.say("one", "two \x1b[31m")
    console.wait_for_line("two", Deadline.after(10), 0)
    board.raw(b"unfinished")
    console.wait_for("bytes of the unfinished line", lambda line, _: line.text or None, Deadline.after(10), 0)
    lines = (tmp_path / "board.log").read_text().splitlines()
    stamps = [float(line.split()[0]) for line in lines]
    assert stamps == sorted(stamps)
    assert all(0 <= stamp < 60 and re.match(r"\d+\.\d{9} ", line) for stamp, line in zip(stamps, lines, strict=True))
    assert [line.split(" ", 1)[1] for line in lines] == [
        "# rig: reset into\\nthe application \\xe9",
        "one",
        r"two \x1b[31m",
    ]
    first, second = console.lines()
    assert first.t_ns <= second.t_ns
    assert abs(first.wall_ns - time.time_ns()) < 60e9


def test_line_that_a_reset_cut_does_not_join_the_next(board: FakeBoard, console: Console) -> None:
    console.feed(b"half a li")
    assert console.cut_line() == 1
    assert console.cut_line() == 1
    console.feed(b"whole\n")
    assert [line.text for line in console.lines()] == ["half a li", "whole"]


def test_close_logs_the_unfinished_line(board: FakeBoard, tmp_path: Path) -> None:
    with SerialPort.open(Serial(port=board.path)) as port:
        console = Console(port, tmp_path / "log", time.monotonic_ns())
        console.feed(b"FAULT HardF")
        console.close()
    assert (tmp_path / "log").read_text().endswith(" FAULT HardF\n")


def test_memory_and_log_stay_bounded(board: FakeBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_module, "KEPT_LINES", 10)
    monkeypatch.setattr(console_module, "LOG_LIMIT", 1000)
    with SerialPort.open(Serial(port=board.path)) as port:
        console = Console(port, tmp_path / "log", time.monotonic_ns())
        console.feed(b"".join(b"line %d\n" % number for number in range(1000)))
        assert [line.text for line in console.lines()] == [f"line {number}" for number in range(990, 1000)]
        assert console.mark() == 1000
        console.close()
    text = (tmp_path / "log").read_text()
    assert len(text) < 1200
    assert text.endswith("the rest is not kept\n")


def test_command_answer_without_what_comes_unasked(board: FakeBoard, console: Console) -> None:
    board.answers["counters"] = ["counter a=1", "link down", "link up", "counter b=2", "ok"]
    assert console.command("counters", Deadline.after(10)) == ["counter a=1", "counter b=2"]
    assert [type(event) for event in console.events()] == [Link, Link]


def test_command_echo_is_no_answer_and_info_is_one(board: FakeBoard, console: Console) -> None:
    board.answers["info"] = ["info", BANNER, "ok"]
    assert console.command("info", Deadline.after(10)) == [BANNER]


def test_refused_command_says_what_the_board_said(board: FakeBoard, console: Console) -> None:
    board.answers["npu chunk=0"] = ["error: chunk must be 1 to 355"]
    with pytest.raises(CommandRefusedError, match="refused `npu chunk=0`: chunk must be 1 to 355"):
        console.command("npu chunk=0", Deadline.after(10))


def test_board_that_restarts_while_it_answers(board: FakeBoard, console: Console) -> None:
    board.answers["counters"] = ["counter a=1", "FAULT HardFault pc=0", BANNER]
    with pytest.raises(BoardError, match="restarted while it answered"):
        console.command("counters", Deadline.after(10))


def test_silent_command_names_itself(board: FakeBoard, console: Console) -> None:
    board.answers["counters"] = []
    with pytest.raises(ConsoleSilentError, match="no answer to `counters`"):
        console.command("counters", Deadline.after(0.05))


@pytest.mark.parametrize("text", ["", "two\nlines", "tab\t", "é"])
def test_text_that_is_no_command(console: Console, text: str) -> None:
    with pytest.raises(BoardError, match="cannot be sent"):
        console.command(text, Deadline.after(1))


def test_port_is_lent_out_and_reading_goes_on_afterwards(board: FakeBoard, console: Console) -> None:
    with console.suspended() as port:
        board.raw(b"raw bytes")
        data = b""
        while len(data) < 9:
            data += port.read(9 - len(data))
        assert data == b"raw bytes"
    board.say("again")
    console.wait_for_line("again", Deadline.after(10), 0)
    assert [line.text for line in console.lines()] == ["again"]


def test_port_is_lent_out_only_when_the_reader_has_left_it(tmp_path: Path) -> None:
    class SlowPort:
        """A transport whose read cannot be cancelled."""

        reading = False
        entered = threading.Event()
        leave = threading.Event()

        def read_some(self) -> bytes:
            self.reading = True
            self.entered.set()
            self.leave.wait(10)
            self.reading = False
            return b""

        def cancel_read(self) -> None:
            threading.Timer(0.05, self.leave.set).start()

    port = SlowPort()
    console = Console(port, tmp_path / "log", time.monotonic_ns())  # type: ignore[arg-type]
    console.start()
    port.entered.wait(10)
    with console.suspended():
        assert not port.reading
    console.close()


def test_log_that_cannot_be_written_is_no_silent_board(board: FakeBoard) -> None:
    with SerialPort.open(Serial(port=board.path)) as port:
        console = Console(port, Path("/dev/full"), time.monotonic_ns())
        console.start()
        board.say("first")
        with pytest.raises(InternalError, match="cannot write /dev/full: No space left on device"):
            console.wait_for_line("never", Deadline.after(30), 0)
        assert not console.lost, "the port is there"
        board.say("second")
        console.note("a note")
        with console.suspended():
            pass
        with pytest.raises(InternalError, match="cannot write /dev/full"):
            console.command("info", Deadline.after(30))
        console.close()


def test_log_that_fails_at_its_very_end_disturbs_no_close(board: FakeBoard) -> None:
    with SerialPort.open(Serial(port=board.path)) as port:
        console = Console(port, Path("/dev/full"), time.monotonic_ns())
        console.feed(b"half a li")
        console.close()
        with pytest.raises(InternalError, match=r"cannot write /no/such/board\.log"):
            Console(port, Path("/no/such/board.log"), 0)


def test_unplugged_board_ends_a_wait_at_once(board: FakeBoard, console: Console) -> None:
    threading.Timer(0.05, board.unplug).start()
    with pytest.raises(BoardLostError, match="board lost"):
        console.wait_for_line("never", Deadline.after(30))
