"""What the index is asked: which series there are, and their results, read along the primary key."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from rig.errors import UsageError
from rig.history.drift import may_drift
from rig.history.series import Key, Result, Settled, Standing, settle, standing

DEPTH: Final = 60
"""Sets per series that a question looks at. The start of an older streak is looked up on its own."""

_COLUMNS: Final = """r.started_ms, u.set_id, u.folder, u.attempt, r.state, r.verdict, r.n, r.figure, r.value, r.bound,
    r.falling, coalesce(r.reason, ''), coalesce(u.error, ''), coalesce(u.firmware, ''), coalesce(u.build, ''),
    coalesce(u.commit_id, ''), u.plan_hash, coalesce(u.dirty, 0)"""
_SERIES: Final = """FROM results r JOIN runs u ON u.id = r.run
    WHERE r.check_id = ? AND r.bench_id = ? AND r.started_ms >= ? AND r.started_ms < ?
    AND (? IS NULL OR u.origin = ?)"""
_Series: TypeAlias = tuple[int, int, int, int, str | None, str | None]
"""What `_SERIES` asks for."""
_NEWEST_FIRST: Final = "ORDER BY r.started_ms DESC, r.run DESC"
FOREVER: Final = 2**62


def ahead(connection: sqlite3.Connection, until_ms: int) -> list[str]:
    """One sentence about runs that begin at `until_ms` or later, so that no question up to then sees them; none where
    there are none."""
    runs, folder, at_ms = connection.execute(
        "SELECT count(*), folder, max(started_ms) FROM runs WHERE started_ms >= ?", (until_ms,)
    ).fetchone()
    if not runs:
        return []
    many = f"{runs} runs are" if runs > 1 else "1 run is"
    day = f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d}"
    return [
        f"{many} dated later than this machine's clock, {folder} {day}: set the clock, or correct `started_utc` in "
        "run.json and run `rig history rebuild`"
    ]


def find_series(
    connection: sqlite3.Connection, name: str | None = None, bench: str | None = None
) -> list[tuple[int, int, Key]]:
    """(check id, bench id, key) of every series. name: of a plan, a check, or `plan[point]::check`; None for all.

    Raises UsageError when nothing has that name, with names that exist.
    """
    rows = connection.execute(
        "SELECT c.id, b.id, c.plan, c.point, c.name, b.name FROM checks c, benches b WHERE EXISTS"
        " (SELECT 1 FROM results r WHERE r.check_id = c.id AND r.bench_id = b.id)"
        " AND (? IS NULL OR b.name = ?) ORDER BY c.plan, c.point, c.name, b.name",
        (bench, bench),
    ).fetchall()
    found = [(check, bench_id, Key(*key)) for check, bench_id, *key in rows]
    if name is not None:
        wanted = name.rpartition("plan.yaml::")[2]
        named = [one for one in found if wanted in _names(one[2])]
        if not named:
            known = sorted({key.plan for *_, key in found} | {key.check for *_, key in found})
            raise UsageError(
                f"no check or plan {name!r} in the history" + (f" of bench {bench!r}" if bench else ""),
                hint=f"there are {', '.join(known[:12])}{' and more' if len(known) > 12 else ''}"
                if known
                else "there are no results yet; `rig history rebuild --records DIR` takes records in",
            )
        found = named
    return found


def _names(key: Key) -> tuple[str, ...]:
    title = key.name.rpartition("::")[0]
    return key.plan, title, key.check, key.name, f"{key.plan}::{key.check}"


def results(
    connection: sqlite3.Connection,
    check: int,
    bench: int,
    *,
    since_ms: int = 0,
    until_ms: int = FOREVER,
    depth: int = DEPTH,
    origin: str | None = None,
) -> list[Settled]:
    """The last `depth` sets of a series, each whole, oldest first. origin: only of sets made so."""
    series = (check, bench, since_ms, until_ms, origin, origin)
    found: list[Result] = []
    sets: set[str] = set()
    for one in map(Result._make, connection.execute(f"SELECT {_COLUMNS} {_SERIES} {_NEWEST_FIRST}", series)):
        if one.set_id in sets or len(sets) < depth:
            sets.add(one.set_id)
            found.append(one)
        # Sets may overlap. Ids begin with the time at which their set did, so nothing of these lies further back.
        elif f"{datetime.fromtimestamp(one.started_ms / 1000, UTC):%Y%m%dT%H%M%SZ}" < min(sets):
            break
    return settle(found)


def standings(
    connection: sqlite3.Connection,
    name: str | None = None,
    bench: str | None = None,
    *,
    since_ms: int = 0,
    until_ms: int = FOREVER,
    origin: str | None = None,
    brief: bool = False,
) -> Iterator[Standing]:
    """Where every series stands, in the order of the names.

    since_ms: which results are looked at; a streak may have begun before. brief: of a series that has been green and
    steady all the time, only the last set is read.
    """
    for check, bench_id, key in find_series(connection, name, bench):
        series = (check, bench_id, since_ms, until_ms, origin, origin)
        depth = 1 if brief and _quiet(connection, series) else DEPTH
        settled = results(connection, check, bench_id, since_ms=since_ms, until_ms=until_ms, depth=depth, origin=origin)
        if not settled:
            continue
        found = standing(key, settled)
        if found.since is not None and found.last_good is None and (since_ms or len(settled) == DEPTH):
            # Red for as long as we have looked: find where that began, however long ago.
            every = (check, bench_id, 0, until_ms, origin, origin)
            found = replace(standing(key, [*_edge(connection, every, settled), *settled]), settled=tuple(settled))
        yield found


def _quiet(connection: sqlite3.Connection, series: _Series) -> bool:
    """Whether the last sets, or more, are nothing but green that cannot be drifting; worked out inside SQLite."""
    rows = DEPTH
    while True:
        count, sets, bad, least, most, lowest, highest, falling = connection.execute(
            "SELECT count(*), count(DISTINCT set_id), sum(state <> 'green'), min(value), max(value), min(bound),"
            f" max(bound), max(falling) FROM (SELECT u.set_id, r.state, r.value, r.bound, r.falling {_SERIES}"
            f" {_NEWEST_FIRST} LIMIT {rows})",
            series,
        ).fetchone()
        if bad:
            return False
        if sets >= DEPTH or count < rows:
            break
        rows *= 8  # a set may have many runs
    if lowest is None or least is None:
        return True
    return not may_drift(least, most, highest if falling else lowest, falling=bool(falling))


def _edge(connection: sqlite3.Connection, series: _Series, settled: Sequence[Settled]) -> list[Settled]:
    """Of the sets before `settled`: the last green one, and the first red one since."""
    known = {one.result.set_id for one in settled}
    green = red = None
    for set_id, reds, greens in connection.execute(
        f"SELECT u.set_id, sum(r.state = 'red'), sum(r.state = 'green') {_SERIES}"
        " GROUP BY u.set_id ORDER BY min(r.started_ms)",
        series,
    ):
        if set_id in known:
            continue
        if reds:
            red = red or set_id
        elif greens:
            green, red = set_id, None
    rows = connection.execute(f"SELECT {_COLUMNS} {_SERIES} AND u.set_id IN (?, ?)", (*series, green, red))
    return settle(map(Result._make, rows))


def parse_since(text: str, now: datetime) -> int:
    """`30d`, `12h` or an ISO date (UTC) as ms since 1970; raises UsageError for anything else."""
    number, unit = text[:-1], text[-1:]
    try:
        if number.isdecimal() and unit in ("d", "h"):
            given = now - timedelta(hours=int(number) * (24 if unit == "d" else 1))
        else:
            given = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{text!r} is no time to begin at", hint="write 30d, 12h or a date, 2026-01-31") from error
    return int((given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp() * 1000)
