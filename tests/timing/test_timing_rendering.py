"""Results as text for a terminal."""

from __future__ import annotations

import pytest

from rig.terminal import printable
from rig.timing.rendering import render_check
from rig.timing.verdict import CheckResult, Verdict


def test_what_a_board_says_does_not_drive_the_terminal() -> None:
    check = CheckResult("alive", "alive", Verdict.FAIL, "FAULT \x1b[2J", seen="\x9b31m", hint="look \u202eback")
    text = render_check(check)
    assert all(line.isprintable() for line in text.splitlines())
    assert "FAULT \\x1b[2J" in text
    assert "last seen: \\x9b31m" in text


@pytest.mark.parametrize("line", ["", "p50 1.5 µs → 2 ms [testplans/x.plan.yaml:10]"])
def test_what_prints_is_left_as_it_is(line: str) -> None:
    assert printable(line) == line
