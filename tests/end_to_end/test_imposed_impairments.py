"""What the relay was told to do is what the checks find: the relay's own counters are the truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rig.protocol import token_v2
from rig.record import load_run, runs_of

pytestmark = pytest.mark.bench

FAULTS = Path(__file__).resolve().parents[2] / "testplans" / "faults"
MARKS = (token_v2.SENTINEL_START, token_v2.SENTINEL_END)


def run_without_warmup(place, plan: str) -> tuple[Path, dict[str, Any]]:
    """Run a fault plan; its record, and its checks by name."""
    path = place.folder / f"{plan}.plan.yaml"
    path.write_text((FAULTS / path.name).read_text().replace("mode: request,", "mode: request, warmup: 0,"))
    ran = place.rig("run", path, "--record-dir", place.folder / plan)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    [record] = [run for set_dir in (place.folder / plan).iterdir() for run in runs_of(set_dir)]
    checks = json.loads((record / "verdicts.json").read_text())["checks"]
    return record, {check["check"]: check for check in checks}


@pytest.mark.parametrize(
    ("plan", "check", "done"),
    [
        ("loss", "no-loss", "dropped_loss"),
        ("duplication", "no-duplicates", "duplicated"),
        ("reordering", "in-order", "reordered"),
    ],
)
def test_every_frame_that_the_relay_touched_is_counted(place, plan: str, check: str, done: str) -> None:
    record, checks = run_without_warmup(place, plan)
    info, counted = load_run(record), checks[check]["limits"][0]["beyond"]
    assert counted > 0
    # The relay cannot tell an answer to a sentinel, which is no answer of the flow, from the others.
    of_sentinels = sum(one["kind"] in MARKS and not one["from_board"] for one in info.capture["sentinels"])
    assert counted <= info.relay["from-board"][done] <= counted + of_sentinels


def test_a_jitter_of_8_ms_spreads_the_answers_by_as_much(place) -> None:
    _, checks = run_without_warmup(place, "jitter")
    summary = checks["answer-time"]["summary"]
    p90 = next(one for one in summary["quantiles"] if one["name"] == "p90")
    # Evenly spread over 8 ms: of 500 answers the quickest has nearly none of it and one of ten more than 7.2 ms. A busy
    # host only adds to that.
    assert p90["value_ns"] - summary["min_ns"] >= 6_500_000
