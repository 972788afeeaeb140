"""A plan that asks faster than its own NPU times allow, told from a board that is slower than its plan says."""

from __future__ import annotations

from pathlib import Path

import made_records
import pytest
from made_records import make_record
from wire_captures import MS, US, Wire

from rig.triage.case import Case, case_of_record
from rig.triage.diagnosis import diagnose


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may wait for ten seconds: what queues is late and not lost."""
    monkeypatch.setattr(made_records, "PLAN", made_records.PLAN.replace("timeout: 300 ms", "timeout: 10 s"))


def case_of(folder: Path, *, declared: str, takes: int) -> Case:
    """Two hundred requests, one every 8 ms, each of which keeps the NPU busy for `takes`, one after the other."""

    def queueing(wire: Wire) -> None:
        for i in range(3):
            wire.sentinel(i * MS, 3)
        wire.sentinel(5 * MS, 1)
        free = 0
        for i in range(200):
            at = 10 * MS + i * 8 * MS
            wire.request(at, i + 1)
            received = at + wire.noise()
            free = max(received, free) + takes
            wire.answer(free + 20 * US, free + 20 * US + wire.noise(), i + 1, received=received, ready=free)
        wire.sentinel(free + 400 * MS, 2)

    more = f"npu: {{first_token: {declared}}}\n"
    return case_of_record(make_record(folder / "001-made", make=queueing, limit="50 ms", more=more))


@pytest.mark.parametrize(
    ("declared", "takes", "said"),
    [
        ("20 ms", 20 * MS, "plan-overload"),
        ("8 ms", 8 * MS - 300 * US, None),
        ("20 ms", 5 * MS, None),
        ("5 ms", 20 * MS, "board-slow-inference"),
    ],
    ids=["the plan's queue", "as fast as it is asked", "faster than declared", "slower than declared"],
)
def test_who_makes_requests_wait(tmp_path: Path, declared: str, takes: int, said: str | None) -> None:
    first = diagnose(case_of(tmp_path, declared=declared, takes=takes)).first
    assert (first.name if first is not None else None) == said
