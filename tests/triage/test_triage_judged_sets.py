"""`rig judge SET` where one record is damaged: that one is an ERROR which is named, the others are judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_records import change_run, make_record

from rig.cli import main
from rig.stored import stored_result


def event(record: Path, **values: Any) -> None:
    with (record / "jetson.jsonl").open("a") as log:
        log.write(json.dumps(values) + "\n")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "counts are a list": lambda record: event(
        record, event="end", t_ns=1, reason="done", counts=[], sentinels=[], boot_ids=[]
    ),
    "observations are null": lambda record: change_run(record, board={"observations": None}),
    "interfaces are a word": lambda record: change_run(record, capture={"interfaces": "eth0"}),
    "e is no duration": lambda record: change_run(record, bench=bench_of(record) | {"uncertainty": {"e_ns": "x"}}),
    "e is infinite": lambda record: change_run(record, bench=bench_of(record) | {"uncertainty": {"e_ns": 1e999}}),
    "bench is a list": lambda record: change_run(record, bench=[]),
    "error is a word": lambda record: change_run(record, outcome="error", error="x"),
    "run.json is deep": lambda record: (record / "run.json").write_text('{"a":' * 200_000),
    "plan is binary": lambda record: (record / "plan.yaml").write_bytes(bytes(range(256))),
}


def bench_of(record: Path) -> dict[str, Any]:
    return dict(json.loads((record / "run.json").read_bytes())["bench"])


@pytest.mark.parametrize("damage", DAMAGES)
def test_one_damaged_record_hinders_no_other(tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    damaged, sound = (make_record(tmp_path / "set" / name) for name in ("001-damaged", "002-sound"))
    DAMAGES[damage](damaged)
    assert main(["judge", str(tmp_path / "set")]) == 3
    first, second = capsys.readouterr().out.split(f"{sound}: made\n")
    assert "ERROR" in first
    assert "the record cannot be judged" in " ".join(first.split())
    assert "PASS answer-time" in second
    assert "PASS no-loss" in second


@pytest.mark.parametrize("text", ["[" * 200_000, "[]", '{"schema": 1, "e_ns": Infinity}', '{"schema": 1, "checks": 5}'])
def test_verdicts_of_the_time_that_are_damaged_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "verdicts.json").write_text(text)
    assert stored_result(tmp_path) is None


def test_what_a_record_says_does_not_drive_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = make_record(tmp_path / "001-made", outcome="error")
    error = {"side": "board", "phase": "flash", "what": "it said \x1b[2J", "seen": "\x1b]0;title\x07", "hint": None}
    change_run(record, error=error)
    assert main(["judge", str(record)]) == 3
    said = capsys.readouterr().out
    assert "it said \\x1b[2J" in said
    assert all(line.isprintable() for line in said.splitlines())
