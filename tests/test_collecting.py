"""What a run writes down of what it saw."""

from __future__ import annotations

from rig.board.report import Observation
from rig.collecting import all_observations


def test_a_fault_and_the_banner_that_came_with_it_both_stay() -> None:
    fault, reboot = Observation("fault", "FAULT HardFault", 7), Observation("reboot", "restarted unasked", 7)
    assert [one["kind"] for one in all_observations([], [fault, reboot])] == ["fault", "reboot"]


def test_what_ended_a_run_stands_once_and_in_its_place() -> None:
    dead = {"kind": "no-boot", "detail": "no banner", "t_ns": 5}
    seen = [Observation("fault", "FAULT", 3), Observation("no-boot", "no banner", 5)]
    assert [one["kind"] for one in all_observations([dead], seen)] == ["fault", "no-boot"]
