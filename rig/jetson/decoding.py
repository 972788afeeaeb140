"""The Jetson's decoding of each measured request, from the runner's events, as the columns that metrics take."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rig.jetson.report import ANSWERS, iterate_events
from rig.timing.metrics.measurement import Decoding


def read_decoding(path: Path) -> Decoding:
    """Read events.jsonl (jetson.jsonl in a run record); warm-up requests are left out. JetsonError when damaged."""
    request_id: list[int] = []
    start_ns: list[int] = []
    token_ns: list[int] = []
    begin = [0]
    for event in iterate_events(path, without=ANSWERS):
        if event["event"] == "request" and not event["warmup"] and "pre_start_ns" in event:
            request_id.append(event["request_id"])
            start_ns.append(event["pre_start_ns"])
            token_ns += event.get("token_ns") or []
            begin.append(len(token_ns))
    return Decoding(
        np.array(request_id, np.uint32),
        np.array(start_ns, np.int64),
        np.array(begin, np.int64),
        np.array(token_ns, np.int64),
    )
