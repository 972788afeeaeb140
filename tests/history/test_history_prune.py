"""Retention: captures go by age and size, failing ones later; verdicts never."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from written_runs import Conditions, counted, write_run

from rig.cli import main
from rig.history.prune import captures, chosen, pruned_on, remove
from rig.record import VERDICTS

NOW = datetime(2026, 6, 1, tzinfo=UTC)
NOW_MS = round(NOW.timestamp() * 1000)


def run_of(records: Path, days: int, lost: int = 0, size: int = 1000) -> Path:
    at = NOW - timedelta(days=days)
    checks = [counted("no-loss", lost)]
    return write_run(records, f"{at:%Y%m%dT%H%M%SZ}-{lost:06x}", at, "some-plan", checks, Conditions(capture=size))


def gone(records: Path, **limits: float | None) -> list[str]:
    told = {"days": 30.0, "failing_days": 180.0, "max_bytes": None} | limits
    found = chosen(list(captures(records)), NOW_MS, **told)  # type: ignore[arg-type]
    return [one.run.parent.name for one in found]


def test_old_captures_go_and_failing_ones_stay_longer(tmp_path: Path) -> None:
    old, failing, ancient = run_of(tmp_path, 31), run_of(tmp_path, 31, lost=1), run_of(tmp_path, 181, lost=2)
    run_of(tmp_path, 29)
    assert gone(tmp_path) == [ancient.parent.name, old.parent.name]
    assert failing.parent.name not in gone(tmp_path)


def test_the_oldest_green_go_first_until_the_rest_fits(tmp_path: Path) -> None:
    failing = run_of(tmp_path, 9, lost=1, size=700)
    oldest, middle, newest = (run_of(tmp_path, days, size=400) for days in (5, 3, 1))
    assert gone(tmp_path, max_bytes=1500) == [oldest.parent.name]
    assert gone(tmp_path, max_bytes=900) == [oldest.parent.name, middle.parent.name, newest.parent.name]
    assert gone(tmp_path, max_bytes=0)[-1] == failing.parent.name


def test_only_the_capture_goes(tmp_path: Path) -> None:
    run = run_of(tmp_path, 100)
    before = {path.name for path in run.iterdir()}
    assert pruned_on(run) is None
    for one in captures(tmp_path):
        remove(one, NOW_MS)
    assert {path.name for path in run.iterdir()} == before - {"capture.pcapng"} | {"pruned.json"}
    assert pruned_on(run) == "2026-06-01"
    assert (run / VERDICTS).is_file()
    assert list(captures(tmp_path)) == []


def test_what_triage_copied_is_counted_and_goes_with_the_capture(tmp_path: Path) -> None:
    run = run_of(tmp_path, 1, size=400)
    triage = run.with_name(f"{run.name}.triage")
    (triage / "wireshark").mkdir(parents=True)
    for name, size in (("annotated.pcapng", 500), ("frame-7.pcapng", 30), ("report.html", 9000)):
        (triage / name).write_bytes(bytes(size))
    assert [one.size for one in captures(tmp_path)] == [930]
    assert gone(tmp_path, max_bytes=930) == []
    assert gone(tmp_path, max_bytes=900) == [run.parent.name]
    (run / "capture.pcapng").unlink()
    (found,) = captures(tmp_path)
    remove(found, NOW_MS)
    assert [path.name for path in sorted(triage.iterdir())] == ["report.html", "wireshark"]
    note = json.loads((run / "pruned.json").read_bytes())
    assert note["removed"] == {f"{triage.name}/annotated.pcapng": 500, f"{triage.name}/frame-7.pcapng": 30}


@pytest.mark.parametrize("option", ["--older-than", "--failing-older-than", "--max-size"])
@pytest.mark.parametrize("value", ["-1", "nan", "inf", "many"])
def test_what_is_no_amount_is_refused_and_nothing_goes(
    tmp_path: Path, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path, 4000)
    with pytest.raises(SystemExit) as ended:
        main(["history", "prune", f"{option}={value}", "--records", str(tmp_path)])
    assert ended.value.code == 2
    assert f"'{value}' is no amount" in capsys.readouterr().err
    assert (run / "capture.pcapng").is_file()


@pytest.mark.parametrize("question", [["prune"], ["rebuild"], []])
def test_a_folder_that_is_not_there_is_refused_and_not_made(
    tmp_path: Path, question: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", *question, "--records", str(tmp_path / "nosuch")]) == 2
    assert f"there are no records in {tmp_path}/nosuch" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_set_is_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / "mine" / "001-x"
    foreign.mkdir(parents=True)
    (foreign / "capture.pcapng").write_bytes(b"x")
    (foreign / "run.json").write_text("{}")
    assert list(captures(tmp_path)) == []


def test_nothing_goes_that_a_link_leads_to(tmp_path: Path) -> None:
    records, elsewhere = tmp_path / "captures", tmp_path / "elsewhere"
    elsewhere.mkdir()
    kept = run_of(records, 100)
    kept.parent.rename(elsewhere / "baseline")
    (records / "baseline").symlink_to(elsewhere / "baseline")
    run, other = run_of(records, 101), run_of(records, 102)
    (run.parent / "002-linked").symlink_to(elsewhere / "baseline" / kept.name)
    (other / "capture.pcapng").unlink()
    (other / "capture.pcapng").symlink_to(elsewhere / "baseline" / kept.name / "capture.pcapng")
    other.with_name(f"{other.name}.triage").symlink_to(elsewhere / "baseline" / kept.name)
    assert [one.run for one in captures(records)] == [run]


def test_a_run_is_as_old_as_the_latest_time_that_its_record_tells(tmp_path: Path) -> None:
    """The clock of the rig's computer may not be set yet when a run begins."""
    unset = {"started_utc": "2020-01-01T00:00:00.000Z"}
    begun = rewritten(run_of(tmp_path, 1, lost=1), **unset, ended_utc="2020-01-01T00:01:00.000Z")
    ended = rewritten(run_of(tmp_path, 2, lost=2), **unset, set_id="20200101T000000Z-abcdef")
    never = rewritten(run_of(tmp_path, 3), **unset, ended_utc="", set_id="mine")
    assert gone(tmp_path) == [never.parent.name]
    assert {one.run for one in captures(tmp_path)} == {begun, ended, never}


def test_a_run_that_was_killed_goes_like_others_and_one_that_may_be_at_work_stays(tmp_path: Path) -> None:
    def cut(days: int) -> str:
        run = rewritten(run_of(tmp_path, days), outcome="running", ended_utc="")
        (run / VERDICTS).unlink()
        return run.parent.name

    ancient, killed, working = cut(300), cut(30), cut(2)
    assert gone(tmp_path) == [ancient]
    assert gone(tmp_path, max_bytes=0) == [ancient, killed]
    assert working not in gone(tmp_path, max_bytes=0)


def rewritten(run: Path, **values: str) -> Path:
    """The run with other values in its run.json."""
    info = json.loads((run / "run.json").read_bytes())
    (run / "run.json").write_text(json.dumps(info | values))
    return run


def test_a_dry_run_removes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(tmp_path, 4000)
    assert main(["history", "prune", "--dry-run", "--records", str(tmp_path)]) == 0
    assert "would remove" in capsys.readouterr().out
    assert (run / "capture.pcapng").is_file()
    main(["history", "prune", "--records", str(tmp_path)])
    assert not (run / "capture.pcapng").exists()
