"""The index over verdicts.json: the same whoever writes it, when, how often, and whatever kills the writer."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from written_runs import PLAN, Conditions, counted, timed, write_run

from rig.cli import main
from rig.errors import InternalError
from rig.history import schema
from rig.history.index import add_run, index_path, rebuild, update
from rig.history.rows import read_run
from rig.record import VERDICTS, RunSet

AT = datetime(2026, 1, 1, tzinfo=UTC)

WRITER = """
import os, sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
os.fsync = lambda _: None
from written_runs import Conditions, counted, timed, write_run
from rig.history.index import add_run
records, number, runs = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
for night in range(runs):
    at = datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(days=night, minutes=number)
    checks = [timed("answer-time", 1_000_000 + night), counted("no-loss", 0)]
    run = write_run(records, f"{at:%Y%m%dT%H%M%SZ}-{number:06x}", at, f"plan-{number}", checks, Conditions())
    if sys.argv[4:] != ["leaves-it"]:
        add_run(run)
    print(run, flush=True)
"""


def writer(records: Path, number: int, runs: int, *more: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", WRITER, str(records), str(number), str(runs), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def dump(records: Path) -> list[tuple[object, ...]]:
    with schema.connect(index_path(records)) as connection:
        return connection.execute("SELECT * FROM verdicts ORDER BY folder, check_name").fetchall()


@pytest.fixture
def records(tmp_path: Path) -> Path:
    for night in range(3):
        at = AT + timedelta(days=night)
        checks = [timed("answer-time", 1_000_000 * (1 + 4 * night)), counted("no-loss", night)]
        write_run(tmp_path, f"2026010{night + 1}T000000Z-abcdef", at, "some-plan", checks, Conditions())
    return tmp_path


def test_rows_say_what_the_verdicts_say(records: Path) -> None:
    update(records)
    rows = {(row[0], row[3]): row for row in dump(records)}
    first = rows["2026-01-01 00:00:00", "answer-time"]
    assert first[1:7] == ("some-plan", "", "answer-time", "lab-1", "green", "PASS")
    assert first[7:12] == (600, "p50", 1_000_000, 5_000_000, None)
    last = rows["2026-01-03 00:00:00", "no-loss"]
    assert last[5:7] == ("red", "FAIL")
    assert "2 of 600" in str(last[11])


def test_updating_twice_changes_nothing_and_a_judged_again_run_is_replaced(records: Path) -> None:
    assert update(records).runs == 3
    before = dump(records)
    assert update(records).runs == 0
    run = next(records.glob("20260101*/001-*"))
    text = (run / VERDICTS).read_text()
    (run / VERDICTS).write_text(text.replace('"PASS"', '"INCONCLUSIVE"'))
    add_run(run)
    after = dump(records)
    assert len(after) == len(before)
    assert [row[6] for row in after[:2]] == ["INCONCLUSIVE", "INCONCLUSIVE"]
    with schema.connect(index_path(records)) as connection:
        assert connection.execute("SELECT count(*) FROM results").fetchone() == (len(before),)


def test_a_run_that_was_judged_again_lately_is_taken_in_without_being_asked(tmp_path: Path) -> None:
    set_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-abcdef"
    run = write_run(tmp_path, set_id, AT, "some-plan", [counted("no-loss", 0)], Conditions())
    assert update(tmp_path).runs == 1
    (run / VERDICTS).write_text((run / VERDICTS).read_text().replace('"PASS"', '"INCONCLUSIVE"'))
    assert update(tmp_path).runs == 1
    assert [row[6] for row in dump(tmp_path)] == ["INCONCLUSIVE"]


def test_rebuilding_gives_the_same_as_adding_one_by_one(records: Path) -> None:
    for run in sorted(records.glob("*/0*")):
        add_run(run)
    one_by_one = dump(records)
    assert rebuild(records).runs == 3
    assert dump(records) == one_by_one


@pytest.mark.parametrize("damage", [b"this is no database, whatever its name says" * 40, b""])
def test_a_damaged_index_is_made_again_from_the_verdicts(records: Path, damage: bytes) -> None:
    update(records)
    before = dump(records)
    index_path(records).write_bytes(damage)
    for suffix in ("-wal", "-shm"):
        Path(f"{index_path(records)}{suffix}").unlink(missing_ok=True)
    if damage:
        with pytest.raises(InternalError, match="cannot be used") as caught:
            update(records)
        assert "rig history rebuild" in str(caught.value)
    assert main(["history", "rebuild", "--records", str(records)]) == 0
    assert dump(records) == before


def test_an_unreadable_run_is_named_and_hinders_nothing(records: Path) -> None:
    run = next(records.glob("20260102*/001-*"))
    (run / VERDICTS).write_text("{")
    done = update(records)
    assert done.runs == 2
    assert len(done.unread) == 1
    assert str(run) in done.unread[0]


def test_an_index_of_the_first_version_is_migrated(records: Path) -> None:
    update(records)
    before = dump(records)
    with sqlite3.connect(index_path(records)) as connection:
        connection.execute("DROP VIEW verdicts")
        connection.execute("PRAGMA user_version = 1")
    assert dump(records) == before


def test_an_index_of_a_newer_rig_is_left_alone(records: Path) -> None:
    update(records)
    with sqlite3.connect(index_path(records)) as connection:
        connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    with pytest.raises(InternalError, match=f"schema {schema.VERSION + 1}"):
        update(records)


def test_what_a_plan_expects_to_fail_is_green_when_it_fails(tmp_path: Path) -> None:
    told = Conditions(plan_text=PLAN.replace("checks:", "expect: {{fail: [no-duplicates]}}\nchecks:"))
    run = write_run(tmp_path, "20260101T000000Z-abcdef", AT, "provoked", [counted("no-duplicates", 4)], told)
    assert [(one.verdict, one.state) for one in read_run(run).results] == [("FAIL", "green")]
    run = write_run(tmp_path, "20260102T000000Z-abcdef", AT, "provoked", [counted("no-duplicates", 0)], told)
    assert [(one.verdict, one.state) for one in read_run(run).results] == [("PASS", "red")]


def test_a_plan_of_another_version_still_tells_what_it_expects(tmp_path: Path) -> None:
    told = Conditions(plan_text="plan: provoked\nunheard-of: 1\nexpect: {{fail: [no-duplicates]}}\n")
    run = write_run(tmp_path, "20260101T000000Z-abcdef", AT, "provoked", [counted("no-duplicates", 4)], told)
    assert [one.state for one in read_run(run).results] == ["green"]


def test_eight_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    writers = [writer(tmp_path, number, 6) for number in range(8)]
    assert [one.wait() for one in writers] == [0] * 8
    for one in writers:
        assert one.stdout is not None
        one.stdout.close()
    rows = dump(tmp_path)
    assert len({row[-1] for row in rows}) == 48
    assert len(rows) == 96
    assert update(tmp_path).runs == 0


@pytest.mark.parametrize("command", [["pytest", "-n", "2"], ["rig", "run"]], ids=["pytest", "rig-run"])
def test_a_finished_run_is_there_at_the_next_question_whoever_made_it(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = RunSet.create(tmp_path, command)
    for number, lost in enumerate((0, 2), 1):
        at = AT + timedelta(minutes=number)
        write_run(tmp_path, runs.set_id, at, "some-plan", [counted("no-loss", lost)], Conditions())
        assert main(["history", "no-loss", "--records", str(tmp_path)]) == 0
        told = capsys.readouterr().out
        assert ("failing since" in told) == bool(lost)
        assert told.count(runs.set_id) == 1


def test_questions_in_the_middle_of_two_workers_lose_nothing(tmp_path: Path) -> None:
    """As `pytest -n 2` works: the runs only leave their verdicts, whoever asks takes them in."""
    workers = [writer(tmp_path, number, 15, "leaves-it") for number in range(2)]
    asked = 0
    while any(one.poll() is None for one in workers):
        asked += update(tmp_path).runs
    assert [one.wait() for one in workers] == [0, 0]
    for one in workers:
        assert one.stdout is not None
        one.stdout.close()
    assert asked + update(tmp_path).runs == 30
    assert len({row[-1] for row in dump(tmp_path)}) == 30


def test_a_writer_that_is_killed_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    killed = [writer(tmp_path, number, 10_000) for number in range(2)]
    for one in killed:
        assert one.stdout is not None
        for _ in range(4):
            one.stdout.readline()  # it is in the middle of the next run now
        one.send_signal(signal.SIGKILL)
        one.wait()
        one.stdout.close()
    update(tmp_path)
    whole = sorted(f"{path.parent.parent.name}/{path.parent.name}" for path in tmp_path.glob(f"*/*/{VERDICTS}"))
    assert sorted({str(row[-1]) for row in dump(tmp_path)}) == whole
    with schema.connect(index_path(tmp_path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert len(whole) >= 6


def test_history_of_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--records", str(tmp_path)]) == 0
    assert "no results yet" in capsys.readouterr().out
    assert main(["history", "--records", str(tmp_path / "gone")]) == 2
    assert "there are no records" in capsys.readouterr().err


def test_an_unknown_name_is_answered_with_those_that_exist(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "answer-tim", "--records", str(records)]) == 2
    assert "answer-time, no-loss, some-plan" in capsys.readouterr().err


@pytest.mark.parametrize("when", ["soon", "99999999d", "9" * 30 + "h", "0000-01-01"])
def test_a_time_that_is_none_is_answered_with_how_to_write_one(
    records: Path, when: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "some-plan", "--since", when, "--records", str(records)]) == 2
    assert f"'{when}' is no time to begin at\n  next step: write 30d" in capsys.readouterr().err
