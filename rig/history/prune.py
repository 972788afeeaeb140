"""Retention: captures of old runs go, by age and by size; everything else of a record stays.

What may go is named here and nowhere else. Verdicts, run.json, plan, bench file, console and event logs are small and
are what history and re-reading need; the capture can be megabytes a minute.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from rig.errors import InternalError
from rig.history.rows import read_run
from rig.record import load_run, runs_of

LARGE: Final = ("capture.pcapng", "annotated.pcapng")
"""The only files that are ever removed."""


@dataclass(frozen=True)
class Capture:
    """The captures of one run. keep: it is not green, so it is kept longer."""

    run: Path
    started_ms: int
    size: int
    keep: bool


def captures(records: Path) -> Iterator[Capture]:
    """All runs that still have captures and are over; those without readable verdicts count as failing."""
    for directory in sorted(records.iterdir()) if records.is_dir() else ():
        if not (directory / "set.json").is_file():
            continue
        for run in runs_of(directory):
            size = sum((run / name).stat().st_size for name in LARGE if (run / name).is_file())
            if not size:
                continue
            try:
                info = load_run(run)
                started_ms = round(datetime.fromisoformat(info.started_utc).timestamp() * 1000)
            except (InternalError, ValueError):
                continue  # nobody can say how old it is
            if info.outcome != "running":
                yield Capture(run, started_ms, size, _failing(run))


def chosen(
    found: list[Capture], now_ms: int, *, days: float, failing_days: float, max_bytes: int | None
) -> list[Capture]:
    """Which captures go: those past their age, then the oldest until the rest fits in max_bytes, green ones first."""
    day_ms = 86_400_000
    gone = [one for one in found if now_ms - one.started_ms > day_ms * (failing_days if one.keep else days)]
    left = sorted((one for one in found if one not in gone), key=lambda one: (one.keep, one.started_ms))
    total = sum(one.size for one in left)
    while max_bytes is not None and total > max_bytes and left:
        total -= left[0].size
        gone.append(left.pop(0))
    return gone


def remove(capture: Capture) -> None:
    """Take the captures of a run away and leave a note in their place, so that nobody searches for them."""
    removed = {}
    for name in LARGE:
        path = capture.run / name
        if path.is_file():
            removed[name] = path.stat().st_size
    try:
        (capture.run / "pruned.json").write_text(json.dumps({"removed": removed}) + "\n")
        for name in removed:
            (capture.run / name).unlink()
    except OSError as error:
        raise InternalError(f"cannot remove the captures of {capture.run}: {error.strerror}") from error


def _failing(run: Path) -> bool:
    try:
        return any(result.state in ("red", "open") for result in read_run(run).results)
    except InternalError:
        return True
