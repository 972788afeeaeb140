"""That the morning page and the exit code of a night tell one story, whatever became of its jobs and its records."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from written_runs import Conditions, counted, write_run

from rig.nightly.command import _report, exit_code_of, morning_of
from rig.nightly.journal import Attempt, Job, Journal, Night, Order, read_journal
from rig.nightly.morning import NotRun, make_morning
from rig.nightly.page_html import page
from rig.nightly.page_markdown import markdown
from rig.nightly.reports import github_annotations, junit
from rig.record import VERDICTS
from rig.timing.verdict import CheckResult, Verdict

UNDECIDED = CheckResult("no-loss", "loss", Verdict.INCONCLUSIVE, "too few samples")
PASSED, FAILED = counted("no-loss", 0), counted("no-loss", 3)
JOBS = [Job("lab-1", plan, "") for plan in ("a", "b", "c")]
NOW = datetime.now(UTC)
TONIGHT = NOW - timedelta(hours=8)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("GITHUB_ACTIONS", "RIG_NOTIFY_COMMAND", "RIG_NOTIFY_MAIL", "RIG_NOTIFY_WEBHOOK"):
        monkeypatch.delenv(name, raising=False)


def set_of(at: datetime) -> str:
    return f"{at:%Y%m%dT%H%M%SZ}-abcdef"


def written(records: Path, check: CheckResult, plan: str = "a", at: datetime = TONIGHT, minute: int = 0) -> Path:
    return write_run(records, set_of(at), at + timedelta(minutes=minute), plan, [check], Conditions())


def journal_of(directory: Path, jobs: list[Job], at: datetime = TONIGHT) -> Journal:
    journal = Journal(directory)
    journal.begin(Order((), (), 1, 3600.0, 600.0, None, at.timestamp()), jobs)
    return journal


@contextlib.contextmanager
def night(directory: Path, jobs: list[Job], at: datetime = TONIGHT) -> Iterator[Journal]:
    """A night that comes to its end."""
    journal = journal_of(directory, jobs, at)
    yield journal
    journal.end()
    journal.close()


def attempted(journal: Journal, job: Job, verdict: str, run: Path | None = None, number: int = 1) -> None:
    journal.attempt_begins(job, number)
    record = f"{run.parent.name}/{run.name}" if run else None
    journal.attempt_ends(Attempt(job, number, verdict, f"{verdict}: so", "rig" * (verdict == "ERROR"), (), record))


def reported(records: Path) -> tuple[int, str, ElementTree.Element]:
    """Exit code, page and JUnit document of `rig nightly --report`."""
    code = _report(records)
    place = records / "morning"
    return code, (place / "morning.md").read_text(), ElementTree.parse(place / "junit.xml").getroot()


@pytest.mark.parametrize("seen_before", [False, True])
def test_a_night_that_was_cut_off_names_what_it_left(tmp_path: Path, seen_before: bool) -> None:
    if seen_before:
        written(tmp_path, PASSED, "b", TONIGHT - timedelta(days=1))
        written(tmp_path, PASSED, "c", TONIGHT - timedelta(days=1))
    run = written(tmp_path, PASSED)
    journal = journal_of(run.parent, JOBS)
    attempted(journal, JOBS[0], "PASS", run)
    journal.attempt_begins(JOBS[1], 1)
    journal.close()
    code, text, suites = reported(tmp_path)
    assert code == 3
    assert "**2 not run**" in text
    assert "`b` on lab-1: begun and without an end: the night was cut off or is still at work" in text
    assert "`c` on lab-1: not begun: the night was cut off or is still at work" in text
    assert "not among the plans" not in text
    assert {case.get("classname"): [one.tag for one in case][-1] for case in suites.iter("testcase")} == {
        "a": "properties",
        "b": "error",
        "c": "error",
    }


def test_a_plan_that_was_taken_out_of_the_night_is_no_error(tmp_path: Path) -> None:
    written(tmp_path, PASSED, "b", TONIGHT - timedelta(days=1))
    run = written(tmp_path, PASSED)
    with night(run.parent, JOBS[:1]) as journal:
        attempted(journal, JOBS[0], "PASS", run)
    code, text, _ = reported(tmp_path)
    assert code == 0
    assert "`b` on lab-1: not among the plans and benches of this night" in text


def test_a_check_that_was_taken_out_of_its_plan_is_named_and_no_error(tmp_path: Path) -> None:
    written(tmp_path, counted("in-order", 0), at=TONIGHT - timedelta(days=1))
    run = written(tmp_path, PASSED)
    with night(run.parent, JOBS[:1]) as journal:
        attempted(journal, JOBS[0], "PASS", run)
    code, text, suites = reported(tmp_path)
    assert code == 0
    assert "`a` (in-order) on lab-1: the run of this night has no result of it; last result" in text
    assert [case.get("name") for case in suites.iter("testcase")] == ["no-loss"]


def test_one_undecided_run_of_several_is_named(tmp_path: Path) -> None:
    jobs = [Job("lab-1", "a", "", turn) for turn in (1, 2, 3)]
    runs = [written(tmp_path, check, minute=n) for n, check in enumerate((PASSED, UNDECIDED, PASSED))]
    journal = journal_of(runs[0].parent, jobs)
    for job, run, verdict in zip(jobs, runs, ("PASS", "INCONCLUSIVE", "PASS"), strict=True):
        attempted(journal, job, verdict, run)
    journal.end()
    journal.close()
    code, text, suites = reported(tmp_path)
    assert code == 4
    assert "**1 not run**" in text
    assert "- `a` on lab-1: INCONCLUSIVE: so" in text
    assert len(suites.findall("testsuite/testcase/error")) == 1


def test_an_undecided_run_beside_a_failed_one_is_not_told_twice(tmp_path: Path) -> None:
    jobs = [Job("lab-1", "a", "", turn) for turn in (1, 2)]
    runs = [written(tmp_path, check, minute=n) for n, check in enumerate((FAILED, UNDECIDED))]
    journal = journal_of(runs[0].parent, jobs)
    for job, run, verdict in zip(jobs, runs, ("FAIL", "INCONCLUSIVE"), strict=True):
        attempted(journal, job, verdict, run)
    journal.end()
    journal.close()
    code, text, _ = reported(tmp_path)
    assert code == 1
    assert "**1 newly failing**" in text


def test_a_failure_whose_verdicts_cannot_be_read_is_named(tmp_path: Path) -> None:
    good, bad = written(tmp_path, PASSED), written(tmp_path, FAILED, "b", minute=1)
    (bad / VERDICTS).write_text('{"schema": 1, "che')
    with night(good.parent, JOBS[:2]) as journal:
        attempted(journal, JOBS[0], "PASS", good)
        attempted(journal, JOBS[1], "FAIL", bad)
    code, text, suites = reported(tmp_path)
    assert code == 1
    assert "- `b` on lab-1: FAIL: so" in text
    assert len(suites.findall("testsuite/testcase/failure")) == 1
    morning, _ = morning_of(tmp_path, good.parent)
    assert next(github_annotations(morning)).startswith("::error title=b%3A FAIL::lab-1: FAIL: so")


def test_a_failure_that_only_its_record_tells_counts(tmp_path: Path) -> None:
    """The worker was killed between the verdicts and its answer, and the next attempt passed."""
    runs = [written(tmp_path, FAILED), written(tmp_path, PASSED, minute=1)]
    with night(runs[0].parent, JOBS[:1]) as journal:
        attempted(journal, JOBS[0], "ERROR")
        attempted(journal, JOBS[0], "PASS", runs[1], 2)
    code, text, _ = reported(tmp_path)
    assert "**1 newly failing**" in text
    assert code == 1


def test_foreign_text_ends_no_page_and_moves_no_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / set_of(TONIGHT)
    directory.mkdir()
    journal = journal_of(directory, JOBS[:1])
    journal.attempt_ends(Attempt(JOBS[0], 1, "ERROR", "ERROR: board failed: \x1b[2J\udcff\u2028so"))
    journal.end()
    journal.close()
    code, text, _ = reported(tmp_path)
    assert code == 3
    assert "board failed" in text
    said = capsys.readouterr().out
    assert "\\x1b\\[2J? so" in said
    assert "\x1b" not in said


@pytest.mark.parametrize("last", ["quarantined until 2026-02-01: in repair", "bench not fit: ssh: refused"])
def test_what_a_night_left_out_before_it_went_on_is_judged_by_how_it_ended(tmp_path: Path, last: str) -> None:
    run = written(tmp_path, PASSED)
    journal = journal_of(run.parent, JOBS[:1])
    journal.leave_out(JOBS[1], last)
    journal.begin(Order((), (), 1, 3600.0, 600.0, None, TONIGHT.timestamp()), JOBS[:2])
    attempted(journal, JOBS[0], "PASS", run)
    journal.close()
    code, text, _ = reported(tmp_path)
    assert code == 3
    assert "`b` on lab-1: not begun: the night was cut off" in text


STATES = ("PASS", "FAIL", "INCONCLUSIVE", "ERROR", "SKIP", "begun", "waits", "left out", "quarantined")


def test_a_page_in_order_is_that_of_a_night_in_order() -> None:
    """Every combination of three jobs, of one title and of several, without a record that a check could come from."""
    for several, states in itertools.product((True, False), itertools.product(STATES, repeat=3)):
        jobs = tuple(Job("lab-1", "a" if several else f"p{n}", "", n) for n in (1, 2, 3))
        night = Night(jobs=jobs)
        for job, state in zip(jobs, states, strict=True):
            match state:
                case "begun":
                    night.begun[job] = 1
                case "left out":
                    night.not_run[job] = "bench not fit: ssh: refused"
                case "quarantined":
                    night.not_run[job] = "quarantined until 2026-02-01: in repair"
                case verdict if verdict != "waits":
                    night.attempts.append(Attempt(job, 1, verdict, f"{verdict}: so"))
        morning = make_morning("", "set", [], night, Path())
        code = exit_code_of(night)
        named = {one.title for one in morning.not_run}
        assert named == {job.plan for job, state in zip(jobs, states, strict=True) if state != "PASS"}
        assert morning.headline.startswith("all") <= (code == 0), states
        worst = min((list(Verdict).index(Verdict(one.verdict)) for one in morning.not_run), default=None)
        if code not in (0, 5):
            assert worst is not None
            assert list(Verdict)[worst].value == {1: "FAIL", 3: "ERROR", 4: "INCONCLUSIVE"}[code], states


@pytest.mark.parametrize(
    "line",
    [
        {"event": "begun", "order": {"plans": [], "benches": []}},
        {"event": "attempt", "job": {"bench": "lab-1", "plan": "a", "point": "", "colour": 1}},
        {"event": "health", "bench": "lab-1", "faults": 3},
    ],
)
def test_a_journal_of_another_version_is_named_and_the_rest_of_it_used(tmp_path: Path, line: dict[str, object]) -> None:
    run = written(tmp_path, PASSED)
    with night(run.parent, JOBS[:1]) as journal:
        attempted(journal, JOBS[0], "PASS", run)
    with (run.parent / "nightly.jsonl").open("a") as stream:
        print(json.dumps(line), file=stream)
    code, text, _ = reported(tmp_path)
    assert code == 3
    assert "**1 not run**" in text
    assert "written by another version of the rig, line 5 cannot be used" in text


def test_a_night_of_another_version_is_a_night_of_which_nothing_is_known(tmp_path: Path) -> None:
    earlier = written(tmp_path, PASSED, at=NOW - timedelta(hours=20))
    with night(earlier.parent, JOBS[:1], NOW - timedelta(hours=20)) as journal:
        attempted(journal, JOBS[0], "PASS", earlier)
    directory = tmp_path / set_of(TONIGHT)
    directory.mkdir()
    (directory / "nightly.jsonl").write_text('{"event": "begun", "order": {"plans": [], "benches": []}}\n')
    assert read_journal(directory).unread == [1]
    code, text, _ = reported(tmp_path)
    assert code == 3
    assert directory.name in text


def test_a_night_that_a_clock_put_into_the_future_is_not_that_of_every_morning(tmp_path: Path) -> None:
    ahead = datetime(2099, 1, 1, tzinfo=UTC)
    run = written(tmp_path, PASSED, at=ahead)
    with night(run.parent, JOBS[:1], ahead) as journal:
        attempted(journal, JOBS[0], "PASS", run)
    code, text, _ = reported(tmp_path)
    assert code == 3
    assert "no run was made" in text


@pytest.mark.parametrize(
    ("begun", "morning"),
    [("2026-01-29 18:30", "2026-01-30"), ("2026-01-29 23:00", "2026-01-30"), ("2026-01-30 00:30", "2026-01-30")],
)
def test_the_title_has_the_date_on_which_the_page_is_read(tmp_path: Path, begun: str, morning: str) -> None:
    at = datetime.fromisoformat(begun).astimezone()  # the lab's own time
    run = written(tmp_path, PASSED, at=at.astimezone(UTC))
    journal_of(run.parent, JOBS[:1], at).close()
    assert morning_of(tmp_path, run.parent)[0].title == f"Morning of {morning}"
    assert morning_of(tmp_path, None, at)[0].title == f"Morning of {begun[:10]}"


def test_what_passes_again_says_when_it_failed_last(tmp_path: Path) -> None:
    nights = [datetime(2026, 1, day, 1, tzinfo=UTC) for day in range(1, 13)]
    written(tmp_path, FAILED, at=nights[0])
    error = {"side": "bench", "phase": "lease", "what": "serial adapter away", "seen": "", "hint": ""}
    for at in nights[1:-1]:
        write_run(tmp_path, set_of(at), at, "a", [PASSED], Conditions(error=error))
    run = written(tmp_path, PASSED, at=nights[-1])
    morning, _ = morning_of(tmp_path, run.parent)
    assert [item.sentence for item in morning.fixed] == ["passes again; failed last on 2026-01-01"]


def test_a_folder_with_a_dot_in_its_name_is_no_triage_report(tmp_path: Path) -> None:
    run = write_run(tmp_path, set_of(TONIGHT), TONIGHT, "a", [FAILED], Conditions(), point="firmware.variant=copy")
    morning, _ = morning_of(tmp_path, run.parent)
    links = dict(re.findall(r'<a href="([^#"]+)">([^<]*)</a>', page(morning, tmp_path, run.parent)))
    assert links == {"001-a-firmware.variant%3Dcopy/": "record"}
    report = run.with_name(f"{run.name}.triage") / "report.html"
    report.parent.mkdir()
    report.touch()
    links = dict(re.findall(r'<a href="([^#"]+)">([^<]*)</a>', page(morning, tmp_path, run.parent)))
    assert links == {"001-a-firmware.variant%3Dcopy.triage/report.html": "triage report"}


def test_control_characters_leave_the_junit_document_well_formed(tmp_path: Path) -> None:
    night = Night(jobs=(Job("lab\x1b[1m", "a\x07", ""),))
    morning = make_morning("", "set", [], night, tmp_path)
    [suite] = ElementTree.fromstring(junit(morning, []))
    [case] = suite
    assert (suite.get("name"), case.get("classname")) == ("lab?[1m", "a?")


def test_reasons_of_one_title_stand_together_and_the_worst_first() -> None:
    one, two, three, four = (Job("lab-1", "a", "", turn) for turn in (1, 2, 3, 4))
    night = Night(jobs=(one, two, three, four))
    night.attempts = [Attempt(one, 1, "SKIP", "SKIP: no relay"), Attempt(two, 1, "FAIL", "FAIL: so", record="s/2")]
    night.not_run = dict.fromkeys((three, four), "bench not fit: ssh: refused")
    morning = make_morning("", "set", [], night, Path())
    reason = "FAIL: so; bench not fit: ssh: refused; SKIP: no relay"
    assert morning.not_run == (NotRun("a", "lab-1", reason, (), ("s/2",), "FAIL"),)
    assert f"`a` on lab-1: {reason}" in markdown(morning)
