"""Programs of the bench file leave nothing: at their end, at the deadline, when the controller is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from rig.bench.model import Command
from rig.board import command
from rig.board.command import run_command
from rig.deadline import Deadline
from rig.errors import BoardError

ROOT = Path(__file__).parents[2]

FAMILY = """
import os, sys, time
def name(role): os.write(out, f"{role} {os.getpid()}\\n".encode())
out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
ready, tell = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:              # a daemon: own session, parent gone, no inherited output
        os.setsid(); os.close(0); os.close(1); os.close(2); name("daemon"); os.write(tell, b"x"); time.sleep(600)
    os._exit(0)
os.wait(); name("program"); os.read(ready, 1)
print("started", flush=True)
time.sleep(float(sys.argv[2]))
"""
"""A program whose child leaves a daemon behind; before it says `started`, both pids stand in a file."""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_gone(pids: list[int]) -> None:
    until = Deadline.after(10)
    while left := [pid for pid in pids if alive(pid)]:
        assert not until.expired(), f"left behind: {left}"
        time.sleep(0.01)


def pids_of(tmp_path: Path) -> dict[str, int]:
    """Role → pid of the family that has said `started`."""
    return {role: int(pid) for role, pid in (line.split() for line in (tmp_path / "pids").read_text().splitlines())}


def survivors(tmp_path: Path) -> list[str]:
    return [role for role, pid in pids_of(tmp_path).items() if alive(pid)]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def family(tmp_path: Path, seconds: float) -> Command:
    argv = [sys.executable, "-c", FAMILY, str(tmp_path / "pids"), str(seconds)]
    return Command.model_validate({"command": argv, "deadline": "30 s"})


def test_daemon_that_a_successful_program_leaves_is_ended(tmp_path: Path) -> None:
    run_command(family(tmp_path, 0), {}, Deadline.after(30), lambda text: None)
    assert survivors(tmp_path) == []


def test_deadline_ends_the_whole_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed_ns = [0]
    monkeypatch.setattr("rig.deadline.time", SimpleNamespace(monotonic_ns=lambda: time.monotonic_ns() + passed_ns[0]))

    def note(text: str) -> None:
        if text == "| started":
            passed_ns[0] = 3_600_000_000_000

    with pytest.raises(BoardError, match="did not end within its deadline of 30 s") as caught:
        run_command(family(tmp_path, 600), {}, Deadline.after(60), note)
    assert caught.value.seen == "started"
    assert survivors(tmp_path) == []


def test_interrupt_ends_the_whole_family(tmp_path: Path) -> None:
    def note(text: str) -> None:
        if text == "| started":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_command(family(tmp_path, 600), {}, Deadline.after(30), note)
    assert survivors(tmp_path) == []


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_killed_controller_takes_the_whole_family_along(tmp_path: Path, signum: int) -> None:
    code = (
        "import sys; from rig.bench.model import Command; from rig.board.command import run_command\n"
        "from rig.deadline import Deadline\n"
        "run_command(Command(command=sys.argv[1:]), {}, Deadline.after(60), lambda text: print(text, flush=True))\n"
    )
    argv = family(tmp_path, 600).command
    controller = subprocess.Popen([sys.executable, "-c", code, *argv], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert controller.stdout is not None
        while controller.stdout.readline() != "| started\n":
            assert controller.poll() is None
        pids = pids_of(tmp_path)
        keeper = parent_of(pids["program"])
        assert keeper != controller.pid
        controller.send_signal(signum)
    finally:
        controller.kill()
        controller.communicate()
    wait_gone([*pids.values(), keeper])


def test_killed_keeper_is_an_error_and_takes_the_program_along(tmp_path: Path) -> None:
    def note(text: str) -> None:
        if text == "| started":
            os.kill(parent_of(pids_of(tmp_path)["program"]), signal.SIGKILL)

    try:
        with pytest.raises(BoardError, match="failed with its keeper being killed"):
            run_command(family(tmp_path, 600), {}, Deadline.after(30), note)
        wait_gone([pids_of(tmp_path)["program"]])
    finally:  # nobody is left who knows the daemon
        os.kill(pids_of(tmp_path)["daemon"], signal.SIGKILL)


def test_output_is_logged_while_the_program_runs() -> None:
    heard = threading.Event()
    read, write = os.pipe()

    def note(text: str) -> None:
        if text == "| first":
            heard.set()
            os.write(write, b"go on")

    code = "import sys, os; print('first', flush=True); sys.exit(0 if os.read(int(sys.argv[1]), 5) else 1)"
    opened = f"/proc/{os.getpid()}/fd/{read}"
    script = f"import os, sys; fd = os.open({opened!r}, os.O_RDONLY); sys.argv[1:] = [str(fd)]\n" + code
    try:
        run_command(Command(command=[sys.executable, "-c", script]), {}, Deadline.after(30), note)
    finally:
        os.close(read)
        os.close(write)
    assert heard.is_set()


def test_progress_bars_become_lines_and_a_flood_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "OUTPUT_LOGGED", 50)
    notes: list[str] = []
    code = r"import sys; sys.stdout.write('10 %\r20 %\r\n' + 'x' * 60 + '\nlost\n' * 3 + 'last'); sys.exit(7)"
    with pytest.raises(BoardError, match="exit status 7") as caught:
        run_command(Command(command=[sys.executable, "-c", code]), {}, Deadline.after(30), notes.append)
    assert notes[1:4] == ["| 10 %", "| 20 %", "| " + "x" * 60]
    assert notes[4].startswith("| (more than")
    assert len(notes) == 5
    assert caught.value.seen == "last", "the last line is told whatever was cut"
