"""One whole run by the command line, its record, and the same verdicts offline."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rig.capture.reader import read_capture
from rig.record import load_run, runs_of, sha256_file

pytestmark = pytest.mark.bench

ROOT = Path(__file__).resolve().parents[2]
DISSECTOR = ROOT / "rig" / "protocol" / "token.lua"


@pytest.fixture(scope="module")
def plan(place) -> Path:
    """A plan of ours, with patience for a busy host."""
    text = (ROOT / "testplans" / "zero-copy-latency.plan.yaml").read_text()
    path = place.folder / "zero-copy-latency.plan.yaml"
    path.write_text(
        text.replace("p50: {max: 5 ms}", "p50: {max: 1 s}").replace("requests: 600,", "requests: 600, timeout: 20 s,")
    )
    return path


@pytest.fixture(scope="module")
def run(place, plan: Path) -> tuple[Path, str]:
    """The record of one run, and what the command printed."""
    done = place.rig("run", plan, "--record-dir", place.records)
    assert done.returncode == 0, done.stdout + done.stderr
    [record] = [run for set_dir in place.records.iterdir() for run in runs_of(set_dir)]
    return record, done.stdout


def test_a_run_passes_and_prints_its_phases_and_table(run) -> None:
    _, printed = run
    for phase in ("preflight", "flash", "capture", "boot", "engine", "network", "traffic", "drain", "collect"):
        assert f"\n  {phase} " in printed
    assert "PASS" in printed.splitlines()[-2]


def test_the_record_is_whole_and_says_what_ran(run) -> None:
    record, _ = run
    info = load_run(record)
    assert info.outcome == "completed"
    assert info.firmware["build_id"] == info.board["boot"]["build"]
    assert info.firmware["flash"]["verified"]
    assert info.tools["dumpcap"] in info.capture["version"]
    assert info.capture["interfaces"][0]["dropped"] == 0
    assert info.board["counters"]["rx_requests"] == 620
    for name, meta in info.files.items():
        assert sha256_file(record / name) == meta["sha256"], name


def test_judging_the_record_offline_gives_the_same_bytes(run, place) -> None:
    record, _ = run
    done = place.rig("judge", record, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.encode() == (record / "verdicts.json").read_bytes()


def test_judging_by_a_stricter_plan_fails_and_leaves_the_record_alone(run, place, tmp_path: Path) -> None:
    record, _ = run
    before = {path.name: sha256_file(path) for path in record.iterdir()}
    stricter = tmp_path / "stricter.plan.yaml"
    stricter.write_text((record / "plan.yaml").read_text().replace("p50: {max: 1 s}", "p50: {max: 400 us}"))
    done = place.rig("judge", record, "--plan", stricter)
    assert done.returncode == 1
    assert "FAIL answer-time: p50 <= 400 us" in done.stdout
    assert f"{stricter}:" in done.stdout
    assert {path.name: sha256_file(path) for path in record.iterdir()} == before


def test_the_capture_alone_can_be_judged_with_a_plan(run, place, plan: Path) -> None:
    record, _ = run
    done = place.rig("judge", record / "capture.pcapng", "--plan", plan, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    checks = {check["check"]: check for check in json.loads(done.stdout)["checks"]}
    live = {check["check"]: check for check in json.loads((record / "verdicts.json").read_text())["checks"]}
    assert checks["answer-time"]["summary"] == live["answer-time"]["summary"]


def test_tshark_opens_the_capture_with_our_dissector(run) -> None:
    record, _ = run
    done = subprocess.run(
        ["tshark", "-n", "-r", record / "capture.pcapng", "-X", f"lua_script:{DISSECTOR}", "-Y", "token"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Lua:" not in done.stderr
    # 600 exchanges and 20 of warm-up, each with its answer, and sentinels and probes: more when some are repeated.
    capture = load_run(record).capture
    assert len(capture["sentinels"]) >= 2 * (3 + 2)
    assert len(done.stdout.splitlines()) == 2 * (600 + 20) + len(capture["sentinels"])
    assert len(read_capture(record / "capture.pcapng")) == capture["frames"]


def test_relay_delay_of_5_ms_each_way_moves_the_shortest_answer_by_10_ms(place, write_plan) -> None:
    """The shortest: a busy host moves the others."""
    shortest = []
    for name, impairment in (("prompt", "[]"), ("delayed", "[{direction: both, delay: 5 ms}]")):
        plan = write_plan(name, impairment=impairment, requires="[link-relay]", requests=200)
        done = place.rig("run", plan, "--record-dir", place.folder / name)
        assert done.returncode == 0, done.stdout + done.stderr
        [record] = [run for set_dir in (place.folder / name).iterdir() for run in runs_of(set_dir)]
        checks = json.loads((record / "verdicts.json").read_text())["checks"]
        [timed] = [check for check in checks if check["check"] == "answer-time"]
        shortest.append(timed["summary"]["min_ns"])
    assert shortest[1] - shortest[0] == pytest.approx(10_000_000, rel=0.1)
