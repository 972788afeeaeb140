"""What the index is asked: which series there are, and their results, read along the primary key."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from rig.errors import InternalError
from rig.history.drift import may_drift
from rig.history.series import Key, Result, Settled, Standing, settle, standing

DEPTH: Final = 60
"""Results per series that a question looks at. The start of an older streak is looked up on its own."""

_RESULT = """
    SELECT r.started_ms, u.set_id, u.folder, u.attempt, r.state, r.verdict, r.n, r.figure, r.value, r.bound, r.falling,
           coalesce(r.reason, ''), coalesce(u.error, ''), coalesce(u.firmware, ''), coalesce(u.build, ''),
           coalesce(u.commit_id, ''), u.plan_hash
    FROM results r JOIN runs u ON u.id = r.run
    WHERE r.check_id = ? AND r.bench_id = ? AND r.started_ms >= ? AND r.started_ms < ?
"""
FOREVER: Final = 2**62


def find_series(
    connection: sqlite3.Connection, name: str | None = None, bench: str | None = None
) -> list[tuple[int, int, Key]]:
    """(check id, bench id, key) of every series. name: of a plan, a check, or `plan[point]::check`; None for all.

    Raises InternalError when nothing has that name, with names that exist.
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
            raise InternalError(
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
    """The last `depth` results of a series, settled by set, oldest first. origin: only of sets made so."""
    asked: list[int | str] = [check, bench, since_ms, until_ms]
    only = ""
    if origin is not None:
        only = " AND u.origin = ?"
        asked.append(origin)
    rows = connection.execute(f"{_RESULT}{only} ORDER BY r.started_ms DESC, r.run DESC LIMIT {depth}", asked)
    return settle(map(Result._make, rows))


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

    brief: of a series that has been green and steady all the time, only the last result is read.
    """
    for check, bench_id, key in find_series(connection, name, bench):
        depth = 1 if brief and _quiet(connection, check, bench_id, since_ms, until_ms) else DEPTH
        settled = results(connection, check, bench_id, since_ms=since_ms, until_ms=until_ms, depth=depth, origin=origin)
        if not settled:
            continue
        found = standing(key, settled)
        if found.since is not None and found.last_good is None and since_ms == 0:
            # Red for as long as we have looked: find where that began.
            begun = _streak_begins(connection, check, bench_id, found.since.result.started_ms)
            if begun < found.since.result.started_ms:
                edge = results(connection, check, bench_id, until_ms=begun + 1, depth=2, origin=origin)
                found = standing(key, [*edge, *settled])
        yield found


def _quiet(connection: sqlite3.Connection, check: int, bench: int, since_ms: int, until_ms: int) -> bool:
    """Whether there is nothing but green that cannot be drifting, in one pass inside SQLite."""
    bad, least, most, lowest, highest, falling = connection.execute(
        "SELECT sum(state <> 'green'), min(value), max(value), min(bound), max(bound), max(falling)"
        " FROM (SELECT state, value, bound, falling FROM results"
        " WHERE check_id = ? AND bench_id = ? AND started_ms >= ? AND started_ms < ?"
        f" ORDER BY started_ms DESC LIMIT {DEPTH})",
        (check, bench, since_ms, until_ms),
    ).fetchone()
    if bad:
        return False
    if lowest is None or least is None:
        return True
    return not may_drift(least, most, highest if falling else lowest, falling=bool(falling))


def _streak_begins(connection: sqlite3.Connection, check: int, bench: int, before_ms: int) -> int:
    green = connection.execute(
        "SELECT max(started_ms) FROM results"
        " WHERE check_id = ? AND bench_id = ? AND started_ms < ? AND state = 'green'",
        (check, bench, before_ms),
    ).fetchone()[0]
    first = connection.execute(
        "SELECT min(started_ms) FROM results WHERE check_id = ? AND bench_id = ? AND started_ms > ? AND state = 'red'",
        (check, bench, green or 0),
    ).fetchone()[0]
    return int(first)


def parse_since(text: str, now: datetime) -> int:
    """`30d`, `12h` or an ISO date (UTC) as ms since 1970; raises InternalError for anything else."""
    number, unit = text[:-1], text[-1:]
    if number.isdecimal() and unit in ("d", "h"):
        return int(
            (now - timedelta(**{"d": {"days": int(number)}, "h": {"hours": int(number)}}[unit])).timestamp() * 1000
        )
    try:
        given = datetime.fromisoformat(text)
    except ValueError as error:
        raise InternalError(f"{text!r} is no time", hint="write 30d, 12h or a date such as 2026-01-31") from error
    return int((given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp() * 1000)
