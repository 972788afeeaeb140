"""However a run ends, in whatever phase: nothing of it stays, what it wrote can be read, and the next one passes.

The default tier ends one run in each phase, in each way; the soak tier goes through the whole matrix.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from controlled import Controller, Members, is_free, left_of

from rig.capture.reader import read_capture
from rig.errors import RigError
from rig.record import load_run, runs_of

pytestmark = pytest.mark.bench

PHASES = ("preflight", "flash", "capture", "boot", "engine", "network", "traffic", "drain", "collect")


def ctrl_c(run: Controller) -> None:
    run.press_ctrl_c()


def ctrl_c_twice(run: Controller) -> None:
    """The second once the first has had its effect: the phase is broken off and the teardown is under way."""
    run.press_ctrl_c()
    run.wait_for("FAILED")
    run.press_ctrl_c()


def by_signal(signum: signal.Signals) -> Callable[[Controller], None]:
    return lambda run: run.process.send_signal(signum)


ENDS: dict[str, Callable[[Controller], None]] = {
    "ctrl-c": ctrl_c,
    "ctrl-c-twice": ctrl_c_twice,
    "sigterm": by_signal(signal.SIGTERM),
    "sighup": by_signal(signal.SIGHUP),
    "sigkill": by_signal(signal.SIGKILL),
    "terminal-lost": Controller.hang_up,
}
FRONTS = ("rig", "pytest")

FEW = [
    ("rig", "preflight", "sigterm"),
    ("pytest", "flash", "ctrl-c"),
    ("rig", "capture", "terminal-lost"),
    ("pytest", "boot", "sigkill"),
    ("rig", "engine", "sighup"),
    ("rig", "network", "ctrl-c-twice"),
    ("pytest", "traffic", "sigterm"),
    ("rig", "traffic", "sigkill"),
    ("rig", "drain", "ctrl-c"),
    ("pytest", "collect", "terminal-lost"),
]


def command(front: str, plan: Path, records: Path) -> list[str]:
    if front == "rig":
        return [sys.executable, "-m", "rig.cli", "run", str(plan), "--record-dir", str(records)]
    plugins = ["-p", "rig.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return [sys.executable, "-m", "pytest", *plugins, f"--record-dir={records}", f"--rootdir={plan.parent}", str(plan)]


class Bench:
    """The state of one emulated bench and the plans that run on it; `end` is the matrix's one cell."""

    def __init__(self, place, folder: Path, long: Path, short: Path, flashing: Path) -> None:
        self.place, self.folder, self.long, self.short, self.flashing = place, folder, long, short, flashing
        self.state = place.folder / "state" / "rig" / "emulated"
        self.scratch = folder / "tmp"
        self.scratch.mkdir()
        self._count = itertools.count()

    def environment(self) -> dict[str, str]:
        return self.place.environment() | {"TMPDIR": str(self.scratch)}

    def end(self, front: str, phase: str, how: str, late_s: float = 0.0) -> str:
        """Run, end it `late_s` s into `phase`, look for what is left. Returns the phase in which it was caught."""
        records = self.folder / f"records-{next(self._count)}"
        plan = {"flash": self.flashing, "drain": self.short, "collect": self.short}.get(phase, self.long)
        names = named_namespaces()
        with Controller(command(front, plan, records), self.environment()) as run:
            assert run.wait_for(f"\x1b[K  {phase:<10} "), run.text
            if phase == "traffic":
                [capture] = records.glob("*/*/capture.pcapng")
                run.wait_until(lambda: capture.stat().st_size > 50_000)
            time.sleep(late_s)  # where in the phase: by chance, in the soak tier
            members = Members.of(run.members())
            ENDS[how](run)
            status = run.process.wait(timeout=60)
            assert left_of(run, members) == {}
        text = run.text
        assert "Traceback" not in text, text
        assert "INTERNALERROR" not in text, text
        assert named_namespaces() == names
        assert str(self.place.folder) not in Path("/proc/self/mountinfo").read_text()
        assert list((self.state / "run").iterdir()) == []
        assert is_free(self.state / "lease")
        assert is_free(self.state / "emulation.lock")
        assert list(self.scratch.iterdir()) == []
        caught = self._look_at_record(records, front, how, status, text)
        if phase == "traffic":
            [capture] = records.glob("*/*/capture.pcapng")
            assert len(read_capture(capture)) > 100
        return caught

    def _look_at_record(self, records: Path, front: str, how: str, status: int, text: str) -> str:
        [record] = [run for set_dir in records.iterdir() for run in runs_of(set_dir)]
        info = load_run(record)
        if how == "sigkill":
            assert status == -signal.SIGKILL
            if info.outcome == "completed":
                return "(over)"
            assert info.outcome == "running"
            caught = f"after {info.phases[-1].name}" if info.phases else "at its start"
        else:
            if how != "terminal-lost":
                # CPython ends itself with SIGINT, 130 to a shell too, when the interrupt passed through an `exec` of
                # text, as a dataclass is made by, although it was caught further out.
                assert status in {"rig": (130, -signal.SIGINT), "pytest": (2,)}[front], text
            if info.outcome == "completed":
                return "(over)"
            assert info.outcome == "interrupted", info
            assert info.ended_utc
            broken = [phase for phase in info.phases if phase.outcome == "failed"]
            caught = broken[0].name if broken else f"after {info.phases[-1].name}" if info.phases else "at its start"
            left = {path.name for path in record.iterdir()}
            assert left <= {*info.files, "run.json"}, "no temporary files"
        if (record / "capture.pcapng").exists():
            read_what_is_there(record / "capture.pcapng")
        judged = self.place.rig("judge", record)
        assert judged.returncode == 4, judged.stdout + judged.stderr
        assert "INCONCLUSIVE" in judged.stdout
        assert ("was killed" if how == "sigkill" else "was interrupted") in judged.stdout
        return caught


def read_what_is_there(capture: Path) -> None:
    if capture.stat().st_size:
        read_capture(capture)
    else:
        with pytest.raises(RigError):  # killed before the first block was written
            read_capture(capture)


def named_namespaces() -> list[str]:
    return sorted(entry.name for entry in Path("/run/netns").iterdir()) if Path("/run/netns").is_dir() else []


@pytest.fixture
def bench(place, write_plan, tmp_path: Path) -> Bench:
    flashing = write_plan("flashing", variant="zero_copy, flash: always", requests=20_000)
    return Bench(place, tmp_path, write_plan("long", requests=20_000), write_plan("short", requests=60), flashing)


@pytest.mark.parametrize(("front", "phase", "how"), FEW)
def test_an_ended_run_leaves_nothing_but_its_record(front: str, phase: str, how: str, bench: Bench) -> None:
    caught = bench.end(front, phase, how)
    if phase in ("preflight", "flash", "traffic") and how != "sigkill":  # the others are over within milliseconds
        tries = 1
        while phase not in caught:
            assert tries < 5, caught
            caught, tries = bench.end(front, phase, how), tries + 1  # a busy host let the signal come too late


def test_the_next_run_on_that_bench_passes(place, write_plan) -> None:
    done = place.rig("run", write_plan("after"), "--record-dir", place.records)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("how", ["ctrl-c", "sigkill"])
def test_a_joined_bench_is_left_as_it_was_found(how: str, bench: Bench) -> None:
    """A bench that lasts, as hardware does: remote job, lease, capture and serial port are given back."""
    serving = [sys.executable, "-m", "rig.cli", "bench", "up"]
    with Controller(serving, bench.environment()) as up:
        assert up.wait_for("is up"), up.text
        before = sorted(up.members().values())
        records = bench.folder / "records"
        with Controller(command("rig", bench.long, records), bench.environment()) as run:
            assert run.wait_for(f"\x1b[K  {'traffic':<10} "), run.text
            [capture] = records.glob("*/*/capture.pcapng")
            run.wait_until(lambda: capture.stat().st_size > 50_000)
            assert len(up.members()) > len(before), "runner, its SSH session and dumpcap are inside"
            ENDS[how](run)
            run.process.wait(timeout=60)
            assert left_of(run, Members({})) == {}
        end = time.monotonic() + 30
        while sorted(up.members().values()) != before and time.monotonic() < end:
            time.sleep(0.02)
        assert sorted(up.members().values()) == before
        assert is_free(bench.state / "lease")
        [jetson] = [pid for pid, name in up.members().items() if name.startswith("sshd:")]
        home = Path(f"/proc/{jetson}/root/run/jetson/.rig")
        if os.getuid() == 0:  # others may not look into the namespaces of their own bench
            assert not (home / "lease.json").exists()
        after = bench.place.rig("run", bench.short, "--record-dir", bench.folder / "after")
        assert after.returncode == 0, after.stdout + after.stderr
        if os.getuid() == 0:
            assert list((home / "runs").iterdir()) == [], "the next run swept what the killed one left"
        whole = Members.of(up.members())
        up.press_ctrl_c()
        up.process.wait(timeout=60)
        assert left_of(up, whole) == {}


HAND_WRITTEN = """\
import fcntl, json, time
from pathlib import Path
import pytest

HERE = Path(__file__).parent

def held(lease):
    with open(lease, "rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False

@pytest.fixture
def watched(jetson, capture, board):
    yield
    (HERE / "teardown").write_text(str(held("{lease}")))

def test_waits(watched):
    (HERE / "waits").touch()
    time.sleep(600)
"""


@pytest.mark.parametrize("how", ["ctrl-c", "terminal-lost"])
def test_an_interrupted_hand_written_test_gives_back_what_its_fixtures_hold(how: str, bench: Bench) -> None:
    """On a bench that lasts: its capture, its Jetson lease and its console are closed before the bench is let go."""
    test = bench.folder / "test_waits.py"
    test.write_text(HAND_WRITTEN.replace("{lease}", str(bench.state / "lease")))
    records = bench.folder / "records"
    with Controller([sys.executable, "-m", "rig.cli", "bench", "up"], bench.environment()) as up:
        assert up.wait_for("is up"), up.text
        before = sorted(up.members().values())
        with Controller(command("pytest", test, records), bench.environment()) as run:
            run.wait_until((bench.folder / "waits").exists)
            assert len(up.members()) > len(before), "the lease's holder, its SSH session and dumpcap are inside"
            ENDS[how](run)
            status = run.process.wait(timeout=60)
            assert left_of(run, Members({})) == {}
        assert how == "terminal-lost" or status == 2, run.text
        assert "Traceback" not in run.text
        end = time.monotonic() + 30
        while sorted(up.members().values()) != before and time.monotonic() < end:
            time.sleep(0.02)
        assert sorted(up.members().values()) == before
        assert is_free(bench.state / "lease")
        up.press_ctrl_c()
        up.process.wait(timeout=60)
    assert (bench.folder / "teardown").read_text() == "True", "the bench is still held while fixtures are torn down"
    [told] = [json.loads(path.read_text()) for path in records.glob("*/*/test.json")]
    assert (told["outcome"], told["verdict"]) == ("interrupted", "INCONCLUSIVE")
    assert told["capture"]["drained"] != "not"
    assert told["firmware"]["flash"]["verified"]


@pytest.mark.soak
def test_the_whole_matrix(bench: Bench, repeats: Callable[[int, int], int], capsys) -> None:
    """Every way to end in every phase under both fronts, at a random moment of the phase; prints where it caught."""
    cells = list(itertools.product(FRONTS, PHASES, ENDS))
    rounds = repeats(0, 3)
    if not rounds:
        pytest.skip("the whole matrix takes a quarter of an hour: -m soak")
    longest = {"preflight": 0.3, "flash": 0.8, "capture": 0.15, "boot": 0.05, "traffic": 0.5, "drain": 0.15}
    chance = random.Random(1)
    caught: Counter[str] = Counter()
    try:
        for front, phase, how in [cell for _ in range(rounds) for cell in cells]:
            caught[bench.end(front, phase, how, chance.uniform(0, longest.get(phase, 0.0)))] += 1
    finally:
        with capsys.disabled():
            print(f"\n{caught.total()} of {rounds * len(cells)} runs ended, caught in: {dict(sorted(caught.items()))}")
    done = bench.place.rig("run", bench.short, "--record-dir", bench.folder / "after")
    assert done.returncode == 0, done.stdout + done.stderr
