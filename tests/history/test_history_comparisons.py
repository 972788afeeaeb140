"""Comparisons in the history: a series each like any check, taken in from the file that a set keeps of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from written_runs import Conditions, timed, write_run

from rig.history.index import index_path, rebuild, update
from rig.history.questions import standings
from rig.history.schema import connect
from rig.history.series import Standing
from rig.nightly.command import morning_of
from rig.nightly.journal import COMPARISONS, Attempt, Job, Journal, Order
from rig.nightly.morning import Morning
from rig.nightly.page_html import page
from rig.nightly.page_markdown import markdown
from rig.nightly.reports import github_annotations, junit
from rig.record import comparisons_file, write_atomic
from rig.timing.verdict import CheckResult, PointResult, Verdict, worst

PLAN = """plan: {plan}
firmware: {{variant: copy}}
inference: {{requests: 60}}
flows:
  requests: {{from: jetson, to: board, udp.dstport: 5005, protocol: token-v2}}
  answers: {{from: board, to: jetson, udp.srcport: 5005, protocol: token-v2}}
checks:
  answer-time: {{response_time: {{request: requests, response: answers}}, limits: {{p50: {{max: 1 s}}}}}}
matrix: {{firmware.variant: [copy, zero_copy]}}
repeat: 5
comparisons:
  faster: {{of: answer-time, a: variant-copy, b: variant-zero_copy, difference: {{max: -1 us}}}}
  shown: {{of: answer-time, a: variant-copy, b: variant-zero_copy}}
"""
CONDITIONS = Conditions(plan_text=PLAN)
FIRST = datetime(2026, 1, 1, 1, tzinfo=UTC)


def set_of(night: int) -> str:
    return f"2026010{night}T010000Z-abcdef"


def write_night(
    records: Path, night: int, verdict: Verdict, conditions: Conditions = CONDITIONS, other_build: str = "b" * 40
) -> Path:
    """Both points, each with a build of its own, then what was judged of them; returns that file."""
    for minute, (point, build) in enumerate((("variant-copy", conditions.build), ("variant-zero_copy", other_build))):
        at = FIRST + timedelta(days=night - 1, minutes=minute)
        write_run(
            records, set_of(night), at, "two", [timed("answer-time", 10**6)], replace(conditions, build=build), point
        )
    checks = (
        CheckResult("faster", "comparison", verdict, "difference <= -1 us: as it is", n=5, of="pairs of runs"),
        CheckResult("shown", "comparison", Verdict.SKIP, "the plan sets no bound", n=5, of="pairs of runs"),
    )
    result = PointResult("two", "", "hardware", 1000, worst(check.verdict for check in checks), checks)
    file = comparisons_file(records / set_of(night), "two", conditions.bench)
    write_atomic(file, result.to_json().encode())
    return file


def asked(records: Path, name: str) -> list[Standing]:
    update(records)
    with connect(index_path(records)) as connection:
        return list(standings(connection, name))


def test_a_comparison_is_a_series_that_leads_to_its_file(tmp_path: Path) -> None:
    write_night(tmp_path, 1, Verdict.PASS)
    file = write_night(tmp_path, 2, Verdict.FAIL)
    [one] = asked(tmp_path, "two::faster")
    assert (one.key.name, one.key.bench, one.now.state, one.before) == ("two::faster", "lab-1", "red", "green")
    assert one.now.result.folder == f"{set_of(2)}/{file.name}"
    assert one.now.result.started_ms == round((FIRST + timedelta(days=1, minutes=1)).timestamp() * 1000)
    assert one.changed == ()


def test_what_has_no_bound_is_no_series(tmp_path: Path) -> None:
    write_night(tmp_path, 1, Verdict.PASS)
    assert {one.key.check for one in asked(tmp_path, "two")} == {"answer-time", "faster"}


def test_comparisons_that_are_judged_again_replace_the_old_ones(tmp_path: Path) -> None:
    write_night(tmp_path, 1, Verdict.FAIL)
    assert [one.now.state for one in asked(tmp_path, "faster")] == ["red"]
    file = comparisons_file(tmp_path / set_of(1), "two", "lab-1")
    file.write_text(file.read_text().replace('"FAIL"', '"INCONCLUSIVE"'))
    assert rebuild(tmp_path).runs == 3
    [one] = asked(tmp_path, "faster")
    assert (one.now.state, len(one.now.attempts)) == ("open", 1)
    assert update(tmp_path).runs == 0


def test_each_bench_of_a_set_has_its_own(tmp_path: Path) -> None:
    write_night(tmp_path, 1, Verdict.PASS)
    write_night(tmp_path, 1, Verdict.FAIL, replace(CONDITIONS, bench="lab-2"))
    assert {one.key.bench: one.now.state for one in asked(tmp_path, "faster")} == {"lab-1": "green", "lab-2": "red"}


@pytest.mark.parametrize(("build", "other"), [("d" * 40, "b" * 40), ("a" * 40, "d" * 40)])
def test_either_image_may_be_what_a_failure_follows(tmp_path: Path, build: str, other: str) -> None:
    write_night(tmp_path, 1, Verdict.PASS)
    write_night(tmp_path, 2, Verdict.FAIL, replace(CONDITIONS, build=build), other)
    [one] = asked(tmp_path, "faster")
    assert len(one.changed) == 1
    assert one.changed[0].startswith("firmware ")


def test_a_comparison_that_the_plan_expects_to_fail_is_green(tmp_path: Path) -> None:
    write_night(tmp_path, 1, Verdict.FAIL, replace(CONDITIONS, plan_text=f"{PLAN}expect: {{{{fail: [faster]}}}}\n"))
    assert [one.now.state for one in asked(tmp_path, "faster")] == ["green"]


def test_a_file_that_names_no_bench_is_none_of_ours(tmp_path: Path) -> None:
    file = write_night(tmp_path, 1, Verdict.PASS)
    file.rename(file.with_name("comparisons-two.json"))
    done = update(tmp_path)
    assert (done.runs, done.unread) == (2, ())


def test_a_file_without_its_runs_is_named_and_hinders_nothing(tmp_path: Path) -> None:
    file = write_night(tmp_path, 1, Verdict.PASS)
    file.rename(file.with_name("comparisons-gone.lab-1.json"))
    done = update(tmp_path)
    assert (done.runs, len(done.unread)) == (2, 1)
    assert "comparisons-gone.lab-1.json" in done.unread[0]


def morning_after(records: Path, night: int, *attempts: tuple[str, str]) -> tuple[Morning, list[Standing]]:
    """The morning after a night whose comparisons came to these (verdict, sentence)."""
    journal = Journal(records / set_of(night))
    journal.begin(Order((), (), 1, 3600.0, 600.0, None, FIRST.timestamp()), [])
    for point in ("variant-copy", "variant-zero_copy"):
        journal.attempt_begins(Job("lab-1", "two", point), 1)
        journal.attempt_ends(Attempt(Job("lab-1", "two", point), 1, "PASS", "PASS: so"))
    for number, (verdict, sentence) in enumerate(attempts, 1):
        journal.attempt_begins(Job("lab-1", "two", "", COMPARISONS), number)
        journal.attempt_ends(Attempt(Job("lab-1", "two", "", COMPARISONS), number, verdict, sentence))
    journal.end()
    journal.close()
    return morning_of(records, records / set_of(night))


def test_the_morning_shows_a_comparison_like_any_check(tmp_path: Path) -> None:
    write_night(tmp_path, 1, Verdict.PASS)
    write_night(tmp_path, 2, Verdict.FAIL)
    morning, found = morning_after(tmp_path, 2, ("FAIL", "faster: FAIL: as it is"))
    assert [(item.name, item.benches) for item in morning.new] == [("two::faster", ("lab-1",))]
    assert morning.not_run == ()
    assert "`two::faster` on lab-1: failing since 2026-01-02" in markdown(morning)
    text = page(morning, tmp_path, tmp_path)
    assert f'href="{set_of(2)}/comparisons-two.lab-1.json"' in text
    [suite] = ElementTree.fromstring(junit(morning, found))
    case = suite.find("testcase[@classname='two'][@name='faster']")
    assert case is not None
    assert [child.tag for child in case] == ["properties", "failure"]
    assert next(github_annotations(morning)).startswith("::error title=two%3A%3Afaster,")


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        ("SKIP", []),
        ("ERROR", [("two", "ERROR: a record cannot be read")]),
        ("INCONCLUSIVE", [("two", "INCONCLUSIVE: difference <= -1 us: as it is")]),
    ],
)
def test_a_comparison_is_missed_only_when_it_could_not_be_made(
    tmp_path: Path, verdict: str, said: list[tuple[str, str]]
) -> None:
    file = write_night(tmp_path, 1, Verdict.INCONCLUSIVE if verdict == "INCONCLUSIVE" else Verdict.PASS)
    if verdict == "ERROR":
        file.unlink()
    morning, found = morning_after(tmp_path, 1, (verdict, f"{verdict}: a record cannot be read"))
    assert [(one.title, one.reason) for one in morning.not_run] == said
    [suite] = ElementTree.fromstring(junit(morning, found))
    assert len(suite.findall("testcase/error")) == len(said)
