"""What a run's record says when the rig itself is at fault, without a bench."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from rig.plan.load import load_plan
from rig.progress import SilentProgress
from rig.record import RunSet, load_run, runs_of
from rig.run import run_point
from rig.session import Rig
from rig.tools import tool_versions

ROOT = Path(__file__).parents[1]


def test_a_defect_of_the_rig_is_an_error_in_the_record_and_no_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(*_: object) -> Path:
        raise ValueError("not thought of")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("rig.run.find_image", defect)
    plan = load_plan(ROOT / "testplans" / "copy-latency.plan.yaml")
    runs = RunSet.create(tmp_path, [])
    with Rig.of(ROOT / "benches" / "example-tap.yaml") as rig, pytest.raises(ValueError, match="not thought of"):
        run_point(rig, plan, plan.points[0], runs, SilentProgress())
    [record] = runs_of(runs.directory)
    info = load_run(record)
    assert info.outcome == "error"
    assert info.error is not None
    assert (info.error["side"], info.error["phase"]) == ("rig", "preflight")
    assert info.error["what"] == "a defect of the rig: ValueError: not thought of"


def test_versions_of_what_a_run_stands_on() -> None:
    versions = tool_versions(True)
    assert versions["python"] == platform.python_version()
    assert all(version[0].isdigit() for version in versions.values()), versions
    assert {"numpy", "paramiko", "dumpcap", "qemu-system-arm"} <= versions.keys()
    assert versions.keys() - tool_versions(False).keys() == {"qemu-system-arm"}
