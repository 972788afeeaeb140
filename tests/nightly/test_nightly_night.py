"""A night with workers whose answers are scripted: what runs, how often, in which order, what is said of the rest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from rig.nightly.command import exit_code_of
from rig.nightly.journal import Job, Journal, Night, Order, read_journal
from rig.nightly.night import BenchPlace, Running, all_jobs, settled_verdict
from rig.nightly.quarantine import Entry
from rig.nightly.retries import TABLE, rule_for

STUB = (sys.executable, str(Path(__file__).with_name("stub_worker.py")))


@dataclass
class Lab:
    """A night over scripted benches."""

    folder: Path
    patch: pytest.MonkeyPatch
    order: Order

    def night(self, plans: list[str], benches: tuple[str, ...] = ("lab-1",), workers: int = 1, **script: Any) -> Night:
        (self.folder / "script.json").write_text(json.dumps({"runs": {}} | script))
        self.patch.setenv("STUB_SCRIPT", str(self.folder / "script.json"))
        self.patch.setenv("STUB_LOG", str(self.folder / "log"))
        directory = self.folder / "captures" / "set"
        directory.mkdir(parents=True, exist_ok=True)
        places = [BenchPlace(name, f"/benches/{name}.yaml", workers) for name in benches]
        self.jobs, _ = all_jobs(places, [(plan, "", 1) for plan in plans], (), lambda job: 0, date.today())
        journal = Journal(directory)
        paths = {plan: f"/plans/{plan}" for plan in plans}
        past = read_journal(directory)
        Running(self.order, directory, places, self.jobs, paths, past, journal, lambda line: None, STUB).run()
        journal.close()
        return read_journal(directory)

    @property
    def asked(self) -> list[str]:
        return (self.folder / "log").read_text().splitlines()


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, monkeypatch, Order((), (), 1, 3600.0, 600.0, None, time.time()))


def verdicts(night: Night, plan: str, bench: str = "lab-1") -> list[str]:
    return [one.verdict for one in night.of(Job(bench, plan, ""))]


def test_every_plan_runs_on_every_bench_after_its_examination(lab: Lab) -> None:
    night = lab.night(["a", "b"], ("lab-1", "lab-2"))
    assert sorted(lab.asked) == sorted(
        f"{bench} {what}" for bench in ("lab-1", "lab-2") for what in ("health", "a", "b")
    )
    assert [line for line in lab.asked if line.startswith("lab-1")] == ["lab-1 health", "lab-1 a", "lab-1 b"]
    assert night.health == {"lab-1": (), "lab-2": ()}
    assert exit_code_of(night, lab.jobs) == 0


def test_instances_of_one_bench_share_its_plans(lab: Lab) -> None:
    night = lab.night(["a", "b", "c"], workers=2)
    assert sorted(one.job.plan for one in night.attempts) == ["a", "b", "c"]
    assert sorted(night.health) == ["lab-1.n0", "lab-1.n1"]


def test_an_error_of_the_bench_is_examined_and_tried_again(lab: Lab) -> None:
    night = lab.night(["a", "b"], runs={"a": ["ERROR board", "PASS"]})
    assert lab.asked == ["lab-1 health", "lab-1 a", "lab-1 health", "lab-1 b", "lab-1 a"]
    assert verdicts(night, "a") == ["ERROR", "PASS"]
    assert [one.number for one in night.of(Job("lab-1", "a", ""))] == [1, 2]
    assert exit_code_of(night, lab.jobs) == 0


def test_retries_are_bounded(lab: Lab) -> None:
    night = lab.night(["a"], runs={"a": ["ERROR jetson"]})
    assert verdicts(night, "a") == ["ERROR"] * 3
    assert exit_code_of(night, lab.jobs) == 3


def test_transient_evidence_is_measured_again_and_statistics_are_not(lab: Lab) -> None:
    night = lab.night(
        ["a", "b", "c"],
        runs={
            "a": ["INCONCLUSIVE capture-loss", "PASS"],
            "b": ["INCONCLUSIVE statistics", "PASS"],
            "c": ["ERROR plan", "PASS"],
        },
    )
    assert verdicts(night, "a") == ["INCONCLUSIVE", "PASS"]
    assert verdicts(night, "b") == ["INCONCLUSIVE"]
    assert verdicts(night, "c") == ["ERROR"]
    assert exit_code_of(night, lab.jobs) == 3


def test_a_failure_is_measured_once_more_and_stays(lab: Lab) -> None:
    night = lab.night(["a", "b"], runs={"a": ["FAIL", "PASS"], "b": ["FAIL", "ERROR board", "PASS"]})
    assert verdicts(night, "a") == ["FAIL", "PASS"]
    assert verdicts(night, "b") == ["FAIL", "ERROR"]
    assert exit_code_of(night, lab.jobs) == 1


def test_a_bench_that_is_not_fit_runs_nothing_and_hinders_no_other(lab: Lab) -> None:
    night = lab.night(["a", "b"], ("lab-1", "lab-2"), health={"lab-1": [["ssh: refused"]]})
    assert [line for line in lab.asked if line.startswith("lab-1")] == ["lab-1 health"]
    assert night.not_run == dict.fromkeys((Job("lab-1", "a", ""), Job("lab-1", "b", "")), "bench not fit: ssh: refused")
    assert verdicts(night, "b", "lab-2") == ["PASS"]
    assert exit_code_of(night, lab.jobs) == 3


def test_doubt_leads_to_an_examination_that_can_stop_the_bench(lab: Lab) -> None:
    plans = ["a", "b", "c"]
    statistics = {plan: ["INCONCLUSIVE statistics"] for plan in plans}
    night = lab.night(plans, runs=statistics, health={"lab-1": [[], ["clock: unsynchronised"]]})
    assert lab.asked == ["lab-1 health", "lab-1 a", "lab-1 b", "lab-1 health"]
    assert night.not_run == {Job("lab-1", "c", ""): "bench not fit: clock: unsynchronised"}


def test_a_run_that_hangs_is_ended_and_the_rest_goes_on(lab: Lab) -> None:
    lab.order = replace(lab.order, run_budget_s=1.0)
    night = lab.night(["a", "b"], runs={"a": ["hang", "PASS"]})
    assert verdicts(night, "a") == ["ERROR", "PASS"]
    assert night.attempts[0].side == "budget"
    assert "longer than 1 s" in night.attempts[0].sentence
    assert verdicts(night, "b") == ["PASS"]


def test_a_worker_that_dies_is_an_error_of_the_rig(lab: Lab) -> None:
    night = lab.night(["a"], runs={"a": ["die", "PASS"]})
    assert verdicts(night, "a") == ["ERROR", "PASS"]
    assert night.attempts[0].side == "rig"


def test_what_the_budget_does_not_allow_is_named(lab: Lab) -> None:
    lab.order = replace(lab.order, budget_s=0.0)
    night = lab.night(["a", "b"])
    assert set(night.not_run.values()) == {"the night's budget of 0 s was used up"}
    assert len(night.not_run) == 2
    assert exit_code_of(night, lab.jobs) == 3


def test_a_night_that_went_on_runs_only_what_was_left(lab: Lab) -> None:
    directory = lab.folder / "captures" / "set"
    directory.mkdir(parents=True)
    journal = Journal(directory)
    done, cut = Job("lab-1", "a", ""), Job("lab-1", "b", "")
    journal.attempt_begins(done, 1)
    journal.write(
        "attempt", job=vars(done), number=1, verdict="PASS", sentence="PASS", side="", findings=[], record=None
    )
    journal.attempt_begins(cut, 1)
    journal.close()
    with (directory / "nightly.jsonl").open("ab") as stream:
        stream.write(b'{"event": "attempt", "jo')  # the power went here
    night = lab.night(["a", "b", "c"])
    assert lab.asked == ["lab-1 health", "lab-1 b", "lab-1 c"]
    assert [one.number for one in night.of(cut)] == [2]
    assert night.health == {"lab-1": ()}, "the event after the cut line is a line of its own"
    assert exit_code_of(night, lab.jobs) == 0


def test_a_run_that_takes_the_night_down_with_it_is_not_begun_for_ever(lab: Lab) -> None:
    directory = lab.folder / "captures" / "set"
    directory.mkdir(parents=True)
    journal = Journal(directory)
    for number in (1, 2):
        journal.attempt_begins(Job("lab-1", "a", ""), number)
    journal.close()
    night = lab.night(["a", "b"])
    assert "cut off 2 times" in night.not_run[Job("lab-1", "a", "")]
    assert verdicts(night, "b") == ["PASS"]


NIGHT = """
import sys, json, time
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_nightly_night as t
import pytest
with pytest.MonkeyPatch.context() as patch:
    lab = t.Lab(Path({folder!r}), patch, t.Order((), (), 1, 3600.0, 600.0, None, time.time()))
    lab.night(["a", "b", "c"], runs={runs!r})
"""


def test_a_night_that_is_killed_takes_its_workers_along_and_goes_on(lab: Lab) -> None:
    code = NIGHT.format(tests=str(Path(__file__).parent), folder=str(lab.folder), runs={"b": ["hang"]})
    night = subprocess.Popen([sys.executable, "-c", code])
    log = lab.folder / "log"
    until = time.monotonic() + 60
    while not (log.exists() and "lab-1 b" in log.read_text()):
        assert time.monotonic() < until
        assert night.poll() is None
        time.sleep(0.05)
    os.kill(night.pid, signal.SIGKILL)
    night.wait()
    went_on = lab.night(["a", "b", "c"])
    assert verdicts(went_on, "a") == verdicts(went_on, "b") == verdicts(went_on, "c") == ["PASS"]
    assert lab.asked.count("lab-1 a") == 1
    assert lab.asked.count("lab-1 b") == 2


def test_last_failures_come_first_and_quarantine_is_left_out() -> None:
    places = [BenchPlace("lab-1", "x"), BenchPlace("lab-2", "y")]
    entries = (
        Entry(plan="b", bench="lab-1", reason="relay on order", until="2026-02-01"),
        Entry(bench="lab-2", reason="in repair", until="2026-01-15"),
    )
    points = [("a", "", 1), ("b", "", 1), ("c", "", 1)]

    def rank(job: Job) -> int:
        return 0 if job.plan == "c" else 2

    jobs, left_out = all_jobs(places, points, entries, rank, date(2026, 1, 10))
    assert jobs == [Job("lab-1", "c", ""), Job("lab-1", "a", "")]
    assert (Job("lab-1", "b", ""), "quarantined until 2026-02-01: relay on order") in left_out
    jobs, _ = all_jobs(places, points, entries, rank, date(2026, 1, 15))
    assert {job.bench for job in jobs} == {"lab-1", "lab-2"}


def test_the_table_has_one_line_a_class_and_the_most_cautious_counts() -> None:
    kinds = [(rule.verdict, rule.kind) for rule in TABLE]
    assert len(kinds) == len(set(kinds))
    assert rule_for("PASS", "", ()) is None
    assert rule_for("INCONCLUSIVE", "", ()) is None
    found = rule_for("INCONCLUSIVE", "", ("capture-loss", "clock-step"))
    assert found is not None
    assert found.kind == "clock-step"
    assert rule_for("INCONCLUSIVE", "", ("capture-loss", "frames-twice")) is None


def test_a_fail_outlives_every_other_attempt() -> None:
    def attempts(*found: str) -> list[Any]:
        from rig.nightly.journal import Attempt

        return [Attempt(Job("x", "y", ""), n, verdict, "") for n, verdict in enumerate(found, 1)]

    assert settled_verdict(attempts("FAIL", "PASS")) == "FAIL"
    assert settled_verdict(attempts("ERROR", "PASS")) == "PASS"
    assert settled_verdict(attempts("ERROR", "INCONCLUSIVE")) == "INCONCLUSIVE"
    assert settled_verdict([]) == "ERROR"
