"""Keeps the index in step with the record folders: after each run, before each question, or all over again.

Any number of processes may do so at once. What a killed one has not written is found by the next.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from rig.errors import RigError
from rig.history.rows import RunRow, is_comparisons, read_run, stamp_of
from rig.history.schema import NAME, connect, transaction
from rig.record import set_folders

RECENT_DAYS: Final = 7
BATCH: Final = 500
"""Runs per transaction of a rebuild: others get their turn in between."""

_RUN = [field.name for field in fields(RunRow) if field.name not in ("results", "named")]
_OF_SET: Final = "SELECT folder, stamp FROM runs WHERE set_id = ?"
_INSERT_RUN = f"INSERT INTO runs ({', '.join(_RUN)}) VALUES ({', '.join('?' * len(_RUN))})"


@dataclass(frozen=True)
class Updated:
    """runs: how many came in. unread: folders, and runs, that cannot be read, and why."""

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
    """Take in what is new below `records`, and let go what is there no more: of sets whose runs are not those that are
    known, and of all of the last RECENT_DAYS.

    A run whose verdicts were changed by hand later than that needs `rebuild`.
    """
    with connect(index_path(records)) as connection:
        # What is known is asked before the disk is: then nothing that another process takes in meanwhile seems gone.
        known = dict(connection.execute("SELECT set_id, count(*) FROM runs GROUP BY set_id"))
        directories, closed = set_folders(records)
        for set_id in known.keys() - {directory.name for directory in (*directories, *closed)}:
            _forget(connection, dict(connection.execute(_OF_SET, (set_id,))))
        return _take_in(connection, records, _unknown(connection, directories, known), closed)


def _unknown(connection: sqlite3.Connection, directories: Sequence[Path], known: Mapping[str, int]) -> Iterator[Path]:
    # Set ids begin with their date, so they sort and compare by time.
    recent = f"{datetime.now(UTC) - timedelta(days=RECENT_DAYS):%Y%m%dT%H%M%SZ}"
    for directory in directories:
        if directory.name < recent and len(_judged(directory)) == known.get(directory.name, 0):
            continue
        mine = dict(connection.execute(_OF_SET, (directory.name,)))
        found = {_name(run): (run, stamp) for run in _judged(directory) if (stamp := stamp_of(run)) is not None}
        _forget(connection, mine.keys() - found.keys())
        yield from (run for name, (run, stamp) in found.items() if mine.get(name) != stamp)


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
    directories, closed = set_folders(records)
    with connect(path) as connection:
        return _take_in(connection, records, _found(directories), closed)


def _take_in(connection: sqlite3.Connection, records: Path, runs: Iterable[Path], closed: Iterable[Path]) -> Updated:
    unread = [f"{directory}: this user may not read it" for directory in closed]
    batch: list[RunRow] = []
    taken = 0
    for run in runs:
        try:
            row = read_run(run)
        except RigError as error:
            unread.append(error.what if str(run) in error.what else f"{run}: {error.what}")
            continue
        if not _is_copy(records, row):
            batch.append(row)
        if len(batch) == BATCH:
            add_rows(connection, batch)
            taken, batch = taken + len(batch), []
    if batch:
        add_rows(connection, batch)
    return Updated(taken + len(batch), tuple(unread))


def _is_copy(records: Path, row: RunRow) -> bool:
    """Whether a run lies below `records` under its own name too, and counts there: a night that somebody keeps a copy
    of, or a link to, was one night."""
    return row.named != row.folder and row.named.count("/") == 1 and stamp_of(records / row.named) is not None


def _found(directories: Iterable[Path]) -> Iterator[Path]:
    """All run folders with verdicts, in the order of their names."""
    for directory in directories:
        yield from (run for run in _judged(directory) if stamp_of(run) is not None)


def _judged(directory: Path) -> list[Path]:
    """What a set holds that may have verdicts: run folders, and files of comparisons."""
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir() or is_comparisons(entry.name))
    except FileNotFoundError:  # removed since it was found
        return []
    return [directory / name for name in names]


def _name(run: Path) -> str:
    return f"{run.parent.name}/{run.name}"


def _forget(connection: sqlite3.Connection, folders: Collection[str]) -> None:
    if folders:
        with transaction(connection):
            for folder in folders:
                _remove(connection, folder)


def _remove(connection: sqlite3.Connection, folder: str) -> None:
    connection.execute("DELETE FROM results WHERE run IN (SELECT id FROM runs WHERE folder = ?)", (folder,))
    connection.execute("DELETE FROM runs WHERE folder = ?", (folder,))


def _add(connection: sqlite3.Connection, row: RunRow, ids: dict[tuple[str, ...], int]) -> None:
    _remove(connection, row.folder)
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
