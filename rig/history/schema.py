"""The SQLite index over all verdicts: its tables, its version, how it is opened.

The `verdicts.json` files are the truth; this file may be deleted at any time and is made again by `rig history
rebuild`. docs/history.md documents the tables and views for everyone's own SQL.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rig.errors import InternalError

NAME: Final = "history.sqlite"
BUSY_S: Final = 60.0
"""How long a writer waits for the others; one writes for some milliseconds."""

_TABLES = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    folder TEXT NOT NULL UNIQUE,
    stamp TEXT NOT NULL,
    set_id TEXT NOT NULL,
    origin TEXT NOT NULL,
    plan TEXT NOT NULL,
    point TEXT NOT NULL,
    bench TEXT NOT NULL,
    profile TEXT NOT NULL,
    started_ms INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    verdict TEXT NOT NULL,
    variant TEXT,
    firmware TEXT,
    build TEXT,
    commit_id TEXT,
    dirty INTEGER,
    plan_hash TEXT NOT NULL,
    e_ns INTEGER NOT NULL,
    error TEXT,
    findings TEXT NOT NULL
);
CREATE INDEX runs_by_start ON runs (started_ms);
CREATE INDEX runs_by_set ON runs (set_id);
CREATE TABLE checks (
    id INTEGER PRIMARY KEY,
    plan TEXT NOT NULL,
    point TEXT NOT NULL,
    name TEXT NOT NULL,
    metric TEXT NOT NULL,
    UNIQUE (plan, point, name)
);
CREATE TABLE benches (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);
CREATE TABLE results (
    check_id INTEGER NOT NULL REFERENCES checks (id),
    bench_id INTEGER NOT NULL REFERENCES benches (id),
    started_ms INTEGER NOT NULL,
    run INTEGER NOT NULL REFERENCES runs (id),
    state TEXT NOT NULL,
    verdict TEXT NOT NULL,
    n INTEGER NOT NULL,
    figure TEXT,
    value INTEGER,
    bound INTEGER,
    falling INTEGER NOT NULL,
    reason TEXT,
    PRIMARY KEY (check_id, bench_id, started_ms, run)
) WITHOUT ROWID;
CREATE INDEX results_by_run ON results (run);
"""

_VIEWS = """
CREATE VIEW verdicts AS
    SELECT datetime(runs.started_ms / 1000, 'unixepoch') AS started_utc, runs.plan, runs.point,
           checks.name AS check_name, runs.bench, results.state, results.verdict, results.n, results.figure,
           results.value, results.bound, results.reason, runs.build, runs.firmware, runs.commit_id, runs.attempt,
           runs.origin, runs.folder
    FROM results JOIN runs ON runs.id = results.run JOIN checks ON checks.id = results.check_id;
"""

MIGRATIONS: Final = (_TABLES, _VIEWS)
"""Step N brings a file of version N to N + 1. Steps are only ever added."""
VERSION: Final = len(MIGRATIONS)


@contextlib.contextmanager
def connect(path: Path) -> Iterator[sqlite3.Connection]:
    """The index, made or migrated if need be; closed at the end. Transactions are the caller's (autocommit).

    Raises InternalError when it cannot be used, with what to do.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        with contextlib.closing(connection):
            if _version(connection) != VERSION:
                _migrate(connection, path)
            connection.execute("PRAGMA synchronous = NORMAL")
            yield connection
    except (sqlite3.Error, OSError) as error:
        raise InternalError(
            f"the history index {path} cannot be used: {error}",
            hint="`rig history rebuild` makes it again from the verdicts; nothing is kept in it alone",
        ) from error


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, one writer at a time."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    # Changing the journal mode is refused at once while another process does the same, whatever the time-out.
    with contextlib.suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA journal_mode = WAL")
    with transaction(connection):
        found = _version(connection)  # another process may have been quicker
        if found > VERSION:
            raise InternalError(
                f"the history index {path} has schema {found}, this rig knows up to {VERSION}",
                hint="use the newer rig, or run `rig history rebuild` with this one",
            )
        for step in MIGRATIONS[found:]:
            for statement in step.split(";"):
                if statement.strip():
                    connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
