"""What a campaign keeps of a plan's comparisons: over all its records in the set, as they are judged offline."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from desk import MATRIX, PLAN, ROOT

from rig.campaign import Campaign, Judged, PlanRuns
from rig.judging import set_comparisons
from rig.plan.load import PlanFile, Point, load_plan_bytes
from rig.progress import SilentProgress
from rig.record import RunInfo, runs_of
from rig.timing.expectation import outcome
from rig.timing.verdict import CheckResult, PointResult, Verdict

FASTER = "faster: {of: answer-time, a: variant-copy, b: variant-zero_copy, confidence: 75 %, difference: {max: -1 us}}"
PLAN_FILE = load_plan_bytes(
    PLAN.format(name="two", extra=f"{MATRIX}\nrepeat: 2\ncomparisons: {{{FASTER}}}").encode(), Path("two.plan.yaml")
)


class Written(Campaign):
    """Runs that take no bench: they leave a record that says `interrupted`, and get figures all the same."""

    figures = itertools.count(1_000)
    bench = "emulated"

    def run(self, plan_file: PlanFile, point: Point, attempt: int = 1) -> Judged:
        info = RunInfo("", "", str(plan_file.path), plan_file.sha256, point.name, "", plan_file.plan.plan)
        info.bench = {"bench": self.bench, "profile": "emulated", "uncertainty": {"e_ns": 0}}
        info.outcome, info.attempt = "interrupted", attempt
        record = self.runs().new_run(info, plan_file.text.encode(), "").directory
        value = (500_000 if point.name == "variant-zero_copy" else 800_000) + next(self.figures)
        check = CheckResult("answer-time", "response_time", Verdict.PASS, "", compared={"p50": value})
        result = PointResult(plan_file.plan.plan, point.name, "emulated", 0, Verdict.PASS, (check,))
        return Judged(point.name, result, outcome(result, None), record)


@pytest.fixture
def campaign(tmp_path: Path) -> Written:
    return Written(ROOT / "benches" / "emulated.yaml", tmp_path, ["rig"], SilentProgress())


def kept(campaign: Campaign) -> Path:
    assert campaign.directory is not None
    return campaign.directory / "comparisons-two.emulated.json"


def test_comparisons_lie_beside_the_runs_with_the_bytes_of_the_offline_judgement(campaign: Written) -> None:
    runs = PlanRuns(campaign, PLAN_FILE, PLAN_FILE.points)
    made = [(judged.record, judged.result) for _, judged in runs]
    [compared] = runs.compared()
    assert (compared.title, compared.verdict) == ("two::faster", Verdict.PASS)
    [offline] = set_comparisons([(record, result) for record, result in made if record])
    assert kept(campaign).read_text() == offline.to_json()
    assert offline.checks[0].n == 2


def test_a_record_that_another_worker_left_counts_as_it_does_offline(campaign: Written) -> None:
    campaign.run(PLAN_FILE, PLAN_FILE.points[0])  # its worker died
    runs = PlanRuns(campaign, PLAN_FILE, PLAN_FILE.points)
    list(runs)
    [compared] = runs.compared()
    assert compared.result.notes == ("run 1 of variant-copy: the run was interrupted before its first phase was over",)
    assert compared.result.n == 1  # its pair is left out


def test_runs_of_another_bench_in_the_set_are_not_compared_with(campaign: Written) -> None:
    campaign.bench = "lab-1"
    others = [campaign.run(PLAN_FILE, point) for point in PLAN_FILE.points]
    campaign.bench = "emulated"
    runs = PlanRuns(campaign, PLAN_FILE, PLAN_FILE.points)
    mine = [judged for _, judged in runs]
    [compared] = runs.compared()
    assert (compared.result.n, compared.result.notes) == (2, ())
    offline = set_comparisons([(one.record, one.result) for one in (*others, *mine) if one.record])
    assert [result.checks[0].n for result in offline] == [1, 2]
    assert kept(campaign).read_text() == offline[1].to_json()


def test_a_further_attempt_takes_the_place_of_the_run_that_gave_nothing(campaign: Written) -> None:
    a, b = PLAN_FILE.points
    order = ((a, 1), (b, 1), (b, 1), (a, 1), (b, 2), (a, 2))
    runs = [campaign.run(PLAN_FILE, point, attempt) for point, attempt in order]
    lost = {0: Verdict.ERROR, 2: Verdict.INCONCLUSIVE}  # the first of a, the second of b
    results = [replace(one.result, verdict=lost.get(i, Verdict.PASS)) for i, one in enumerate(runs)]
    results = [replace(one, checks=()) if i in lost else one for i, one in enumerate(results)]
    [compared] = set_comparisons(
        [(one.record, result) for one, result in zip(runs, results, strict=True) if one.record]
    )
    assert (compared.checks[0].n, compared.checks[0].notes) == (2, ())
    # Each figure is 1 ns above that of the run before: first b - again a, again b - second a.
    assert "[-300.004 us, -299.999 us] over 2 pairs" in compared.checks[0].reason


def test_what_cannot_be_read_makes_the_comparison_an_error(campaign: Written) -> None:
    runs = PlanRuns(campaign, PLAN_FILE, PLAN_FILE.points)
    list(runs)
    assert campaign.directory is not None
    (runs_of(campaign.directory)[0] / "run.json").write_text("{")
    [compared] = runs.compared()
    assert compared.verdict is Verdict.ERROR
    assert "is not a run record" in compared.result.reason
    assert not kept(campaign).exists()


def test_one_point_alone_leaves_no_file(campaign: Written) -> None:
    runs = PlanRuns(campaign, PLAN_FILE, PLAN_FILE.points[:1])
    assert [point.name for point, _ in runs] == ["variant-copy", "variant-copy"]
    [compared] = runs.compared()
    assert (compared.verdict, compared.outcome.green) == (Verdict.SKIP, True)
    assert not kept(campaign).exists()
