"""jetson.jsonl in one pass: what is rare is kept whole, requests of a large file are sampled.

A run of a million packets has hundreds of megabytes of events; telling the kinds apart by their text costs a tenth of
parsing them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from rig.jetson.report import ANSWERS

SAMPLED: Final = 50_000
"""About how many requests are kept."""
_BYTES_PER_REQUEST: Final = 700
"""With its answer."""
_REQUEST = b'"event":"request"'


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
            try:
                event = json.loads(line)
                known = isinstance(event["event"], str) and isinstance(event["t_ns"], int)
            except (ValueError, TypeError, KeyError):
                known = False
            if known:
                events.append(event)
            else:
                damaged += 1
    return JetsonLog(tuple(events), stride, damaged)
