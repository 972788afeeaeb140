"""A bench that can be broken at a chosen moment of a run, and what the run must then say.

One run of a small plan is driven in this process; a fault is set off when the progress line of its phase appears.
"""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shutil
import signal
import subprocess
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controlled import KINDS, Members, processes_in

from rig.campaign import Campaign, Judged
from rig.deadline import Deadline
from rig.emulation.bench import EmulatedBench
from rig.plan.load import load_plan
from rig.project import DEFAULT_BENCH
from rig.record import RunInfo, load_run
from rig.session import Rig
from rig.timing.rendering import render_check

ENDED_S = 30.0
SLACK_S = 2.0
"""What a phase may take beyond its budget, and beyond what this machine was late at: closing things."""


@dataclass
class Bench:
    """The bench of one run, for whoever wants to break it. folder: scratch that goes with the test."""

    rig: Rig
    folder: Path
    cleanup: contextlib.ExitStack
    line: Line | None = None
    stopped: list[int] = field(default_factory=list)

    @property
    def emulated(self) -> EmulatedBench:
        assert self.rig._emulated is not None
        return self.rig._emulated

    def set(self, section: str, **changes: Any) -> None:
        """Change a section of the resolved bench, such as `jetson` or `board.serial`."""
        path = section.split(".")
        value: Any = self.rig.bench
        sections = [value := getattr(value, name) for name in path]
        changed = sections[-1].model_copy(update=changes)
        for name, outer in zip(reversed(path), reversed([self.rig.bench, *sections[:-1]]), strict=True):
            changed = outer.model_copy(update={name: changed})
        self.rig.bench = changed

    def processes(self, words: str) -> list[int]:
        """Processes inside the bench whose name or command line holds `words`, oldest first."""
        inside = processes_in(namespaces_of_bench())
        return sorted(pid for pid, command in inside.items() if words in command or words in _name(pid))

    def kill(self, words: str, signum: int = signal.SIGKILL) -> None:
        """Signal all of them; there must be some."""
        found = self.processes(words)
        assert found, f"no process {words!r} in {processes_in(namespaces_of_bench())}"
        for pid in found:
            if signum == signal.SIGSTOP:
                self.stopped.append(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)

    def freeze(self, words: str) -> None:
        self.kill(words, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self.stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def ip(self, *arguments: str) -> None:
        done = self.rig.host.run(["ip", *arguments], Deadline.after(5))
        assert done.returncode == 0, done.stderr

    def on_jetson(self, *command: str) -> None:
        """Run a command in the namespaces of the Jetson, as its root."""
        sshd = self.processes("sshd")[0]
        subprocess.run(["nsenter", "-t", str(sshd), "-m", "-n", *command], check=True, capture_output=True)

    def reroute_serial(self) -> Line:
        """Put a line that can be disturbed between the rig and the board's serial port."""
        self.line = self.cleanup.enter_context(Line(self.rig.bench.board.serial.port))
        self.set("board.serial", port=self.line.path)
        return self.line


class Line:
    """A pseudo-terminal in front of another one. to_board, to_rig: what becomes of the bytes on their way."""

    def __init__(self, behind: str) -> None:
        self.to_board: Callable[[bytes], bytes] = lambda data: data
        self.to_rig: Callable[[bytes], bytes] = lambda data: data
        self._near, far = pty.openpty()
        tty.setraw(far)
        self.path = os.ttyname(far)
        self._board = os.open(behind, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        self._far: int | None = far
        self._wake, self._awake = os.pipe()
        self._thread = threading.Thread(target=self._carry, daemon=True)

    def __enter__(self) -> Line:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.unplug()
        for fd in (self._wake, self._awake, self._board):
            os.close(fd)

    def unplug(self) -> None:
        """The adapter is pulled out: reads and writes of the port fail from now on."""
        if self._thread.is_alive():
            os.write(self._awake, b"x")
            self._thread.join()
        if self._far is not None:
            os.close(self._far)
            os.close(self._near)
            self._far = None

    def _carry(self) -> None:
        while True:
            readable = select.select([self._near, self._board, self._wake], [], [])[0]
            if self._wake in readable:
                return
            try:
                self._follow_speed()
                if self._near in readable:
                    self._pass(self._near, self._board, self.to_board)
                if self._board in readable:
                    self._pass(self._board, self._near, self.to_rig)
            except (OSError, termios.error):  # the bench behind it has ended
                return

    def _follow_speed(self) -> None:
        wanted, has = termios.tcgetattr(self._near), termios.tcgetattr(self._board)
        if wanted[4:6] != has[4:6]:
            has[4:6] = wanted[4:6]
            termios.tcsetattr(self._board, termios.TCSANOW, has)

    @staticmethod
    def _pass(source: int, sink: int, change: Callable[[bytes], bytes]) -> None:
        with contextlib.suppress(BlockingIOError):
            data = change(os.read(source, 4096))
            while data:
                select.select([], [sink], [])
                data = data[os.write(sink, data) :]


Provocation = Callable[[Bench], None]


@dataclass(frozen=True)
class Case:
    """One fault. before: what is broken before the run; at, provoke: what happens when that phase shows its line.

    at: a phase, `PHASE!` for its middle: some of the image is written, some requests are in the capture.
    verdict, side, phase: of an ERROR, or the run's verdict (then phase is the check that says so). words: all must be
    in what is printed. budgets: names in modules (`rig.run.PREFLIGHT_S`) with smaller values, so that tests are quick.
    """

    name: str
    verdict: str
    side: str
    phase: str
    words: tuple[str, ...]
    before: Provocation | None = None
    at: str = ""
    provoke: Provocation | None = None
    plan: dict[str, Any] = field(default_factory=dict)
    firmware: Callable[[Path], Path] | None = None
    budgets: dict[str, float] = field(default_factory=dict)
    root: bool = False
    slow: bool = False
    also: Callable[[RunInfo], None] | None = None


class Provoker:
    """A Progress that sets off the fault of a case."""

    def __init__(self, case: Case, bench: Callable[[], Bench]) -> None:
        self._case, self._bench = case, bench
        self._done = False
        self._traffic_over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.failures: list[BaseException] = []

    def run_begins(self, title: str) -> None:
        pass

    def phase_begins(self, name: str) -> None:
        name = name.split()[0]
        if self._case.at == name:
            self._provoke()
        elif self._case.at == f"{name}!" and name == "traffic":
            thread = threading.Thread(target=self._in_mid_traffic)
            self._threads.append(thread)
            thread.start()

    def update(self, text: str) -> None:
        if self._case.at == "flash!" and text.startswith("write"):
            self._provoke()

    def phase_ends(self, name: str, seconds: float, outcome: str, note: str) -> None:
        if name.split()[0] == "traffic":
            self._traffic_over.set()

    def warn(self, text: str) -> None:
        pass

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _in_mid_traffic(self) -> None:
        [capture] = self._bench().folder.glob("records/*/*/capture.pcapng")
        while not self._traffic_over.wait(0.002):
            if capture.stat().st_size > 10_000:
                if self._traffic_over.is_set():
                    break
                self._provoke()
                return
        self.failures.append(AssertionError("the provocation came too late: the traffic was over; plan more requests"))

    def _provoke(self) -> None:
        if self._done or self._case.provoke is None:
            return
        self._done = True
        try:
            self._case.provoke(self._bench())
        except BaseException as error:  # noqa: BLE001 - shown by the test, not swallowed by the run
            self.failures.append(error)


class Lateness:
    """How much longer (s), in all, a thread of ours slept than it wanted to: what the machine took from every phase."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Lateness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        wanted_s = 0.05
        began = time.monotonic()
        while not self._end.wait(wanted_s):
            now = time.monotonic()
            self.seconds += now - began - wanted_s
            began = now


@dataclass(frozen=True)
class Outcome:
    """seconds: what the run took; late_s: Lateness in it."""

    judged: Judged
    info: RunInfo | None
    text: str
    seconds: float
    late_s: float


def run_case(case: Case, plan: Path, folder: Path) -> Outcome:
    """Run `plan` on a bench of its own with the fault of `case`; the bench is gone afterwards."""
    broken: list[Bench] = []
    provoker = Provoker(case, lambda: broken[0])
    firmware = case.firmware(folder) if case.firmware else None
    members = Members({})
    began = time.monotonic()
    with contextlib.ExitStack() as cleanup:
        with Campaign(DEFAULT_BENCH, folder / "records", ["test"], provoker, firmware=firmware) as campaign:
            bench = Bench(campaign.rig(), folder, cleanup)
            broken.append(bench)
            members = Members.of(processes_in(namespaces_of_bench()))
            cleanup.callback(bench.thaw)
            if case.before is not None:
                case.before(bench)
            plan_file = load_plan(plan)
            began = time.monotonic()
            with Lateness() as late:
                judged = campaign.run(plan_file, plan_file.points[0])
            seconds = time.monotonic() - began
            provoker.join()
            bench.thaw()
            info = load_run(judged.record) if judged.record else None
    end = time.monotonic() + ENDED_S
    while left := members.left():
        assert time.monotonic() < end, left
        time.sleep(0.01)
    if provoker.failures:
        raise provoker.failures[0]
    text = "\n".join(render_check(check) for check in judged.result.checks)
    return Outcome(judged, info, text, seconds, late.seconds)


def namespaces_of_bench() -> set[tuple[str, str]]:
    """Those of the one bench that this process has brought up: of its launcher's child and all below."""
    launchers = [pid for pid in _children(os.getpid()) if _name(pid) == "rig-launcher"]
    found: set[tuple[str, str]] = set()
    for launcher in launchers:
        for init in _children(launcher):
            with contextlib.suppress(OSError):
                found.add(("pid", str(Path(f"/proc/{init}/ns/pid").readlink())))
    assert all(kind in KINDS for kind, _ in found)
    return found


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A tmpfs of `size` at `folder`, gone afterwards. Root only."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill_up(folder: Path) -> None:
    """Leave not a byte of room there."""
    with (folder / "filler").open("wb", buffering=0) as stream:
        with contextlib.suppress(OSError):
            while True:
                stream.write(bytes(4096))


def path_with(folder: Path, program: str, script: str | None) -> str:
    """A PATH where `program` is `script` (None: missing) and all else is as usual."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    if script is not None:
        (bin_folder / program).write_text(script)
        (bin_folder / program).chmod(0o755)
        return f"{bin_folder}:{os.environ['PATH']}"
    for name in ("ip", "env", "ethtool", "git", "tshark", "sshd", "qemu-system-arm"):
        found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        if found:
            (bin_folder / name).symlink_to(found)
    return str(bin_folder)


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""
