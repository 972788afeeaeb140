"""Two workers on two emulated benches: real runs, a hand-written test, one set, one JUnit file, one end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from controlled import Controller, Members, left_of

from rig.record import load_run, runs_of

pytestmark = pytest.mark.bench

ROOT = Path(__file__).resolve().parents[2]


def command(records: Path, *arguments: str | Path) -> list[str]:
    own = ["-p", "rig.pytest_plugin", "-p", "no:cacheprovider", "-n", "2", f"--record-dir={records}"]
    return [sys.executable, "-m", "pytest", *own, *map(str, arguments)]


def test_plans_and_a_hand_written_test_share_one_set(place, write_plan, tmp_path: Path) -> None:
    records, xml = tmp_path / "records", tmp_path / "junit.xml"
    plans = [write_plan("holds"), write_plan("broken", limits="{p50: {max: 300 us}}")]
    example = ROOT / "testplans" / "test_reset_recovery.py"
    done = subprocess.run(
        command(records, *plans, example, f"--junitxml={xml}"),
        cwd=ROOT,
        env=place.environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    text = done.stdout + done.stderr
    assert done.returncode == 1, text
    assert "1 failed, 6 passed" in text
    [run_set] = records.iterdir()
    assert sorted(load_run(run).plan_name for run in runs_of(run_set)) == ["broken", "holds"]
    assert sorted(folder.name[:3] for folder in run_set.iterdir() if folder.is_dir()) == ["001", "002", "003"]
    table = text.partition("= runs =")[2]
    assert "FAIL          broken " in table
    assert "PASS          holds " in table
    assert "PASS          test_board_answers_again_soon_after_a_reset" in table
    assert f"records: {run_set}" in table

    [tested] = run_set.glob("*-test_board_answers_again_soon_after_a_reset")
    told = json.loads((tested / "test.json").read_text())
    assert told["capture"]["interfaces"][0]["dropped"] == 0
    assert told["firmware"]["flash"]["verified"]
    assert (tested / "capture.pcapng").stat().st_size > 10_000
    assert "reset into the application" in (tested / "board.log").read_text()

    failures = [case for case in ET.parse(xml).getroot().iter("testcase") if case.find("failure") is not None]
    [failed] = failures
    properties = {one.get("name"): one.get("value") for one in failed.iter("property")}
    assert properties["verdict"] == "FAIL"
    assert Path(str(properties["record"])).parent == run_set


def test_two_interrupted_workers_bring_their_runs_home(place, write_plan, tmp_path: Path) -> None:
    records = tmp_path / "records"
    plans = [write_plan(name, requests=20_000) for name in ("first", "second")]
    with Controller(command(records, *plans), place.environment()) as run:
        run.wait_until(lambda: sum(path.stat().st_size > 50_000 for path in records.glob("*/*/capture.pcapng")) == 2)
        before = Members.of(run.members())
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(timeout=60) == 2, run.text
        assert left_of(run, before) == {}
    [run_set] = records.iterdir()
    infos = [load_run(folder) for folder in runs_of(run_set)]
    assert [info.outcome for info in infos] == ["interrupted", "interrupted"], run.text
    for info in infos:
        assert [phase.name for phase in info.phases if phase.outcome != "ok"] == ["traffic"]
        assert info.phases[-1].name == "collect"
    assert "Traceback" not in run.text
