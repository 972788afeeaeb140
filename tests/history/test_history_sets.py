"""A set counts as one result however many runs it has, and a question looks at whole sets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rig.history.index import add_rows, index_path
from rig.history.questions import DEPTH, standings
from rig.history.rows import ResultRow, RunRow
from rig.history.schema import connect
from rig.history.series import Standing
from rig.nightly.command import morning_of

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def set_of(night: int, states: str, *, kind: str = "abcdef", origin: str = "nightly") -> list[RunRow]:
    """One set of a night, a run a second, the states as letters: g, r, o."""
    at = FIRST + timedelta(days=night)
    set_id = f"{at:%Y%m%dT%H%M%SZ}-{kind}"
    return [_run(set_id, i, round(at.timestamp() * 1000) + 1000 * i, letter, origin) for i, letter in enumerate(states)]


def _run(set_id: str, number: int, at_ms: int, letter: str, origin: str) -> RunRow:
    state, verdict = {"g": ("green", "PASS"), "r": ("red", "FAIL"), "o": ("open", "ERROR")}[letter]
    result = ResultRow("answer-time", "response_time", state, verdict, 100, "p50", 1000, 5000, False, None)  # type: ignore[arg-type]
    return RunRow(
        folder=f"{set_id}/{number:03d}-p",
        stamp="1",
        set_id=set_id,
        origin=origin,
        plan="p",
        point="",
        bench="lab",
        profile="hardware",
        started_ms=at_ms,
        attempt=1,
        outcome="completed",
        verdict=verdict,
        variant="copy",
        firmware="f" * 64,
        build="b" * 40,
        commit_id="c" * 40,
        dirty=False,
        plan_hash="h",
        e_ns=1000,
        error=None,
        findings="",
        results=(result,),
    )


def asked(records: Path, *sets: list[RunRow], origin: str | None = None, brief: bool = False) -> Standing:
    """Where the one series stands."""
    with connect(index_path(records)) as connection:
        add_rows(connection, [row for rows in sets for row in rows])
        (found,) = standings(connection, origin=origin, brief=brief)
    return found


@pytest.mark.parametrize("brief", [False, True])
@pytest.mark.parametrize(
    "states", ["r" + "g" * 99, "r" * 40 + "g" * 60, "g" * 999 + "r"], ids=["the first", "the first 40", "the last"]
)
def test_one_red_run_makes_a_set_of_any_size_red(tmp_path: Path, states: str, brief: bool) -> None:
    found = asked(tmp_path, set_of(0, "g"), set_of(1, states), brief=brief)
    assert found.now.state == "red"
    assert len(found.now.attempts) == len(states)


def test_the_morning_page_shows_a_large_red_set_as_failing(tmp_path: Path) -> None:
    rows = set_of(1, "r" * 40 + "g" * 60)
    asked(tmp_path, set_of(0, "g"), rows)
    for row in [*set_of(0, "g"), *rows]:
        (tmp_path / row.folder).mkdir(parents=True)
    morning, _ = morning_of(tmp_path, tmp_path / rows[0].set_id)
    assert [item.name for item in morning.new] == ["p::answer-time"]
    assert morning.green == 0


def test_as_many_nights_are_looked_at_whatever_a_night_repeats(tmp_path: Path) -> None:
    nights = [set_of(night, "ggggg") for night in range(DEPTH + 20)]
    found = asked(tmp_path, *nights)
    assert len(found.settled) == DEPTH
    assert {len(one.attempts) for one in found.settled} == {5}


def test_a_long_night_that_others_overlap_is_whole(tmp_path: Path) -> None:
    """Its first run lies before everything else that is looked at, its last one after."""
    long = set_of(0, "r" + "g", kind="ffffff")
    late = _run(long[0].set_id, 7, long[0].started_ms + (DEPTH + 5) * 86_400_000, "g", "nightly")
    found = asked(tmp_path, [*long, late], *(set_of(night, "g") for night in range(1, DEPTH + 4)))
    assert found.now.result.set_id != long[0].set_id
    assert [len(one.attempts) for one in found.settled if one.result.set_id == long[0].set_id] == [3]


def test_the_quick_look_sees_a_red_night_behind_hundreds_of_green_runs(tmp_path: Path) -> None:
    sets = [
        set_of(0, "r"),
        set_of(1, "g"),
        set_of(2, "r"),
        set_of(3, "g"),
        *(set_of(4 + n, "g" * 30) for n in range(8)),
    ]
    assert asked(tmp_path, *sets, brief=True).flaky
    assert asked(tmp_path, brief=False).flaky


def test_a_streak_that_began_before_what_is_asked_for_keeps_its_beginning(tmp_path: Path) -> None:
    sets = [set_of(night, "g" if night < 3 else "r") for night in range(12)]
    with connect(index_path(tmp_path)) as connection:
        add_rows(connection, [row for rows in sets for row in rows])
        (found,) = standings(connection, since_ms=sets[8][0].started_ms)
    assert found.since is not None
    assert found.last_good is not None
    assert found.since.result.set_id == sets[3][0].set_id
    assert found.last_good.result.set_id == sets[2][0].set_id
    assert [one.result.set_id for one in found.settled] == [rows[0].set_id for rows in sets[8:]]


def test_a_streak_older_than_what_is_looked_at_begins_after_the_last_green_set(tmp_path: Path) -> None:
    """A green run in a red set, an undecided night and what was tried out by day end no streak."""
    sets = [set_of(0, "g"), set_of(1, "o"), set_of(2, "gr"), set_of(3, "g", origin="run")]
    sets += [set_of(4 + night, "rg") for night in range(DEPTH + 5)]
    found = asked(tmp_path, *sets, origin="nightly")
    assert found.last_good is not None
    assert found.since is not None
    assert found.last_good.result.set_id == sets[0][0].set_id
    assert found.since.result.set_id == sets[2][0].set_id
