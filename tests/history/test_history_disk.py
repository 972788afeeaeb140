"""The index and the disk: what is gone, renamed, copied, damaged, closed or dated wrongly below the record folder."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from written_runs import Conditions, counted, write_run

from rig.cli import main
from rig.history.index import index_path, rebuild, update
from rig.history.schema import connect
from rig.record import VERDICTS

NOW = datetime.now(UTC)
NOBODY = 65534


def run_of(records: Path, days: float, lost: int = 0, plan: str = "some-plan") -> Path:
    """A run that many days ago."""
    at = NOW - timedelta(days=days)
    return write_run(records, f"{at:%Y%m%dT%H%M%SZ}-abcdef", at, plan, [counted("no-loss", lost)], Conditions())


def folders(records: Path) -> list[str]:
    """Runs in the index, of which each has its result."""
    with connect(index_path(records)) as connection:
        rows = connection.execute("SELECT folder FROM verdicts ORDER BY folder").fetchall()
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (len(rows),)
    return [row[0] for row in rows]


def name(run: Path) -> str:
    return f"{run.parent.name}/{run.name}"


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_bytes()) | values))


@pytest.mark.parametrize("days", [1, 100], ids=["lately", "long ago"])
def test_a_set_that_was_removed_is_forgotten_at_the_next_question(tmp_path: Path, days: int) -> None:
    kept, gone = run_of(tmp_path, days + 1), run_of(tmp_path, days, lost=3)
    update(tmp_path)
    assert folders(tmp_path) == [name(kept), name(gone)]
    shutil.rmtree(gone.parent)
    assert update(tmp_path).runs == 0
    assert folders(tmp_path) == [name(kept)]


@pytest.mark.parametrize("days", [1, 100], ids=["lately", "long ago"])
def test_a_run_that_was_removed_from_its_set_is_forgotten(tmp_path: Path, days: int) -> None:
    kept, gone = run_of(tmp_path, days), run_of(tmp_path, days, lost=3)
    update(tmp_path)
    shutil.rmtree(gone)
    update(tmp_path)
    assert folders(tmp_path) == [name(kept)]


@pytest.mark.parametrize("days", [1, 100], ids=["lately", "long ago"])
def test_a_renamed_set_is_known_by_its_new_name_and_read_once(tmp_path: Path, days: int) -> None:
    run = run_of(tmp_path, days, lost=3)
    update(tmp_path)
    run.parent.rename(tmp_path / "baseline-lab")
    assert [update(tmp_path).runs for _ in range(3)] == [1, 0, 0]
    assert folders(tmp_path) == [f"baseline-lab/{run.name}"]
    assert rebuild(tmp_path).runs == 1
    assert folders(tmp_path) == [f"baseline-lab/{run.name}"]


def test_a_copy_counts_once_and_takes_nobodys_place(tmp_path: Path) -> None:
    run = run_of(tmp_path, 1, lost=3)
    shutil.copytree(run.parent, tmp_path / "keep-this")
    edited = run.with_name("002-edited")
    shutil.copytree(run, edited)
    (edited / VERDICTS).write_text((run / VERDICTS).read_text().replace('"FAIL"', '"PASS"'))
    (tmp_path / "latest").symlink_to(run.parent.name)
    assert [update(tmp_path).runs for _ in range(2)] == [1, 0]
    with connect(index_path(tmp_path)) as connection:
        found = connection.execute("SELECT folder, verdict FROM verdicts").fetchall()
    assert found == [(name(run), "FAIL")]
    assert rebuild(tmp_path).runs == 1


def surrogate(run: Path) -> None:
    verdicts = json.loads((run / VERDICTS).read_bytes())
    verdicts["checks"][0]["reason"] = "x\ud800"
    (run / VERDICTS).write_text(json.dumps(verdicts))


def huge(run: Path) -> None:
    (run / VERDICTS).write_text((run / VERDICTS).read_text().replace('"n": 600', f'"n": {2**70}'))


def infinite(run: Path) -> None:
    (run / VERDICTS).write_text((run / VERDICTS).read_text().replace('"n": 600', '"n": Infinity'))


def deep(run: Path) -> None:
    (run / VERDICTS).write_text("[" * 200_000)


def deep_info(run: Path) -> None:
    (run / "run.json").write_text('{"bench":' * 200_000)


def listed_variant(run: Path) -> None:
    change(run / "run.json", firmware={"variant": ["copy"]})


def no_bench(run: Path) -> None:
    change(run / "run.json", bench=None)


def no_time(run: Path) -> None:
    change(run / "run.json", started_utc="yesterday")


DAMAGES = [surrogate, huge, infinite, deep, deep_info, listed_variant, no_bench, no_time]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_named_and_the_others_are_there(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    damaged, sound = run_of(tmp_path, 1, lost=3), run_of(tmp_path, 1, lost=3, plan="sound")
    damage(damaged)
    for done in (update(tmp_path), rebuild(tmp_path)):
        assert done.runs == 1
        (told,) = done.unread
        assert str(damaged) in told
        assert folders(tmp_path) == [name(sound)]


@pytest.fixture
def closed() -> Iterator[Path]:
    """A folder in records of their own that this user, who is not root meanwhile, may not look into."""
    # The folders above pytest's own are closed to everybody else.
    with tempfile.TemporaryDirectory() as records:
        folder = Path(records) / "lost+found"
        folder.mkdir(mode=0)
        if root := os.geteuid() == 0:
            os.chown(records, NOBODY, -1)
            os.seteuid(NOBODY)
        yield folder
        if root:
            os.seteuid(0)
        folder.chmod(0o700)


def test_a_folder_that_may_not_be_read_is_named_and_hinders_nothing(
    closed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of(closed.parent, 100)
    for question in ([], ["rebuild"], ["prune"]):
        assert main(["history", *question, "--records", str(closed.parent)]) == 0
        said = capsys.readouterr()
        assert f"{closed.name}: this user may not read it" in said.err
        assert "some-plan" in said.out or "1 runs" in said.out


def test_runs_of_a_set_that_may_not_be_read_are_not_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path, 1)
    update(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda *_, **__: False)
        assert len(update(tmp_path).unread) == 1
    assert folders(tmp_path) == [name(run)]


def test_a_run_of_a_day_to_come_hides_no_red_one_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    early = run_of(tmp_path, 5)
    change(early / "run.json", started_utc=f"{NOW.year + 4}-01-01T00:00:00.000Z")
    for days in (2, 1):
        run_of(tmp_path, days, lost=3)
    assert main(["history", "--records", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "FAIL  some-plan::no-loss" in said.out
    assert f"failing since {NOW - timedelta(days=2):%Y-%m-%d}" in said.out
    assert f"1 run is dated later than this machine's clock, {name(early)} {NOW.year + 4}-01-01" in said.err


def test_a_run_that_seems_older_than_its_set_began_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of(tmp_path, 2)
    change(run_of(tmp_path, 1, lost=3) / "run.json", started_utc="2020-01-01T00:00:00.000Z")
    assert main(["history", "--records", str(tmp_path)]) == 0
    assert f"failing since {NOW - timedelta(days=1):%Y-%m-%d}" in capsys.readouterr().out


def test_what_a_record_says_does_not_drive_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(tmp_path, 1, lost=3)
    verdicts = json.loads((run / VERDICTS).read_bytes())
    verdicts["checks"][0]["reason"] = "\x1b[2J\x9b2J\r\nall is well"
    (run / VERDICTS).write_text(json.dumps(verdicts))
    assert main(["history", "some-plan", "--records", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "\\x1b[2J\\x9b2J\\x0d\\x0aall is well" in said
    assert all(line.isprintable() for line in said.splitlines())
