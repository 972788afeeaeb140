"""Keeps the index in step with the record folders: after each run, before each question, or all over again.

Any number of processes may do so at once. What a killed one has not written is found by the next.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from rig.errors import InternalError, RigError
from rig.history.rows import RunRow, is_comparisons, read_run, stamp_of
from rig.history.schema import NAME, connect, transaction

RECENT_DAYS: Final = 7
BATCH: Final = 500
"""Runs per transaction of a rebuild: others get their turn in between."""

_RUN = [field.name for field in fields(RunRow) if field.name != "results"]
_INSERT_RUN = f"INSERT INTO runs ({', '.join(_RUN)}) VALUES ({', '.join('?' * len(_RUN))})"


@dataclass(frozen=True)
class Updated:
    """runs: how many came in. unread: run folders whose verdicts cannot be read, and why."""

    runs: int
    unread: tuple[str, ...] = ()


def index_path(records: Path) -> Path:
    """Where the index over a record folder lies."""
    return records / NAME


def add_run(run: Path) -> None:
    """Take one run in, right after it was judged. Harmless when it is there already."""
    with connect(index_path(run.parent.parent)) as connection:
        add_rows(connection, [read_run(run)])


def add_rows(connection: sqlite3.Connection, rows: Iterable[RunRow]) -> None:
    """Write runs, each in place of an older one of the same folder; one transaction."""
    with transaction(connection):
        ids: dict[tuple[str, ...], int] = {}
        for row in rows:
            _add(connection, row, ids)


def update(records: Path) -> Updated:
    """Take in what is new below `records`: sets with runs that are not known, and all of the last RECENT_DAYS.

    A run whose verdicts were changed by hand later than that needs `rebuild`.
    """
    with connect(index_path(records)) as connection:
        known = dict(connection.execute("SELECT set_id, count(*) FROM runs GROUP BY set_id"))
        return _take_in(connection, _unknown(connection, records, known))


def _unknown(connection: sqlite3.Connection, records: Path, known: Mapping[str, int]) -> Iterator[Path]:
    # Set ids begin with their date, so they sort and compare by time.
    recent = f"{datetime.now(UTC) - timedelta(days=RECENT_DAYS):%Y%m%dT%H%M%SZ}"
    with contextlib.suppress(FileNotFoundError):
        for directory in _folders(records):
            runs = _judged(directory)
            if directory.name < recent and len(runs) == known.get(directory.name, 0):
                continue
            mine = dict(connection.execute("SELECT folder, stamp FROM runs WHERE set_id = ?", (directory.name,)))
            for run in runs:
                stamp = stamp_of(run)
                if stamp is not None and mine.get(_name(run)) != stamp:
                    yield run


def rebuild(records: Path) -> Updated:
    """Make the index anew from all verdicts below `records`."""
    path = index_path(records)
    try:
        with connect(path) as connection, transaction(connection):
            for table in ("results", "runs", "checks", "benches"):
                connection.execute(f"DELETE FROM {table}")
    except RigError:
        # Not a database any more, or one of a newer rig.
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
    with connect(path) as connection:
        return _take_in(connection, _found(records))


def _take_in(connection: sqlite3.Connection, runs: Iterable[Path]) -> Updated:
    unread: list[str] = []
    batch: list[RunRow] = []
    taken = 0
    for run in runs:
        try:
            batch.append(read_run(run))
        except InternalError as error:
            unread.append(error.what)
            continue
        if len(batch) == BATCH:
            add_rows(connection, batch)
            taken, batch = taken + len(batch), []
    if batch:
        add_rows(connection, batch)
    return Updated(taken + len(batch), tuple(unread))


def _found(records: Path) -> Iterator[Path]:
    """All run folders with verdicts, in the order of their names."""
    for directory in _folders(records):
        yield from (run for run in _judged(directory) if stamp_of(run) is not None)


def _judged(directory: Path) -> list[Path]:
    """What a set holds that may have verdicts: run folders, and files of comparisons."""
    with os.scandir(directory) as entries:
        return [
            directory / name
            for name in sorted(entry.name for entry in entries if entry.is_dir() or is_comparisons(entry.name))
        ]


def _folders(parent: Path) -> list[Path]:
    with os.scandir(parent) as entries:
        return [parent / name for name in sorted(entry.name for entry in entries if entry.is_dir())]


def _name(run: Path) -> str:
    return f"{run.parent.name}/{run.name}"


def _add(connection: sqlite3.Connection, row: RunRow, ids: dict[tuple[str, ...], int]) -> None:
    old = connection.execute("SELECT id FROM runs WHERE folder = ?", (row.folder,)).fetchone()
    if old is not None:
        connection.execute("DELETE FROM results WHERE run = ?", old)
        connection.execute("DELETE FROM runs WHERE id = ?", old)
    run = connection.execute(_INSERT_RUN, [getattr(row, name) for name in _RUN]).lastrowid
    bench = _id(connection, ids, "benches", ("name",), (row.bench,))
    for result in row.results:
        key = (row.plan, row.point, result.check)
        check = _id(connection, ids, "checks", ("plan", "point", "name"), key, metric=result.metric)
        connection.execute(
            "INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (check, bench, row.started_ms, run, *astuple(result)[2:]),
        )


def _id(
    connection: sqlite3.Connection,
    ids: dict[tuple[str, ...], int],
    table: str,
    columns: tuple[str, ...],
    key: tuple[str, ...],
    **more: str,
) -> int:
    if (found := ids.get((table, *key))) is not None:
        return found
    named = [*columns, *more]
    connection.execute(
        f"INSERT OR IGNORE INTO {table} ({', '.join(named)}) VALUES ({', '.join('?' * len(named))})",
        [*key, *more.values()],
    )
    where = " AND ".join(f"{column} = ?" for column in columns)
    found = int(connection.execute(f"SELECT id FROM {table} WHERE {where}", key).fetchone()[0])
    ids[(table, *key)] = found
    return found
