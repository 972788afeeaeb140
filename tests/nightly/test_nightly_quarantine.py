"""The quarantine file: what it covers, when it ends, and what is said about a faulty one."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from rig.errors import PlanError
from rig.nightly.quarantine import covering, load_quarantine

TEXT = """\
quarantine:
  - {plan: push-latency, reason: waits for new antennas, until: '2026-02-01'}
  - {bench: lab-2, reason: in repair, until: '2026-01-15'}
"""


def entries(tmp_path: Path, text: str = TEXT):
    path = tmp_path / "quarantine.yaml"
    path.write_text(text)
    return load_quarantine(path)


def test_an_entry_covers_until_its_day(tmp_path: Path) -> None:
    found = entries(tmp_path)
    assert covering(found, "push-latency", "lab-1", date(2026, 1, 31)) is found[0]
    assert covering(found, "push-latency", "lab-1", date(2026, 2, 1)) is None
    assert covering(found, "copy-latency", "lab-2", date(2026, 1, 14)) is found[1]
    assert covering(found, "copy-latency", "lab-1", date(2026, 1, 1)) is None


def test_no_file_is_no_quarantine_unless_it_was_named(tmp_path: Path) -> None:
    assert load_quarantine(tmp_path / "gone.yaml") == ()
    with pytest.raises(PlanError, match="does not exist"):
        load_quarantine(tmp_path / "gone.yaml", required=True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{reason: why, until: '2026-02-01'}", "neither a plan nor a bench"),
        ("{plan: a, until: '2026-02-01'}", "reason"),
        ("{plan: a, reason: why, until: '2026-02-30'}", "no day of the calendar"),
        ("{plan: a, reason: why, until: '2026-02-01', bensh: x}", "bensh"),
    ],
)
def test_faults_have_a_place(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(PlanError) as caught:
        entries(tmp_path, f"quarantine:\n  - {line}\n")
    assert said in str(caught.value)
    assert "quarantine.yaml:2:" in str(caught.value)
