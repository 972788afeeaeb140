"""`rig run` when its output is lost: every run is made all the same, and the exit code is that of the verdicts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from desk import Desk


@pytest.mark.parametrize(("kind", "code"), [("fine", 0), ("fail", 1), ("vague", 4)])
def test_a_run_set_goes_on_without_its_reader(desk: Desk, kind: str, code: int) -> None:
    plans = [desk.plan(f"{kind}-it"), desk.plan("fine-too")]
    reading, writing = os.pipe()
    os.close(reading)
    done = desk.rig("run", *plans, "--record-dir", desk.folder / "records", stdout=writing)
    assert (done.status, done.text, done.titles) == (code, "", [f"{kind}-it", "fine-too"])


def test_a_run_set_goes_on_when_the_disk_of_its_log_is_full(desk: Desk) -> None:
    plans = [desk.plan("fine-it"), desk.plan("fine-too")]
    with Path("/dev/full").open("wb") as full:
        done = desk.rig("run", *plans, "--record-dir", desk.folder / "records", stdout=full)
    assert (done.status, done.titles) == (0, ["fine-it", "fine-too"])
    assert done.text == "rig: the output is not complete: No space left on device\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [("check", "interrupted\n"), ("run", "interrupted; the bench is released and the record so far can be read\n")],
)
def test_an_interrupted_command_speaks_of_a_bench_only_where_it_uses_one(desk: Desk, command: str, words: str) -> None:
    interrupt = (
        "import os, signal, rig.plan.load as load; load.load_plan = lambda _: os.kill(os.getpid(), signal.SIGTERM)"
    )
    done = desk.rig(command, desk.plan("fine-it"), before=interrupt)
    assert (done.status, done.text) == (130, words)
