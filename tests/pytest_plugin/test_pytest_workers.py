"""Under pytest-xdist: a run stays together, each worker has its bench, one set, one table, one JUnit file."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from desk import MATRIX, ROOT, Desk, cases, kind_of, properties_of

from rig.pytest_plugin.invocation import BenchChoice, Invocation, choose
from rig.pytest_plugin.workers import Workers

EMULATED = ROOT / "benches" / "emulated.yaml"
HARDWARE = """\
bench: {name}
uncertainty: {{declared: 20 us}}
board:
  serial: {{port: /dev/ttyUSB-{name}, baud: 115200}}
  flash: {{driver: an3155, baud: 115200}}
  identity: {{name: {name}, mac: '02:00:00:00:00:03', address: 192.168.50.10}}
jetson:
  host: orin.lab.example
  user: rig
  host_key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f
  bench_address: 192.168.50.20
capture: {{point: inline, interface: enp3s0}}
"""


def hardware(desk: Desk, name: str) -> Path:
    path = desk.folder / f"{name}.yaml"
    path.write_text(HARDWARE.format(name=name))
    return path


def test_all_checks_of_a_run_are_on_one_worker_and_all_land_in_one_set(desk: Desk) -> None:
    for number in range(4):
        desk.plan(f"plan-{number}", MATRIX)
    xml = desk.folder / "junit.xml"
    done = desk.pytest("-n", "2", "-v", f"--junitxml={xml}")
    assert done.status == 0, done.text
    assert done.text.count("  flash              1.25 s  22 KiB written") == 8
    assert "24 passed" in done.text
    titles = [f"plan-{n}[variant-{v}]" for n in range(4) for v in ("copy", "zero_copy")]
    assert sorted(done.titles) == titles  # none ran twice
    workers, benches, instances, sets = (set(column) for column in list(zip(*done.runs, strict=True))[:4])
    assert workers == {"gw0", "gw1"}
    assert benches == {"emulated.yaml"}
    assert instances == {"w0", "w1"}
    assert [folder.name for folder in (desk.folder / "records").iterdir()] == list(sets)
    folders = sorted(path.name for path in (desk.folder / "records").glob("*/*-plan-*"))
    assert [name[:3] for name in folders] == [f"{n:03d}" for n in range(1, 9)]
    table = done.text.partition("= runs =")[2]
    assert all(f"PASS          {title} " in table for title in titles), table
    assert f"records: records/{next(iter(sets))}" in table
    assert len(cases(xml)) == 24


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "two-workers"])
def test_junit_tells_failure_from_error_and_names_verdict_and_requirement(desk: Desk, workers: list[str]) -> None:
    for kind in ("fine", "fail", "error", "vague", "skip"):
        desk.plan(f"{kind}-it", "requirement: [NET-1, NET-2]" if kind == "fail" else "")
    desk.plan("fail-right", "expect: {fail: [answer-time]}")
    desk.plan("fine-wrong", "expect: {fail: [answer-time]}")
    xml = desk.folder / "junit.xml"
    done = desk.pytest(*workers, f"--junitxml={xml}")
    assert done.status == 1
    found = cases(xml)
    assert len(found) == 21
    told = {
        plan: (kind_of(found[f"{plan}::answer-time"]), properties_of(found[f"{plan}::answer-time"])["verdict"])
        for plan in ("fine-it", "fail-it", "error-it", "vague-it", "skip-it", "fail-right", "fine-wrong")
    }
    assert told == {
        "fine-it": ("passed", "PASS"),
        "fail-it": ("failure", "FAIL"),
        "error-it": ("error", "ERROR"),
        "vague-it": ("error", "INCONCLUSIVE"),
        "skip-it": ("skipped", "SKIP"),
        "fail-right": ("passed", "FAIL"),
        "fine-wrong": ("failure", "PASS"),
    }
    assert kind_of(found["fail-it::no-loss"]) == "passed"
    failed = found["fail-it::answer-time"]
    assert [one.get("value") for one in failed.iter("property") if one.get("name") == "requirement"] == [
        "NET-1",
        "NET-2",
    ]
    told_of_it = properties_of(failed)
    assert (told_of_it["plan"], told_of_it["point"], told_of_it["check"]) == ("fail-it", "", "answer-time")
    assert Path(str(told_of_it["record"])).is_dir()
    for plan, word in (("fail-it", "FAIL"), ("error-it", "ERROR"), ("vague-it", "INCONCLUSIVE")):
        text = next(child.text for child in found[f"{plan}::answer-time"] if child.tag in ("failure", "error"))
        assert str(text).startswith(f"{word} answer-time: because of")
    assert "Traceback" not in done.text


def test_workers_on_hardware_get_one_bench_each(desk: Desk) -> None:
    for number in range(4):
        desk.plan(f"plan-{number}")
    done = desk.pytest("-n", "2", f"--bench={hardware(desk, 'lab-1')}", f"--bench={hardware(desk, 'lab-2')}")
    assert done.status == 0, done.text
    used = {(run[0], run[1], run[2]) for run in done.runs}
    assert sorted(bench for _, bench, _ in used) == ["lab-1.yaml", "lab-2.yaml"]
    assert {instance for _, _, instance in used} == {"None"}


@pytest.mark.parametrize(
    ("names", "workers", "words"),
    [
        (["lab-1"], 2, "1 bench is named (lab-1) for 2 workers"),
        (["lab-1", "lab-2", "lab-3"], 2, "3 benches are named (lab-1, lab-2, lab-3) for 2 workers"),
        (["lab-1", "lab-2"], 0, "add -n 2"),
        (["lab-1", "lab-1"], 2, "bench 'lab-1' more than once"),
    ],
)
def test_a_number_of_benches_that_does_not_fit_is_refused(
    desk: Desk, names: list[str], workers: int, words: str
) -> None:
    files = [str(hardware(desk, name)) for name in names]
    with pytest.raises(pytest.UsageError) as refused:
        choose(files, workers)
    assert words in str(refused.value)


def test_one_emulated_bench_serves_any_number_of_workers(desk: Desk) -> None:
    assert choose([], 0) == choose([], 1)
    assert [one.instance for one in choose([], 1)] == [None]
    assert [one.instance for one in choose([str(EMULATED)], 3)] == ["w0", "w1", "w2"]
    two = [str(EMULATED), str(hardware(desk, "lab-1"))]
    assert choose(two, 2) == [BenchChoice(file) for file in two]


def test_too_few_benches_end_the_command_before_anything_is_collected(desk: Desk) -> None:
    desk.plan("fine-it")
    done = desk.pytest("-n", "2", f"--bench={hardware(desk, 'lab-1')}")
    assert done.status == 4
    assert "ERROR: 1 bench is named (lab-1) for 2 workers" in done.text
    assert done.runs == []


class _Node:
    def __init__(self) -> None:
        self.workerinput: dict[str, dict[str, str]] = {}


def test_the_worker_that_replaces_a_crashed_one_gets_its_bench() -> None:
    workers = Workers([BenchChoice("a.yaml"), BenchChoice("b.yaml")], "set")
    first, second, third = _Node(), _Node(), _Node()
    workers.pytest_configure_node(first)
    workers.pytest_configure_node(second)
    workers.pytest_testnodedown(first)
    workers.pytest_configure_node(third)
    assert [node.workerinput["rig"]["bench"] for node in (first, second, third)] == ["a.yaml", "b.yaml", "a.yaml"]


def test_a_worker_that_dies_is_an_error_and_its_other_checks_get_another_run(desk: Desk) -> None:
    desk.plan("crash-it")
    desk.test("test_dies.py", "import os\ndef test_dies(): os.kill(os.getpid(), 9)\n")
    xml = desk.folder / "junit.xml"
    done = desk.pytest("-n", "1", f"--junitxml={xml}")
    assert done.status == 1
    assert "2 passed, 2 errors" in done.text
    assert "ERROR rig: worker 'gw0' crashed" in done.text
    assert [(run[0], run[-1]) for run in done.runs] == [("gw0", "crash-it"), ("gw2", "crash-it")]
    found = cases(xml)
    assert {name: kind_of(case) for name, case in found.items()} == {
        "crash-it::answer-time": "error",
        "crash-it::no-loss": "passed",
        "crash-it::alive": "passed",
        "test_dies": "error",
    }


def test_a_worker_that_dies_of_the_last_item_is_not_waited_for(desk: Desk) -> None:
    desk.test("test_dies.py", "import os\ndef test_dies(): os.kill(os.getpid(), 9)\n")
    desk.test("test_fine.py", "def test_one(): pass\ndef test_two(): pass\n")
    done = desk.pytest("-n", "1", stub=False)
    assert done.status == 1
    assert "2 passed, 1 error" in done.text


def test_a_further_interrupt_reaches_what_is_being_torn_down_and_nothing_else() -> None:
    invocation = Invocation(SimpleNamespace())  # type: ignore[arg-type]
    hurried: list[bool] = []
    invocation.on_further_interrupt = lambda: hurried.append(True)
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        invocation._interrupt(signal.SIGTERM, None)
    with pytest.raises(KeyboardInterrupt, match="SIGINT"), invocation.interruptible():
        invocation._interrupt(signal.SIGINT, None)
    assert not hurried
    invocation._interrupt(signal.SIGINT, None)
    assert hurried


def in_foreground(desk: Desk, *arguments: str) -> subprocess.Popen[str]:
    """pytest as the foreground process group of a terminal."""
    return subprocess.Popen(
        desk.command(*arguments),
        cwd=desk.folder,
        env=desk.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
        # Whatever was ignored where these tests were started: in the background, say.
        preexec_fn=lambda: [signal.signal(each, signal.SIG_DFL) for each in (signal.SIGINT, signal.SIGHUP)] and None,
    )


WAITS = """\
import os, signal, time
from pathlib import Path
from types import SimpleNamespace
import pytest

@pytest.fixture
def resource():
    yield
    Path({folder!r}, f"torn-down-{{os.environ['PYTEST_XDIST_WORKER']}}").touch()

@pytest.mark.parametrize("number", range(2))
class TestWaits:
    def test_long(self, resource, number):
        Path({folder!r}, f"up-{{os.getpid()}}").touch()
        try:
            time.sleep(60)
        except KeyboardInterrupt as interrupt:
            Path({folder!r}, f"ended-by-{{interrupt}}-{{os.environ['PYTEST_XDIST_WORKER']}}").touch()
            raise
"""


@pytest.mark.parametrize(
    ("send", "signum"),
    [(os.killpg, signal.SIGINT), (os.kill, signal.SIGTERM), (os.killpg, signal.SIGHUP)],
    ids=["ctrl-c", "sigterm", "terminal-lost"],
)
def test_the_controlling_process_passes_its_end_on_and_waits_for_teardown(
    desk: Desk, send: Callable[[int, int], None], signum: signal.Signals
) -> None:
    for name in ("test_a.py", "test_b.py"):
        desk.test(name, WAITS.format(folder=str(desk.folder)))
    process = in_foreground(desk, "-n", "2")
    while len(workers := [int(path.name.removeprefix("up-")) for path in desk.folder.glob("up-*")]) < 2:
        assert process.poll() is None, process.stdout and process.stdout.read()
        time.sleep(0.02)
    send(process.pid, signum)  # a terminal sends to the whole foreground process group
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 2, text
    # By its SIGTERM alone: pytest-xdist's own way out waits 5 s, interrupts, and kills after 10 s, in mid-teardown.
    assert sorted(path.name for path in desk.folder.glob("ended-by-*")) == [f"ended-by-SIGTERM-gw{n}" for n in (0, 1)]
    assert sorted(path.name for path in desk.folder.glob("torn-down-*")) == ["torn-down-gw0", "torn-down-gw1"]
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    assert "Traceback" not in text


SLOW_TO_END = """\
import time
from pathlib import Path
import pytest

@pytest.fixture
def held():
    yield
    Path({folder!r}, "given-back").touch()

@pytest.fixture
def slow(held):
    yield
    Path({folder!r}, "tearing-down").touch()
    time.sleep(60)

def test_waits(slow):
    Path({folder!r}, "up").touch()
    time.sleep(60)
"""


def test_a_second_ctrl_c_cuts_the_workers_teardown_short(desk: Desk) -> None:
    desk.test("test_slow.py", SLOW_TO_END.format(folder=str(desk.folder)))
    process = in_foreground(desk, "-n", "1")
    for name in ("up", "tearing-down"):
        while not (desk.folder / name).exists():
            assert process.poll() is None, process.stdout and process.stdout.read()
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 2, text
    assert (desk.folder / "given-back").exists(), text
    assert "Traceback" not in text
