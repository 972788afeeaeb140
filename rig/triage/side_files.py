"""What the board told, as a record keeps it: the lines of its console and its RAM ring."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

LARGEST: Final = 2**63 - 1
"""Larger numbers are no counts and no times."""


def read_board_log(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of board.log as (ns since the run's start, text); what has no stamp belongs to the line before."""
    at_ns = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        stamp, _, text = line.partition(" ")
        seconds, dot, fraction = stamp.partition(".")
        if dot and seconds.isdecimal() and fraction.isdecimal() and len(seconds) < 10:
            at_ns = int(seconds) * 1_000_000_000 + int(fraction[:9].ljust(9, "0"))
            yield at_ns, text
        else:
            yield at_ns, line


def read_telemetry(path: Path) -> tuple[list[dict[str, Any]], int]:
    """(events of telemetry.jsonl, how many lines are none)."""
    events, damaged = [], 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        event = parsed(line)
        values = event.get("values")
        if (
            isinstance(event.get("event"), str)
            and is_number(event.get("t_ns"), int)
            and isinstance(values, dict)
            and all(is_number(value) for value in values.values() if isinstance(value, int | float))
        ):
            events.append(event)
        else:
            damaged += 1
    return events, damaged


def parsed(line: str | bytes) -> dict[str, Any]:
    """The JSON object of a line; empty for what is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def is_number(value: Any, kind: type = object) -> bool:
    """True for a finite number of a size that arithmetic with floats and arrays bears."""
    return isinstance(value, int | float) and isinstance(value, kind) and abs(value) <= LARGEST
