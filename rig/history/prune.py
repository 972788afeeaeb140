"""Retention: captures of old runs go, by age and by size; everything else of a record stays, and so does whatever a
link leads to.

What may go is named here and nowhere else. Verdicts, run.json, plan, bench file, console and event logs are small and
are what history and re-reading need; a capture, and the annotated copies of it that triage makes, can be megabytes a
minute.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rig.errors import InternalError, RigError
from rig.history.rows import began_ms, milliseconds, read_run
from rig.record import load_run, runs_of, set_folders, to_json, write_atomic

NOTE: Final = "pruned.json"
"""In the run's folder: `pruned_utc`, and `removed`, the sizes of what was there."""
KILLED_DAYS: Final = 7
"""No run takes so long: one that began earlier and says that it is at work was killed."""


@dataclass(frozen=True)
class Capture:
    """The captures of one run: its own, and those in its triage folder. seen_ms: the latest time that its record tells,
    as a clock that was not set yet makes a run seem old. keep: it is not green, so it is kept longer. running: it
    says that it is at work, or was killed."""

    run: Path
    seen_ms: int
    files: tuple[Path, ...]
    size: int
    keep: bool
    running: bool


def captures(records: Path) -> Iterator[Capture]:
    """All runs that still have captures; those without readable verdicts count as failing."""
    for directory in set_folders(records)[0]:
        if directory.is_symlink() or not (directory / "set.json").is_file():
            continue
        for run in runs_of(directory):
            files = tuple(_large(run))
            if not files:
                continue
            try:
                info = load_run(run)
                seen_ms = max(began_ms(info), milliseconds(info.ended_utc) if info.ended_utc else 0)
            except (InternalError, ValueError, OverflowError):
                continue  # nobody can say how old it is
            size = sum(path.stat().st_size for path in files)
            yield Capture(run, seen_ms, files, size, _failing(run), info.outcome == "running")


def _large(run: Path) -> Iterator[Path]:
    """The only files that are ever removed."""
    triage = run.with_name(f"{run.name}.triage")
    copies = [] if triage.is_symlink() else sorted(triage.glob("*.pcapng"))
    own = [] if run.is_symlink() else [run / "capture.pcapng"]
    yield from (path for path in (*own, *copies) if path.is_file() and not path.is_symlink())


def chosen(
    found: list[Capture], now_ms: int, *, days: float, failing_days: float, max_bytes: int | None
) -> list[Capture]:
    """Which captures go: those past their age, then the oldest until the rest fits in max_bytes, green ones first.

    What may still be at work is neither taken nor counted.
    """
    day_ms = 86_400_000
    over = [one for one in found if not one.running or now_ms - one.seen_ms > day_ms * KILLED_DAYS]
    gone = [one for one in over if now_ms - one.seen_ms > day_ms * (failing_days if one.keep else days)]
    old = {one.run for one in gone}
    left = sorted((one for one in over if one.run not in old), key=lambda one: (one.keep, one.seen_ms))
    total = sum(one.size for one in left)
    while max_bytes is not None and total > max_bytes and left:
        total -= left[0].size
        gone.append(left.pop(0))
    return gone


def remove(capture: Capture, now_ms: int) -> None:
    """Take the captures of a run away and leave a note in their place, so that nobody searches for them."""
    removed = {str(path.relative_to(capture.run.parent)): path.stat().st_size for path in capture.files}
    at = f"{datetime.fromtimestamp(now_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    write_atomic(capture.run / NOTE, to_json({"pruned_utc": at, "removed": removed}))
    try:
        for path in capture.files:
            path.unlink()
    except OSError as error:
        raise InternalError(f"cannot remove the captures of {capture.run}: {error.strerror}") from error


def pruned_on(run: Path) -> str | None:
    """The day on which a run's captures were removed, `2026-01-31`; None where no note says so."""
    try:
        return str(json.loads((run / NOTE).read_bytes())["pruned_utc"])[:10]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _failing(run: Path) -> bool:
    try:
        return any(result.state in ("red", "open") for result in read_run(run).results)
    except RigError:
        return True
