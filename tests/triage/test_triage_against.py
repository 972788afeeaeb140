"""What moved between two runs, and what chance may have done."""

from __future__ import annotations

from pathlib import Path

import pytest
from wire_captures import Fate, Wire, talk

from rig.triage.against import Comparison, compare
from rig.triage.case import Case, case_of_capture


def losing(folder: Path, name: str, lost: int, count: int) -> Case:
    wire = Wire(1)
    talk(wire, count, lambda i, at: Fate(lost_out=10 <= i < 10 + lost))
    return case_of_capture(wire.write(folder / f"{name}.pcapng"))


def moved(found: Comparison, figure: str) -> list[bool]:
    return [shift.moved for shift in found.shifts if (shift.check, shift.figure) == ("response time", figure)]


@pytest.mark.parametrize(("good", "bad", "count"), [(1, 2, 100), (2, 1, 100), (3, 6, 500)])
def test_a_packet_or_two_more_that_were_lost_may_be_chance(tmp_path: Path, good: int, bad: int, count: int) -> None:
    found = compare(losing(tmp_path, "bad", bad, count), losing(tmp_path, "good", good, count))
    assert moved(found, "p99") == [False]
    assert found.first == ""
    assert found.sentence == "no check moved by more than chance and e explain"


def test_a_quantile_that_is_lost_for_sure_moved(tmp_path: Path) -> None:
    few, many = losing(tmp_path, "few", 0, 1000), losing(tmp_path, "many", 40, 1000)
    found = compare(many, few)
    assert moved(found, "p99") == [True]
    assert found.sentence == "response time moved first: its p99 is lost (for sure)"
    again = compare(few, many)
    assert moved(again, "p99") == [True]
    assert again.sentence == "response time moved first: its p99 is found again (for sure)"
    assert moved(found, "p50") == moved(again, "p50") == [False]
