"""Run records: whole files or none, readable after any end."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from rig.board.report import Observation
from rig.errors import InternalError
from rig.phases import Phases
from rig.progress import SilentProgress, live_line
from rig.record import RunInfo, RunSet, load_run, runs_of, sha256_file, write_atomic


def info(point: str = "variant-copy") -> RunInfo:
    return RunInfo(
        run_id="",
        set_id="",
        plan_file="testplans/p.plan.yaml",
        plan_sha256="00",
        point=point,
        expanded_sha256="11",
        plan_name="p",
    )


def test_a_run_holds_its_inputs_before_anything_happens(tmp_path: Path) -> None:
    runs = RunSet.create(tmp_path, ["rig", "run"])
    record = runs.new_run(info(), b"plan: p\n", "bench: b\n")
    assert (record.directory / "plan.yaml").read_bytes() == b"plan: p\n"
    read = load_run(record.directory)
    assert read.outcome == "running"
    assert read.run_id == f"{runs.set_id}/001-p-variant-copy"
    assert json.loads((runs.directory / "set.json").read_text())["command"] == ["rig", "run"]


def test_sealing_lists_size_and_checksum_of_every_other_file(tmp_path: Path) -> None:
    record = RunSet.create(tmp_path, []).new_run(info(), b"plan: p\n", "")
    record.board_log.write_bytes(b"0.1 hello\n")
    record.seal("completed")
    files = load_run(record.directory).files
    assert set(files) == {"plan.yaml", "bench.yaml", "board.log"}
    assert files["board.log"] == {"bytes": 10, "sha256": sha256_file(record.board_log)}


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(4096))


@pytest.mark.skipif(os.getuid() != 0, reason="a small disk needs root")
def test_a_full_disk_leaves_room_for_the_end_of_a_record(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], check=True)
    try:
        record = RunSet.create(tmp_path, []).new_run(info(), b"plan: p\n", "")
        phases = Phases(record, SilentProgress())
        with pytest.raises(OSError, match="No space"), phases.phase("traffic", 5):
            fill(record.capture)
        record.seal("error")
        read = load_run(record.directory)
        assert (read.outcome, [one.outcome for one in read.phases]) == ("error", ["failed"])
        assert read.files["capture.pcapng"]["bytes"] > 500_000
        assert not list(record.directory.glob(".*"))
        (tmp_path / "filler").write_bytes(bytes(100_000))
        runs = RunSet.create(tmp_path, [])
        with pytest.raises(InternalError, match=r"cannot write .*\.reserve: No space"):
            runs.new_run(info(), b"", "")
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_failed_phase_stands_in_the_record_with_its_reason(tmp_path: Path) -> None:
    record = RunSet.create(tmp_path, []).new_run(info(), b"", "")
    phases = Phases(record, SilentProgress())
    with phases.phase("preflight", 5) as phase:
        phase.note = "all there"
    with pytest.raises(InternalError), phases.phase("flash", 5):
        raise InternalError("no space")
    with pytest.raises(ValueError), phases.phase("drain", 5):
        raise ValueError
    assert phases.failed == "flash"
    read = load_run(record.directory).phases
    assert [(one.name, one.outcome, one.note) for one in read] == [
        ("preflight", "ok", "all there"),
        ("flash", "failed", "no space"),
        ("drain", "failed", "ValueError"),
    ]


def test_every_field_of_a_run_is_documented() -> None:
    text = (Path(__file__).parents[1] / "docs" / "record.md").read_text()
    section = text.partition("## run.json")[2].partition("\n###")[0]
    assert [one.name for one in fields(RunInfo) if f"`{one.name}`" not in section] == []


def test_every_kind_of_observation_is_documented() -> None:
    text = (Path(__file__).parents[1] / "docs" / "record.md").read_text()
    section = text.partition("### board.observations")[2].partition("\n###")[0]
    assert set(re.findall(r"^\| `(\S+)` \|", section, re.M)) == set(get_args(get_type_hints(Observation)["kind"]))


class _Heard(SilentProgress):
    def __init__(self) -> None:
        self.lines: list[tuple[str, ...]] = []

    def phase_begins(self, name: str) -> None:
        self.lines.append(("begins", name))

    def phase_ends(self, name: str, seconds: float, outcome: str, note: str) -> None:
        self.lines.append(("ends", name))

    def warn(self, text: str) -> None:
        self.lines.append(("warning", text))


def test_phases_are_numbered_and_their_warnings_follow_them_and_stay_in_the_record(tmp_path: Path) -> None:
    record = RunSet.create(tmp_path, []).new_run(info(), b"", "")
    heard = _Heard()
    phases = Phases(record, heard)
    with phases.phase("preflight", 5) as phase:
        phase.warnings = ["disk: 1 GiB free (fix: make room)"]
    with phases.phase("collect", 5):
        pass
    assert heard.lines == [
        ("begins", "preflight  1/9"),
        ("ends", "preflight  1/9"),
        ("warning", "disk: 1 GiB free (fix: make room)"),
        ("begins", "collect    9/9"),
        ("ends", "collect    9/9"),
    ]
    assert [one.warnings for one in load_run(record.directory).phases] == [["disk: 1 GiB free (fix: make room)"], []]
    assert {len(live_line(name, "")) for what, name in heard.lines if what == "begins"} == {len(live_line("read", ""))}


def test_point_names_cannot_leave_the_set(tmp_path: Path) -> None:
    runs = RunSet.create(tmp_path, [])
    record = runs.new_run(info("../../etc/x"), b"", "")
    assert record.directory.parent == runs.directory
    assert runs_of(runs.directory) == [record.directory]


def test_a_set_whose_folder_was_removed_is_told_of(tmp_path: Path) -> None:
    runs = RunSet.create(tmp_path, [])
    shutil.rmtree(runs.directory)
    with pytest.raises(InternalError, match=r"cannot make a run's folder in .*: No such file"):
        runs.new_run(info(), b"", "")


def test_a_write_that_fails_leaves_the_old_file_and_says_where(tmp_path: Path) -> None:
    target = tmp_path / "gone" / "run.json"
    with pytest.raises(InternalError, match="cannot write"):
        write_atomic(target, b"x")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    write_atomic(tmp_path / "telemetry.jsonl", b"old")
    monkeypatch.setattr("rig.record.os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "telemetry.jsonl", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"telemetry.jsonl": b"old"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a run record"),
        (b"{", "is not a run record"),
        (b"[]", "is not a run record"),
        (b'{"schema": "rig.run/99"}', "schema 'rig.run/99'"),
        (b'{"schema": "rig.run/1"}', "is not a run record"),
        (b'{"schema": "rig.run/1", "phases": [], "surprise": 1}', "is not a run record"),
    ],
)
def test_a_damaged_record_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(InternalError, match=message):
        load_run(tmp_path)


def test_runs_of_a_set_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("1000-a", "999-b", "002-c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").touch()
    assert [run.name for run in runs_of(tmp_path)] == ["002-c", "999-b", "1000-a"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("bench", None), ("bench", []), ("point", 3), ("attempt", "2"), ("error", "gone"), ("nic", "x")],
)
def test_a_record_with_a_field_of_another_kind_is_none(tmp_path: Path, field: str, value: object) -> None:
    record = RunSet.create(tmp_path, []).new_run(info(), b"plan: p\n", "")
    path = record.directory / "run.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {field: value}))
    with pytest.raises(InternalError, match="is not a run record"):
        load_run(record.directory)


def test_a_record_without_end_in_its_nesting_is_none(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"bench":' * 200_000)
    with pytest.raises(InternalError, match="is not a run record"):
        load_run(tmp_path)
