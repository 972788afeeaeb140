"""Hand-written tests beside plans: what goes wrong is said as a check says it, in the terminal and in JUnit."""

from __future__ import annotations

import json

import pytest
from desk import Desk, cases, kind_of, properties_of

TESTS = """\
import pytest
from rig.board.report import BootFailure, Observation
from rig.errors import JetsonError
from rig.pytest_plugin.verdicts import inconclusive

pytestmark = pytest.mark.requirement(id="NET-9")

def test_holds(record_dir):
    (record_dir / "note.txt").write_text("mine")

def test_breaks(record_dir):
    assert 2 + 2 == 5

def test_loses_the_jetson(bench):
    raise JetsonError("the connection was lost", seen="phase ready", hint="look at its power")

def test_cannot_know(bench):
    inconclusive("3 frames lost")

@pytest.fixture
def dead(bench):
    raise BootFailure(Observation("no-boot", "the board did not boot", 0))

def test_dead(dead):
    pass

@pytest.fixture
def late(bench):
    yield
    raise JetsonError("the lease could not be given back")

def test_ends_badly(late):
    pass

@pytest.fixture
def later(bench):
    yield
    inconclusive("the tail is not in the capture")

def test_ends_badly_twice(late, later, record_dir):
    pass

@pytest.mark.requires(capability="wind-tunnel")
def test_elsewhere(bench):
    pass

@pytest.mark.requires(capability="here")
def test_here(bench):
    pass
"""

EXPECTED = {
    "test_holds": ("passed", "PASS", ""),
    "test_breaks": ("failure", "FAIL", "assert"),
    "test_loses_the_jetson": ("error", "ERROR", "ERROR jetson: the connection was lost\n  last seen: phase ready\n"),
    "test_cannot_know": ("error", "INCONCLUSIVE", "INCONCLUSIVE 3 frames lost"),
    "test_dead": ("failure", "FAIL", "FAIL alive: the board did not boot"),
    "test_ends_badly": ("error", "ERROR", "ERROR jetson: the lease could not be given back"),
    "test_ends_badly_twice": (
        "error",
        "ERROR",
        "ERROR jetson: the lease could not be given back\nINCONCLUSIVE the tail is not in the capture",
    ),
    "test_elsewhere": ("skipped", "SKIP", "lacks wind-tunnel"),
    "test_here": ("passed", "PASS", ""),
}


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "two-workers"])
def test_each_way_to_end_has_its_verdict(desk: Desk, workers: list[str]) -> None:
    desk.test("test_mine.py", TESTS)
    xml = desk.folder / "junit.xml"
    done = desk.pytest(*workers, f"--junitxml={xml}")
    assert done.status == 1
    found = cases(xml)
    for name, (kind, verdict, words) in EXPECTED.items():
        case = found[name]
        text = "".join(str(child.text) + str(child.get("message")) for child in case if child.tag != "properties")
        assert (kind_of(case), properties_of(case)["verdict"]) == (kind, verdict), name
        assert words in text, name
        if kind == "error" or "alive" in words:
            assert text.startswith(f"{verdict} "), name
        assert properties_of(case)["requirement"] == "NET-9"
    table = done.text.partition("= runs =")[2]
    assert "ERROR         test_loses_the_jetson" in table
    assert "jetson: the connection was lost" in table
    assert "INCONCLUSIVE  test_cannot_know" in table
    assert "test_mine.py:" in done.text  # the assertion keeps its place
    assert done.text.count("Traceback") == 0
    assert "raise JetsonError" not in done.text
    assert "During handling of the above exception" not in done.text + xml.read_text()
    [ends_badly_twice] = (desk.folder / "records").glob("*/*-test_ends_badly_twice/test.json")
    assert json.loads(ends_badly_twice.read_text())["verdict"] == "ERROR"


def test_a_bench_that_cannot_be_opened_is_one_sentence_for_each_test(desk: Desk) -> None:
    desk.test("test_mine.py", "def test_one(bench): pass\ndef test_two(record_dir): pass\n")
    done = desk.pytest(STUB_RIG="broken")
    assert done.status == 1
    assert "2 errors" in done.text
    assert done.text.count("ERROR board: the serial port is busy\n  last seen: held by minicom\n") == 2
    assert "next step: close minicom" in done.text
    assert "fixtures.py" not in done.text


def test_tests_that_do_not_use_the_bench_keep_their_traceback_and_open_none(desk: Desk) -> None:
    desk.test(
        "test_mine.py",
        "import pytest\n"
        "from rig.errors import BoardError\n"
        "@pytest.fixture\n"
        "def board(): return 'my own'\n"
        "def test_one(board):\n"
        "    raise BoardError(board)\n",
    )
    done = desk.pytest(STUB_RIG="broken")
    assert "1 failed" in done.text
    assert "rig.errors.BoardError: board: my own" in done.text
    assert "= runs =" not in done.text


def test_the_folder_of_a_test_says_what_ran(desk: Desk) -> None:
    desk.plan("fine-it")
    desk.test("test_mine.py", "def test_holds(record_dir): (record_dir / 'note.txt').write_text('mine')\n")
    done = desk.pytest()
    assert done.status == 0, done.text
    [directory] = (desk.folder / "records").glob("*/002-test_holds")
    assert {path.name for path in directory.iterdir()} == {"note.txt", "bench.yaml", "test.json"}
    told = json.loads((directory / "test.json").read_text())
    assert (told["test"], told["verdict"]) == ("test_mine.py::test_holds", "PASS")
    assert (directory.parent / "001-fine-it").is_dir()


@pytest.mark.parametrize(
    ("marker", "words"),
    [
        ("firmware('copy')", "the marker `firmware` is given 'copy' without a name"),
        ("firmware(varient='copy')", "the marker `firmware` has no `varient`\n  next step: did you mean `variant`?"),
        ("firmware(flash='sometimes')", "the marker `firmware` cannot have flash='sometimes'"),
        ("firmware(variant=3)", "the marker `firmware` cannot have variant=3"),
        ("requires('here')", "the marker `requires` is given 'here' without a name"),
        ("requires()", "the marker `requires` is given nothing"),
        ("requirement('NET-1')", "next step: write `@pytest.mark.requirement(id=…)`"),
    ],
)
def test_a_marker_that_would_be_without_effect_is_refused(desk: Desk, marker: str, words: str) -> None:
    desk.test("test_mine.py", f"import pytest\n@pytest.mark.{marker}\ndef test_one(bench): pass\n")
    done = desk.pytest()
    assert done.status == 1
    assert f"ERROR plan: {words}" in done.text or f"  {words}" in done.text
    assert "1 error" in done.text
    assert "Traceback" not in done.text


INTERRUPTED = """\
import os, signal, time
from pathlib import Path
import pytest
from rig.errors import JetsonError

def interrupt():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)
    Path("slept").touch()

@pytest.fixture
def own():
    yield
    Path("own-given-back").touch()

@pytest.fixture
def held(own, bench, record_dir):
    yield
    Path("given-back").write_text(f"bench open: {bench.is_open}")

@pytest.fixture
def slow(held):
    yield
    interrupt()

@pytest.fixture
def broken(slow):
    yield
    raise JetsonError("the lease could not be given back")

"""


@pytest.mark.parametrize(
    ("test", "sentence"),
    [
        ("def test_one(held): interrupt()", False),
        ("def test_one(slow): interrupt()", False),
        ("def test_one(slow): pass", False),
        ("def test_one(broken): interrupt()", True),
        ("def test_one(broken): pass", False),
        ("def test_one(held):\n    try: interrupt()\n    finally: interrupt()", False),
        ("def test_one(held): pytest.exit('enough', 2)", False),
    ],
    ids=["test", "test-and-teardown", "teardown", "error", "teardown-and-error", "test-twice", "exit"],
)
def test_an_interrupted_test_gives_everything_back_while_the_bench_is_open(
    desk: Desk, test: str, sentence: bool
) -> None:
    desk.test("test_mine.py", INTERRUPTED + test)
    done = desk.pytest()
    assert done.status == 2, done.text
    assert (desk.folder / "given-back").read_text() == "bench open: True"
    assert (desk.folder / "own-given-back").exists()
    assert not (desk.folder / "slept").exists(), "a further interrupt cuts short what is under way"
    [told] = (desk.folder / "records").glob("*/*/test.json")
    said = json.loads(told.read_text())
    assert (said["outcome"], said["verdict"]) == ("interrupted", "INCONCLUSIVE")
    assert "Traceback" not in done.text
    assert ("ERROR jetson: the lease could not be given back" in done.text) == sentence
