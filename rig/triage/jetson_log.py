"""jetson.jsonl in one pass: what is rare is kept whole, requests of a large file are sampled.

A run of a million packets has hundreds of megabytes of events; telling the kinds apart by their text costs a tenth of
parsing them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from rig.jetson.report import ANSWERS
from rig.triage.side_files import is_number, parsed

SAMPLED: Final = 50_000
"""About how many requests are kept."""
_BYTES_PER_REQUEST: Final = 700
"""With its answer."""
_REQUEST = b'"event":"request"'
_NEEDED: Final = {"counts", "t_ns", "what"}
"""Fields that nobody leaves open; the others may be null."""
_KINDS: Final[dict[str, type]] = {
    "boot_ids": list, "cooling": dict, "counters": dict, "kind": str, "load": list, "over_current": dict, "reason": str,
    "request_id": int, "sentinels": dict, "spec": dict, "temperature_c": dict, "text": str, "token_ns": list,
    "what": str, "when": str,
}  # fmt: skip
"""Besides those in `_ns`, which are numbers."""


@dataclass(frozen=True)
class JetsonLog:
    """events: every `stride`-th `request` and everything else but answers, in the file's order. damaged: how many lines
    are no events."""

    events: tuple[dict[str, Any], ...] = ()
    stride: int = 1
    damaged: int = 0

    @cached_property
    def requests(self) -> tuple[dict[str, Any], ...]:
        return tuple(event for event in self.events if event["event"] == "request")

    @cached_property
    def others(self) -> tuple[dict[str, Any], ...]:
        return tuple(event for event in self.events if event["event"] != "request")


def read_jetson_log(path: Path) -> JetsonLog:
    """Empty for a file that is not there; damaged lines are counted and left out."""
    if not path.exists():
        return JetsonLog()
    stride = max(1, path.stat().st_size // (_BYTES_PER_REQUEST * SAMPLED))
    events, damaged, count = [], 0, 0
    with path.open("rb") as stream:
        for line in stream:
            if ANSWERS in line:
                continue
            if _REQUEST in line:
                count += 1
                if count % stride:
                    continue
            event = parsed(line)
            if _sound(event):
                events.append(event)
            else:
                damaged += 1
    return JetsonLog(tuple(events), stride, damaged)


def _sound(event: dict[str, Any]) -> bool:
    """True for an event whose fields are of the kinds that a runner writes."""
    return isinstance(event.get("event"), str) and "t_ns" in event and all(_fits(key, event[key]) for key in event)


def _fits(key: str, value: Any) -> bool:
    if value is None:
        return key not in _NEEDED
    if key == "counts":
        return isinstance(value, dict) and all(is_number(one, int) for one in value.values())
    kind = _KINDS.get(key, int if key.endswith("_ns") else object)
    return is_number(value, int) if kind is int else isinstance(value, kind)
