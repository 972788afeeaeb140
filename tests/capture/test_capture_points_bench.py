"""The same plan at every capture point of the emulated bench: same exchanges, same verdicts, and what each one says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rig.capture.reader import read_capture
from rig.record import load_run

pytestmark = pytest.mark.bench

ROOT = Path(__file__).resolve().parents[2]
REQUESTS = 200

BENCH = """\
bench: emulated
profile: emulated
uncertainty: {{declared: 50 us}}
emulation: {{capture: {point}{more}}}
"""
PLAN = f"""\
plan: everywhere
npu: {{first_token: 1 ms}}
inference: {{requests: {REQUESTS}, timeout: 20 s, warmup: 5, infer_tokens: 0, load: {{closed: {{in_flight: 1}}}}}}
flows:
  requests: {{from: jetson, to: board, udp.dstport: 5005, protocol: token-v2}}
  answers: {{from: board, to: jetson, udp.srcport: 5005, protocol: token-v2}}
checks:
  answer-time:
    response_time: {{request: requests, response: answers, to: last}}
    limits: {{each: {{max: 20 s}}}}
  no-loss:
    loss: {{of: requests, answered_by: answers}}
    limits: {{count: {{max: 0}}}}
  no-duplicates:
    duplicates: {{of: answers}}
    limits: {{count: {{max: 0}}}}
  in-order:
    reordering: {{of: answers}}
    limits: {{count: {{max: 0}}}}
"""


@dataclass(frozen=True)
class Outcome:
    """One run: exit code, its record's folder, its verdicts by check."""

    code: int
    record: Path
    printed: str

    @property
    def info(self) -> Any:
        return load_run(self.record)

    @property
    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.record / "verdicts.json").read_text())
        return found

    @property
    def verdicts(self) -> dict[str, str]:
        return {check["check"]: check["verdict"] for check in self.result["checks"]}


@dataclass(frozen=True)
class Place:
    """One state folder for all runs of this module, so that the board is flashed once."""

    folder: Path

    def rig(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "RIG_"))}
        return subprocess.run(
            [sys.executable, "-m", "rig.cli", *map(str, arguments)],
            cwd=ROOT,
            env=kept | {"XDG_STATE_HOME": str(self.folder / "state")},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def run(self, point: str, more: str = "") -> Outcome:
        """A run of its own at a capture point."""
        name = point + more.replace(" ", "").replace(",", "-").replace(":", "-")
        bench, plan = self.folder / f"{name}.yaml", self.folder / "everywhere.plan.yaml"
        bench.write_text(BENCH.format(point=point, more=more))
        plan.write_text(PLAN)
        done = self.rig("run", plan, "--bench", bench, "--record-dir", self.folder / name)
        records = sorted((self.folder / name).glob("*/*/run.json"))
        assert records, done.stdout + done.stderr
        return Outcome(done.returncode, records[-1].parent, done.stdout + done.stderr)


@pytest.fixture(scope="module")
def at(place: Place) -> Callable[[str], Outcome]:
    """The run at a capture point, made once."""
    return cache(place.run)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("points"))


EXPECTED = {
    "inline": [("board-port", "both")],
    "mirror": [("mirror0", "both")],
    "tap": [("tap-a", "to-board"), ("tap-b", "from-board")],
    "jetson": [("eth0", "both")],
}


@pytest.mark.parametrize("point", EXPECTED)
def test_the_same_plan_passes_with_the_same_exchanges_everywhere(
    at: Callable[[str], Outcome], place: Place, point: str
) -> None:
    run = at(point)
    assert run.code == 0, run.printed
    assert set(run.verdicts.values()) == {"PASS"}
    counts = run.result["counts"]
    assert [counts[f"{what} seen"] for what in ("requests", "answers")] == [REQUESTS, REQUESTS]
    assert counts["requests received"] == counts["answers received"] == REQUESTS
    capture = run.info.capture
    assert [(one["name"], one["direction"]) for one in capture["interfaces"]] == EXPECTED[point]
    assert (capture["point"], capture["ended"], capture["drained"]) == (point, "stopped", "end-sentinel")
    assert all(one["dropped"] == one["file_dropped"] == 0 for one in capture["interfaces"])
    assert len(read_capture(run.record / "capture.pcapng")) == capture["frames"]
    assert place.rig("judge", run.record, "--json").stdout.encode() == (run.record / "verdicts.json").read_bytes()
    assert sorted(path.name for path in run.record.iterdir() if "capture" in path.name) == ["capture.pcapng"]


def test_stamps_of_the_jetson_carry_a_note_where_times_are_judged(at: Callable[[str], Outcome]) -> None:
    run = at("jetson")
    assert run.info.capture["wire"] is False
    assert run.info.capture["where"].startswith("jetson@")
    notes = {check["check"]: " ".join(check["notes"]) for check in run.result["checks"]}
    assert "do not tell the board's share from the Jetson's" in notes["answer-time"]
    assert "Jetson's" not in notes["no-loss"]
    assert run.info.clock["samples"] >= 2


def test_a_tap_whose_cables_are_swapped_is_told_and_voids_nothing(
    at: Callable[[str], Outcome], place: Place, tmp_path: Path
) -> None:
    swapped = tmp_path / "swapped"
    shutil.copytree(at("tap").record, swapped)
    run = json.loads((swapped / "run.json").read_text())
    to_board, from_board = run["capture"]["interfaces"]
    to_board["direction"], from_board["direction"] = "from-board", "to-board"
    (swapped / "run.json").write_text(json.dumps(run))
    done = place.rig("judge", swapped, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    [finding] = [one for one in json.loads(done.stdout)["findings"] if one["name"] == "wrong-interface"]
    assert "its two cables are swapped" in finding["sentence"]
    assert (finding["side"], finding["voids"]) == ("capture", [])


def test_a_mirror_known_to_show_frames_twice_voids_only_what_copies_would_spoil(place: Place) -> None:
    run = place.run("mirror", ", mirror_copies: 2")
    assert run.info.capture["duplicates"] is True
    assert run.info.capture["frames"] > 4 * REQUESTS
    assert run.verdicts == {
        "answer-time": "PASS",
        "no-loss": "PASS",
        "no-duplicates": "INCONCLUSIVE",
        "in-order": "PASS",
        "alive": "PASS",
    }
    assert run.code == 4
    assert "known to show frames twice" in run.printed


def test_a_calibration_gives_the_e_of_later_runs_until_the_capture_point_changes(place: Place) -> None:
    bench = place.folder / "calibrated.yaml"
    bench.write_text(BENCH.format(point="inline", more=""))
    done = place.rig("bench", "calibrate", "--bench", bench, "--record-dir", place.folder / "calibration")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "95 % of time differences" in done.stdout
    [kept] = (place.folder / "state").glob("**/calibration.json")
    found = json.loads(kept.read_text())
    assert found["settings"]["capture point"] == "inline"

    run = place.run("inline")
    assert run.info.bench["uncertainty"]["source"] == "calibrated"
    assert run.result["e_ns"] == run.info.bench["uncertainty"]["e_ns"] == found["e_ns"]
    notes = {check["check"]: " ".join(check["notes"]) for check in run.result["checks"]}
    assert "calibrated" in notes["answer-time"]
    # The record alone decides: what the state folder says later changes nothing.
    kept.write_text(json.dumps(found | {"e_ns": 1}))
    assert place.rig("judge", run.record, "--json").stdout.encode() == (run.record / "verdicts.json").read_bytes()

    elsewhere = place.run("tap")
    assert elsewhere.info.bench["uncertainty"]["source"] == "declared"
    assert elsewhere.result["e_ns"] == 50_000
    assert "capture point was inline, is tap" in elsewhere.info.bench["uncertainty"]["stale"]
    kept.unlink()
