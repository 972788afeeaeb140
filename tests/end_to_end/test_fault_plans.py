"""Each fault plan is green: exactly the checks that it names fail, all others pass."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.bench


def test_every_fault_turns_exactly_its_own_checks_red(place) -> None:
    done = place.pytest("testplans/faults", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "(as expected)" in done.stdout
