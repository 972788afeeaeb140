"""A night with workers whose answers are scripted: what runs, how often, in which order, what is said of the rest."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from rig.nightly import lane
from rig.nightly.command import exit_code_of
from rig.nightly.journal import COMPARISONS, Attempt, Job, Journal, Night, Order, read_journal
from rig.nightly.night import BenchPlace, Running, all_jobs, settled_verdict
from rig.nightly.quarantine import Entry
from rig.nightly.retries import TABLE, rule_for
from rig.timing import gate

STUB = (sys.executable, str(Path(__file__).with_name("stub_worker.py")))


@dataclass
class Lab:
    """A night over scripted benches."""

    folder: Path
    patch: pytest.MonkeyPatch
    order: Order

    def night(
        self,
        plans: list[str],
        benches: tuple[str, ...] = ("lab-1",),
        workers: int = 1,
        compared: Sequence[str] = (),
        **script: Any,
    ) -> Night:
        """compared: plans with two points, x and y, and comparisons."""
        (self.folder / "script.json").write_text(json.dumps({"runs": {}} | script))
        self.patch.setenv("STUB_SCRIPT", str(self.folder / "script.json"))
        self.patch.setenv("STUB_LOG", str(self.folder / "log"))
        directory = self.folder / "captures" / "set"
        directory.mkdir(parents=True, exist_ok=True)
        places = [BenchPlace(name, f"/benches/{name}.yaml", workers) for name in benches]
        points = [(plan, "", 1) for plan in plans]
        points += [(plan, *one) for plan in compared for one in (("x", 1), ("y", 1), ("", COMPARISONS))]
        jobs, _ = all_jobs(places, points, (), lambda job: 0, date.today())
        past = read_journal(directory)
        journal = Journal(directory)
        journal.begin(self.order, jobs)
        paths = {plan: f"/plans/{plan}" for plan in (*plans, *compared)}
        Running(self.order, directory, places, jobs, paths, past, journal, lambda line: None, STUB).run()
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
    assert exit_code_of(night) == 0


def test_instances_of_one_bench_share_its_plans(lab: Lab) -> None:
    night = lab.night(["a", "b", "c"], workers=2)
    assert sorted(one.job.plan for one in night.attempts) == ["a", "b", "c"]
    assert sorted(night.health) == ["lab-1.n0", "lab-1.n1"]


def test_an_error_of_the_bench_is_examined_and_tried_again(lab: Lab) -> None:
    night = lab.night(["a", "b"], runs={"a": ["ERROR board", "PASS"]})
    assert lab.asked == ["lab-1 health", "lab-1 a", "lab-1 health", "lab-1 b", "lab-1 a"]
    assert verdicts(night, "a") == ["ERROR", "PASS"]
    assert [one.number for one in night.of(Job("lab-1", "a", ""))] == [1, 2]
    assert exit_code_of(night) == 0


def test_retries_are_bounded(lab: Lab) -> None:
    night = lab.night(["a"], runs={"a": ["ERROR jetson"]})
    assert verdicts(night, "a") == ["ERROR"] * 3
    assert exit_code_of(night) == 3


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
    assert exit_code_of(night) == 3


def test_a_failure_is_measured_once_more_and_stays(lab: Lab) -> None:
    night = lab.night(["a", "b"], runs={"a": ["FAIL", "PASS"], "b": ["FAIL", "ERROR board", "PASS"]})
    assert verdicts(night, "a") == ["FAIL", "PASS"]
    assert verdicts(night, "b") == ["FAIL", "ERROR"]
    assert exit_code_of(night) == 1


def test_a_bench_that_is_not_fit_runs_nothing_and_hinders_no_other(lab: Lab) -> None:
    night = lab.night(["a", "b"], ("lab-1", "lab-2"), health={"lab-1": [["ssh: refused"]]})
    assert [line for line in lab.asked if line.startswith("lab-1")] == ["lab-1 health"]
    assert night.not_run == dict.fromkeys((Job("lab-1", "a", ""), Job("lab-1", "b", "")), "bench not fit: ssh: refused")
    assert verdicts(night, "b", "lab-2") == ["PASS"]
    assert exit_code_of(night) == 3


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


def test_an_answer_in_time_counts_though_another_teardown_delayed_its_reading(lab: Lab) -> None:
    lab.order = replace(lab.order, run_budget_s=0.8)
    lab.patch.setattr(lane, "TEARDOWN_S", 0.8)
    # `a` is ended from 0.8 s to 1.6 s; meanwhile `c`, begun at 0.3 s, answers at 1.0 s and would be overdue at 1.1 s.
    night = lab.night(["a", "b", "c"], workers=2, runs={"a": ["stuck", "PASS"], "b": ["PASS 0.3"], "c": ["PASS 0.7"]})
    assert verdicts(night, "a") == ["ERROR", "PASS"]
    assert verdicts(night, "c") == ["PASS"]


def test_a_worker_that_dies_is_an_error_of_the_rig(lab: Lab) -> None:
    night = lab.night(["a"], runs={"a": ["die", "PASS"]})
    assert verdicts(night, "a") == ["ERROR", "PASS"]
    assert night.attempts[0].side == "rig"


def test_what_the_budget_does_not_allow_is_named(lab: Lab) -> None:
    lab.order = replace(lab.order, budget_s=0.0)
    night = lab.night(["a", "b"])
    assert set(night.not_run.values()) == {"the night's budget of 0 s was used up"}
    assert len(night.not_run) == 2
    assert exit_code_of(night) == 3


def test_a_clock_that_was_set_back_does_not_make_a_night_longer(lab: Lab) -> None:
    lab.order = replace(lab.order, budget_s=0.0, begun_s=time.time() + 86400)
    assert set(lab.night(["a"]).not_run.values()) == {"the night's budget of 0 s was used up"}


def test_a_night_that_went_on_gives_a_bench_that_was_not_fit_another_chance(lab: Lab) -> None:
    night = lab.night(["a", "b"], health={"lab-1": [["ssh: refused"], []]})
    assert len(night.not_run) == 2
    night = lab.night(["a", "b"], health={"lab-1": [["ssh: refused"], []]})
    assert night.not_run == {}
    assert verdicts(night, "a") == verdicts(night, "b") == ["PASS"]
    assert exit_code_of(night) == 0


def test_a_night_that_went_on_without_time_says_so_again(lab: Lab) -> None:
    lab.order = replace(lab.order, budget_s=0.0)
    assert lab.night(["a"]).not_run == lab.night(["a"]).not_run != {}
    assert "lab-1 a" not in ((lab.folder / "log").read_text() if (lab.folder / "log").exists() else "")


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
    assert exit_code_of(night) == 0


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


def test_comparisons_follow_the_last_attempt_at_the_last_point(lab: Lab) -> None:
    night = lab.night(["b"], compared=["a"], runs={"a[x]": ["ERROR board"] * 2 + ["PASS"], "a::": ["FAIL"]})
    assert [line for line in lab.asked if "health" not in line] == [
        f"lab-1 {what}" for what in ("b", "a[x]", "a[y]", "a[x]", "a[x]", "a::")
    ]
    [compared] = night.of(Job("lab-1", "a", "", COMPARISONS))
    assert (compared.verdict, compared.job.title) == ("FAIL", "a")
    assert exit_code_of(night) == 1


def test_what_is_compared_runs_on_one_instance_and_every_bench_compares_its_own(lab: Lab) -> None:
    night = lab.night(["c"], ("lab-1", "lab-2"), workers=2, compared=["a", "b"])
    for bench in ("lab-1", "lab-2"):
        for plan in ("a", "b"):
            order = [line for line in lab.asked if line.startswith(f"{bench} {plan}")]
            assert order == [f"{bench} {plan}{what}" for what in ("[x]", "[y]", "::")]
            mine = [one for one in night.attempts if (one.job.bench, one.job.plan) == (bench, plan)]
            assert len({one.record for one in mine}) == 1, "the stub's instance"
    assert {one.job.bench for one in night.attempts if one.job.compares} == {"lab-1", "lab-2"}
    assert exit_code_of(night) == 0


def test_an_instance_that_is_not_fit_leaves_its_experiment_to_another(lab: Lab) -> None:
    lab.night(
        [], workers=2, compared=["a"], runs={"a[x]": ["ERROR board"]}, health={"lab-1": [[], [], ["ssh: no"], []]}
    )
    assert [line for line in lab.asked if "health" not in line][-1] == "lab-1 a::"


@pytest.mark.parametrize("done", [False, True])
def test_comparisons_are_neither_lost_nor_made_twice_by_a_reboot(lab: Lab, done: bool) -> None:
    directory = lab.folder / "captures" / "set"
    directory.mkdir(parents=True)
    journal = Journal(directory)
    for job in (Job("lab-1", "a", "x"), Job("lab-1", "a", "y"), Job("lab-1", "a", "", COMPARISONS)):
        journal.attempt_begins(job, 1)
        if done or not job.compares:
            journal.attempt_ends(Attempt(job, 1, "PASS", "PASS: so"))
    journal.close()
    night = lab.night(["b"], compared=["a"])
    assert [line for line in lab.asked if "health" not in line] == ["lab-1 b"] + ["lab-1 a::"] * (not done)
    assert [one.verdict for one in night.of(Job("lab-1", "a", "", COMPARISONS))] == ["PASS"]


def test_comparisons_put_no_bench_in_doubt_and_are_tried_again_only_when_their_worker_died(lab: Lab) -> None:
    night = lab.night([], compared=["a", "b"], runs={"a::": ["INCONCLUSIVE"], "b::": ["die", "ERROR"]})
    assert [line for line in lab.asked if "::" in line] == ["lab-1 a::", "lab-1 b::", "lab-1 b::"]
    assert lab.asked.count("lab-1 health") == 1
    assert exit_code_of(night) == 3


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


def test_a_plan_with_comparisons_comes_first_as_a_whole_and_in_its_order() -> None:
    points = [("a", "", 1), *(("b", *one) for one in (("x", 1), ("y", 1), ("y", 2), ("x", 2), ("", COMPARISONS)))]
    jobs, _ = all_jobs([BenchPlace("lab-1", "x")], points, (), lambda job: 0 if job.point == "y" else 2, date.today())
    assert [(job.plan, job.point, job.turn) for job in jobs] == [*points[1:], points[0]]


def test_the_table_has_one_line_a_class_and_the_most_cautious_counts() -> None:
    kinds = [(rule.verdict, rule.kind) for rule in TABLE]
    assert len(kinds) == len(set(kinds))
    assert rule_for("PASS", "", ()) is None
    assert rule_for("INCONCLUSIVE", "", ()) is None
    found = rule_for("INCONCLUSIVE", "", ("capture-loss", "clock-step"))
    assert found is not None
    assert found.kind == "clock-step"
    assert rule_for("INCONCLUSIVE", "", ("capture-loss", "frames-twice")) is None


LASTING = {
    *("headers-cut", "frames-twice", "frames-merged", "several-clocks"),  # how it is set up
    *("unsupported-linktype", "no-timestamp", "too-many-flows", "flows-overlap", "interface-drops"),
    *("corrupt-block", "incomplete-datagram"),  # of the file, not of the moment
}


def test_every_finding_that_voids_a_verdict_is_tried_again_or_known_to_last() -> None:
    tree = ast.parse(Path(gate.__file__).read_text())
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    named = {word for word in words if re.fullmatch("[a-z]+(-[a-z]+)+", word)}
    assert named >= {"capture-drops", "nic-drops", "short-run"}
    passing = named - LASTING | {"no-start-sentinel", "no-end-sentinel"}
    assert [name for name in sorted(passing) if rule_for("INCONCLUSIVE", "", (name,)) is None] == []
    assert [name for name in LASTING if rule_for("INCONCLUSIVE", "", (name,)) is not None] == []


def test_drops_of_the_nic_hinder_no_attempt_after_drops_of_the_capture() -> None:
    found = rule_for("INCONCLUSIVE", "", ("capture-drops", "nic-drops"))
    assert found is not None
    assert found.attempts == 3


def test_a_fail_outlives_every_other_attempt() -> None:
    def attempts(*found: str) -> list[Any]:
        return [Attempt(Job("x", "y", ""), n, verdict, "") for n, verdict in enumerate(found, 1)]

    assert settled_verdict(attempts("FAIL", "PASS")) == "FAIL"
    assert settled_verdict(attempts("ERROR", "PASS")) == "PASS"
    assert settled_verdict(attempts("ERROR", "INCONCLUSIVE")) == "INCONCLUSIVE"
    assert settled_verdict([]) == "ERROR"
