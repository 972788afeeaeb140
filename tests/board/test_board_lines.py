"""Reset and boot lines, and the programs that a bench file may name."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rig.bench.model import Command, ControlLine
from rig.board.command import run_command
from rig.board.lines import DRIVERS, Wiring, enter_bootloader, make_line, released_level, start_application
from rig.deadline import Deadline
from rig.errors import BoardError

SOON = Deadline.after(3600)


class Recorder:
    """Port and emulator in one: notes every change in order."""

    def __init__(self) -> None:
        self.log: list[tuple[str, bool]] = []

    def set_modem_line(self, name: str, level: bool) -> None:
        self.log.append((name, level))

    def set_reset(self, asserted: bool) -> None:
        self.log.append(("reset", asserted))

    def set_boot(self, asserted: bool) -> None:
        self.log.append(("boot", asserted))

    def power(self, on: bool) -> None: ...


def wiring(recorder: Recorder | None, note: Callable[[str], None] = lambda text: None) -> Wiring:
    return Wiring(recorder, "/dev/ttyX", recorder, note)  # type: ignore[arg-type]


def test_boot_rom_and_application_by_modem_lines() -> None:
    wires = Recorder()
    reset = make_line("reset", ControlLine(driver="dtr"), wiring(wires))
    boot = make_line("boot", ControlLine(driver="rts", inverted=True), wiring(wires))
    enter_bootloader(reset, boot, SOON)
    assert wires.log == [("rts", False), ("dtr", True), ("dtr", False)]
    wires.log.clear()
    start_application(reset, boot, SOON, lambda: wires.log.append(("held", True)))
    assert wires.log == [("rts", True), ("dtr", True), ("held", True), ("dtr", False)]


def test_emulated_lines() -> None:
    wires = Recorder()
    reset, boot = (make_line(role, ControlLine(driver="emulated"), wiring(wires)) for role in ("reset", "boot"))  # type: ignore[arg-type]
    enter_bootloader(reset, boot, SOON)
    assert wires.log == [("boot", True), ("reset", True), ("reset", False)]


def test_reset_is_released_even_when_something_fails_while_it_is_held() -> None:
    wires = Recorder()
    reset, boot = (make_line(role, ControlLine(driver="emulated"), wiring(wires)) for role in ("reset", "boot"))  # type: ignore[arg-type]

    def fail() -> None:
        raise BoardError("lost")

    with pytest.raises(BoardError):
        start_application(reset, boot, SOON, fail)
    assert wires.log[-1] == ("reset", False)


def test_modem_line_starts_released() -> None:
    assert released_level(ControlLine(driver="dtr"), "dtr") is False
    assert released_level(ControlLine(driver="dtr", inverted=True), "dtr") is True
    assert released_level(ControlLine(driver="dtr", inverted=True), "rts") is False


def test_registry_holds_every_driver_of_the_bench_file() -> None:
    schema = ControlLine.model_json_schema()
    assert set(DRIVERS) == set(schema["properties"]["driver"]["enum"])
    assert make_line("reset", ControlLine(), wiring(None)).present is False


def test_lines_that_the_bench_cannot_drive_say_so() -> None:
    with pytest.raises(BoardError, match="not an emulated one"):
        make_line("reset", ControlLine(driver="emulated"), wiring(None))
    with pytest.raises(BoardError, match="does not give both `on` and `off`"):
        make_line("boot", ControlLine(driver="command", on=Command(command=["true"])), wiring(None))
    with pytest.raises(BoardError, match="DTR of a serial port that is not open"):
        make_line("reset", ControlLine(driver="dtr"), wiring(None)).set(True, SOON)


def test_command_line_runs_the_labs_program_with_the_port(tmp_path: Path) -> None:
    notes: list[str] = []
    script = "import sys; open(sys.argv[1], 'a').write(' '.join(sys.argv[2:]) + '\\n'); print('relay', sys.argv[3])"
    program = [sys.executable, "-c", script, str(tmp_path / "log"), "{port}"]
    config = ControlLine(driver="command", on=Command(command=[*program, "on"]), off=Command(command=[*program, "off"]))
    line = make_line("reset", config, wiring(None, notes.append))
    line.set(True, SOON)
    line.set(False, SOON)
    assert (tmp_path / "log").read_text() == "/dev/ttyX on\n/dev/ttyX off\n"
    assert [note for note in notes if note.startswith("|")] == ["| relay on", "| relay off"]


# --- programs ---------------------------------------------------------------------------------------------------------


def run(*argv: str, deadline: str = "60 s", values: dict[str, str] | None = None, budget_s: float = 30) -> list[str]:
    notes: list[str] = []
    command = Command.model_validate({"command": list(argv), "deadline": deadline})
    run_command(command, values or {}, Deadline.after(budget_s), notes.append)
    return notes


def python(code: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *arguments)


def test_arguments_reach_the_program_whole_and_no_shell_sees_them() -> None:
    values = {"image": "/tmp/a b;$(id).bin", "port": "{image}", "address": "0x08000000"}
    notes = run(
        *python("import sys; print(sys.argv[1:])", "-d", "{image}@{address}", "{port}", "{other}"), values=values
    )
    assert notes[1] == "| ['-d', '/tmp/a b;$(id).bin@0x08000000', '{image}', '{other}']"


def test_output_is_logged_line_by_line_and_made_printable() -> None:
    code = r"import sys; sys.stdout.buffer.write(b'one\r\n\x1b[2J\n'); sys.stdout.flush(); sys.stderr.write('two\n')"
    assert run(*python(code))[1:] == ["| one", r"| \x1b[2J", "| two"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (python("import sys; print('no probe'); sys.exit(3)"), "failed with exit status 3"),
        (python("import os; os.kill(os.getpid(), 9)"), "failed with signal 9"),
        (("/nonexistent/programmer",), "does not exist"),
        (("/etc/passwd",), "is not executable"),
        (("true", "{image}"), "this command can use no placeholder, not {image}"),
    ],
)
def test_failures_are_sentences(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(BoardError) as caught:
        run(*argv)
    assert message in caught.value.what
    if "status 3" in message:
        assert caught.value.seen == "no probe"


@pytest.mark.parametrize(
    ("deadline", "budget_s", "message"),
    [
        ("100 ms", 30.0, "did not end within its deadline of 0.1 s"),
        ("60 s", 0.1, "was ended after 0.1 s, with the 0.1 s that the phase had"),
    ],
)
def test_program_that_hangs_is_killed_with_its_children(
    tmp_path: Path, deadline: str, budget_s: float, message: str
) -> None:
    pid_file = tmp_path / "pid"
    code = "import os, sys, time; pid = os.fork(); open(sys.argv[1], 'a').write(f'{os.getpid()}\\n'); time.sleep(600)"
    begin = time.monotonic()
    with pytest.raises(BoardError) as caught:
        run(*python(code, str(pid_file)), deadline=deadline, budget_s=budget_s)
    assert message in caught.value.what
    assert ("raise its `deadline`" in (caught.value.hint or "")) is (deadline == "100 ms"), "it would not help else"
    assert time.monotonic() - begin < 20
    for pid in map(int, pid_file.read_text().split() if pid_file.exists() else []):
        until = time.monotonic() + 10
        while _alive(pid):
            assert time.monotonic() < until, f"process {pid} was left behind"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A killed grandchild that nobody has reaped yet is not alive.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
