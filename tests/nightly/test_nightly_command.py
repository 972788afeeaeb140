"""`rig nightly` from the outside: options, what it refuses, what it says of a night that never was, and a real one."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rig.campaign import Compared, Judged
from rig.cli import main
from rig.nightly import command
from rig.nightly.command import _failed_before, _finish, _points
from rig.nightly.journal import COMPARISONS, Attempt, Job, Journal, Order, Unfinished, read_journal
from rig.nightly.night import Running
from rig.nightly.options import seconds
from rig.nightly.worker import Settings, Worker, answer, answer_to_comparisons
from rig.plan.load import load_plan
from rig.plan.model import Expect
from rig.record import RunInfo, RunSet, comparisons_file
from rig.timing.evidence import Finding
from rig.timing.expectation import outcome, outcome_of_comparison
from rig.timing.verdict import CheckResult, PointResult, Verdict, unjudged, worst

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    for name in [name for name in os.environ if name.startswith(("RIG_", "GITHUB_"))]:
        monkeypatch.delenv(name)
    return folder


@pytest.mark.parametrize(
    ("text", "expected"), [("6h", 21600), ("90min", 5400), ("2m", 120), ("45s", 45), ("1.5h", 5400)]
)
def test_times_have_units(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["6", "h", "-1h", "six hours", "nan s"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write 6h"):
        seconds(text)


def test_there_is_nothing_to_resume_after_a_good_night(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nightly", "--resume"]) == 0
    assert "nothing to resume" in capsys.readouterr().out


def test_one_night_at_a_time(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Unfinished(state / "rig" / "nightly"):
        assert main(["nightly", "--resume"]) == 3
    assert "another `rig nightly` is at work" in capsys.readouterr().err


def test_faults_of_all_plans_are_told_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.plan.yaml").write_text(f"plan: {name}\nchecs: 1\n")
    assert main(["nightly", str(tmp_path), "--record-dir", str(tmp_path / "records")]) == 2
    said = capsys.readouterr().err
    assert "a.plan.yaml:2" in said
    assert "b.plan.yaml:2" in said
    assert not (tmp_path / "records").exists()


def test_two_plans_of_one_name_would_share_a_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        shutil.copy(ROOT / "testplans" / "zero-copy-latency.plan.yaml", tmp_path / f"{name}.plan.yaml")
    assert main(["nightly", str(tmp_path), "--record-dir", str(tmp_path / "records")]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path}/b.plan.yaml:2:7: plan name `zero-copy-latency` is that of {tmp_path}/a.plan.yaml" in said


def test_a_night_that_never_began_is_reported_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records, told = tmp_path / "records", tmp_path / "told"
    records.mkdir()
    monkeypatch.setenv("RIG_NOTIFY_COMMAND", f"{shutil.which('tee')} {told}")
    assert main(["nightly", "--report", "--record-dir", str(records)]) == 3
    assert "no run was made" in (records / "morning" / "morning.md").read_text()
    assert "no run was made" in told.read_text()
    assert (records / "morning" / "morning.html").is_file()


def test_a_report_on_a_folder_that_is_not_there_is_refused_and_makes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["nightly", "--report", "--record-dir", str(tmp_path / "recrods")]) == 2
    assert f"there are no records in {tmp_path}/recrods" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("verdict", "code"), [("FAIL", 1), ("PASS", 0), ("INCONCLUSIVE", 4)])
def test_a_report_has_the_exit_code_of_the_night(tmp_path: Path, verdict: str, code: int) -> None:
    directory = tmp_path / "20260101T000000Z-abcdef"
    directory.mkdir()
    journal, job = Journal(directory), Job("lab-1", "some-plan", "")
    journal.begin(Order((), (), 1, 3600.0, 600.0, None, time.time() - 3600), [])
    journal.leave_out(Job("lab-2", "some-plan", ""), "quarantined until 2026-02-01: in repair")
    journal.attempt_begins(job, 1)
    journal.attempt_ends(Attempt(job, 1, verdict, f"{verdict}: so"))
    journal.end()
    journal.close()
    assert main(["nightly", "--report", "--record-dir", str(tmp_path)]) == code


def test_annotations_appear_on_a_github_runner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "20260101T000000Z-abcdef"
    directory.mkdir()
    journal = Journal(directory)
    journal.begin(Order((), (), 1, 3600.0, 600.0, None, time.time()), [])
    journal.leave_out(Job("lab-2", "some-plan", ""), "bench not fit: ssh: refused")
    journal.close()
    main(["nightly", "--report", "--record-dir", str(tmp_path)])
    assert "::warning" not in capsys.readouterr().out
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    main(["nightly", "--report", "--record-dir", str(tmp_path)])
    assert "::warning title=some-plan was not run::lab-2: bench not fit" in capsys.readouterr().out
    assert "Not run, and why" in (tmp_path / "summary").read_text()


def test_a_night_that_is_cut_off_is_an_error_until_it_went_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script.json").write_text('{"runs": {}}')
    monkeypatch.setenv("STUB_SCRIPT", str(tmp_path / "script.json"))
    monkeypatch.setenv("STUB_LOG", str(tmp_path / "log"))
    stub = (sys.executable, str(Path(__file__).with_name("stub_worker.py")))
    monkeypatch.setattr(command, "Running", partial(Running, program=stub))
    records = tmp_path / "records"
    plans = [str(ROOT / "testplans" / f"{name}-latency.plan.yaml") for name in ("copy", "zero-copy")]

    def cut_off(self: Journal, attempt: Attempt) -> None:
        Journal.write(self, "attempt", **asdict(attempt))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "attempt_ends", cut_off)
        assert main(["nightly", *plans, "--record-dir", str(records)]) not in (0, 1, 4)
    assert main(["nightly", "--report", "--record-dir", str(records)]) == 3
    assert "`zero-copy-latency` on emulated: not begun: the night was cut off" in capsys.readouterr().out
    assert main(["nightly", "--resume"]) == 0
    assert main(["nightly", "--report", "--record-dir", str(records)]) == 0
    assert "**all 0 checks in order**" in capsys.readouterr().out
    assert len((tmp_path / "log").read_text().splitlines()) == 2 * 2


def told(*checks: CheckResult, fails: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a worker answers to a run with these checks by a plan that expects `fails`."""
    expect = Expect(fail=list(fails)) if fails else None
    result = PointResult("p", "", "emulated", 1000, worst(check.verdict for check in checks), checks)
    return answer(Judged("p", result, outcome(result, expect), None), expect)


LOSS = Finding("capture-loss", "capture", "3 were lost by the capture")
VOIDED = CheckResult("a", "loss", Verdict.INCONCLUSIVE, "voided", voided_by=(LOSS,))
FEW = CheckResult("b", "gap", Verdict.INCONCLUSIVE, "too few samples")
FAILED = CheckResult("c", "loss", Verdict.FAIL, "3 lost")
PASSED = CheckResult("d", "loss", Verdict.PASS, "every limit holds")


def test_a_worker_names_what_voided_an_inconclusive_run() -> None:
    assert told(VOIDED)["findings"] == ["capture-loss"]
    # One undecided for want of samples keeps the whole run from being tried again.
    assert told(VOIDED, FEW)["findings"] == ["capture-loss", "statistics"]
    assert (told(FAILED, VOIDED)["verdict"], told(FAILED, VOIDED)["findings"]) == ("FAIL", [])


def test_an_expected_failure_does_not_make_a_run_fail() -> None:
    assert told(FAILED, PASSED, fails=("c",))["verdict"] == "PASS"
    assert told(FAILED, FEW, fails=("c",))["verdict"] == "INCONCLUSIVE"
    assert told(PASSED, fails=("d",))["verdict"] == "FAIL"
    assert told(PASSED, fails=("gone",))["verdict"] == "FAIL"


def test_a_worker_names_whose_error_it_is() -> None:
    result = unjudged("p", "", "", 0, [("a", "loss")], Verdict.ERROR, "jetson failed: SSH was lost")
    said = answer(Judged("p", result, outcome(result, None), None), None)
    assert (said["verdict"], said["side"], said["record"]) == ("ERROR", "jetson", None)


COMPARED = """\
plan: two
firmware: {variant: copy}
inference: {requests: 60}
flows:
  requests: {from: jetson, to: board, udp.dstport: 5005, protocol: token-v2}
  answers: {from: board, to: jetson, udp.srcport: 5005, protocol: token-v2}
checks:
  answer-time: {response_time: {request: requests, response: answers}, limits: {p50: {max: 1 s}}}
matrix: {firmware.variant: [copy, zero_copy]}
repeat: 5
comparisons:
  faster: {of: answer-time, a: variant-copy, b: variant-zero_copy, difference: {max: -1 us}}
"""


def test_a_worker_compares_what_others_have_left_in_the_set(tmp_path: Path) -> None:
    path = tmp_path / "two.plan.yaml"
    path.write_text(COMPARED)
    file = load_plan(path)
    runs = RunSet.create(tmp_path, ["rig", "nightly"])
    for point in file.points:
        info = RunInfo("", "", str(path), file.sha256, point.name, "", "two", outcome="interrupted")
        info.bench = {"bench": "emulated", "profile": "emulated", "uncertainty": {"e_ns": 0}}
        runs.new_run(info, path.read_bytes(), "")
    bench = str(ROOT / "benches" / "emulated.yaml")
    with contextlib.closing(Worker(Settings(bench, None, str(tmp_path), runs.set_id, ("rig", "nightly")))) as worker:
        told = worker.compare(str(path))
    assert told["verdict"] == "INCONCLUSIVE"
    assert told["sentence"].startswith("faster: INCONCLUSIVE: p50 of answer-time")
    kept = json.loads(comparisons_file(runs.directory, "two", "emulated").read_text())
    assert kept["checks"][0]["notes"][0].startswith("run 1 of variant-copy: the run was interrupted")


def compared(name: str, verdict: Verdict, fails: tuple[str, ...] = ()) -> Compared:
    result = CheckResult(name, "comparison", verdict, f"{name} is as it is")
    return Compared(f"p::{name}", result, outcome_of_comparison(result, Expect(fail=list(fails)) if fails else None))


def test_a_worker_sums_comparisons_up_as_the_plan_wants_them() -> None:
    def told(*found: Compared) -> tuple[str, str]:
        said = answer_to_comparisons(found)
        return said["verdict"], said["sentence"]

    good, shown = compared("good", Verdict.PASS), compared("shown", Verdict.SKIP)
    bad, vague = compared("bad", Verdict.FAIL), compared("vague", Verdict.INCONCLUSIVE)
    assert told(shown) == ("SKIP", "shown: SKIP: shown is as it is")
    assert told(shown, good)[0] == "PASS"
    assert told(good, vague, bad) == ("FAIL", "bad: FAIL: bad is as it is (and 1 more)")
    assert told(good, compared("bad", Verdict.FAIL, ("bad",)))[0] == "PASS"
    assert told(compared("good", Verdict.PASS, ("good",)))[0] == "FAIL"


def test_a_plans_comparisons_come_after_its_points(tmp_path: Path) -> None:
    path = tmp_path / "two.plan.yaml"
    path.write_text(COMPARED)
    points = _points([load_plan(path), load_plan(ROOT / "testplans" / "zero-copy-latency.plan.yaml")])
    assert points[0] == ("two", "variant-copy", 1)
    assert points[9:] == [("two", "variant-zero_copy", 5), ("two", "", COMPARISONS), ("zero-copy-latency", "", 1)]


@pytest.mark.bench
@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="needs qemu-system-arm for the emulated bench")
def test_a_real_night_on_the_emulated_bench(tmp_path: Path) -> None:
    plan = ROOT / "testplans" / "zero-copy-latency.plan.yaml"
    command = [sys.executable, "-m", "rig.cli", "nightly", str(plan), "--record-dir", str(tmp_path / "records")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1, 4), done.stdout + done.stderr  # a busy machine may be too slow for the limits
    directory = next((tmp_path / "records").glob("2*"))
    night = read_journal(directory)
    assert night.health == {"emulated": ()}
    assert night.ended_utc
    first = night.attempts[0]
    assert first.job == Job("emulated", "zero-copy-latency", "")
    assert first.record is not None
    info = json.loads((tmp_path / "records" / first.record / "run.json").read_text())
    assert info["attempt"] == 1
    for place in (directory, tmp_path / "records" / "morning"):
        suite = ElementTree.parse(place / "junit.xml").getroot()[0]
        assert {case.get("name") for case in suite} >= {"alive", "answer-time", "no-loss"}
        assert "zero-copy-latency" in (place / "morning.html").read_text()
    assert not (tmp_path / "state" / "rig" / "nightly" / "unfinished.json").exists()


def test_a_damaged_index_costs_neither_order_nor_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "20260101T000000Z-abcdef"
    directory.mkdir()
    journal, job = Journal(directory), Job("lab-1", "some-plan", "")
    journal.attempt_begins(job, 1)
    journal.attempt_ends(Attempt(job, 1, "PASS", "PASS: so"))
    journal.end()
    journal.close()
    (tmp_path / "history.sqlite").write_bytes(b"not a database at all" * 100)
    assert _failed_before(tmp_path)(job) == 2
    assert _finish(tmp_path, directory) == 0
    assert (directory / "morning.html").is_file()
    assert "making the index again" in capsys.readouterr().err
