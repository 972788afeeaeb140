"""What pytest and JUnit say for each verdict, on real runs of the emulated bench."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.bench


def cases(xml: Path) -> dict[tuple[str, str], ET.Element]:
    """(plan, check) → its testcase."""
    return {
        (case.get("classname", "").split(".")[-1], case.get("name", "")): case
        for case in ET.parse(xml).getroot().iter("testcase")
    }


def verdict_of(case: ET.Element) -> str | None:
    return next((p.get("value") for p in case.iter("property") if p.get("name") == "verdict"), None)


def test_junit_tells_failure_from_error_and_names_the_verdict(place, write_plan: Callable[..., Path], tmp_path) -> None:
    plans = [
        write_plan("holds"),
        write_plan("broken", limits="{p50: {max: 300 us}}"),
        write_plan("too-fine", limits="{each: {min: 100 us}}"),
        write_plan("unbuilt", variant="nobody_built_this"),
        write_plan("elsewhere", requires="[wind-tunnel]"),
    ]
    xml = tmp_path / "junit.xml"
    done = place.pytest(*plans, f"--junitxml={xml}", "-q")
    text = done.stdout + done.stderr
    found = cases(xml)
    assert len(found) == 15, text

    def kind(plan: str, check: str) -> tuple[str | None, str]:
        case = found[plan, check]
        return verdict_of(case), next((child.tag for child in case if child.tag != "properties"), "passed")

    assert kind("holds", "answer-time") == ("PASS", "passed"), text
    assert kind("holds", "alive") == ("PASS", "passed")
    assert kind("broken", "answer-time") == ("FAIL", "failure")
    assert kind("broken", "no-loss") == ("PASS", "passed")
    assert kind("too-fine", "answer-time") == ("INCONCLUSIVE", "error")
    assert kind("unbuilt", "answer-time") == ("ERROR", "error")
    assert kind("elsewhere", "answer-time") == ("SKIP", "skipped")
    failure = found["broken", "answer-time"].find("failure")
    assert failure is not None
    assert failure.text is not None
    assert failure.text.startswith("FAIL ")
    assert "p50 <= 300 us" in failure.text
    assert "broken.plan.yaml:" in failure.text
    assert "frame.number in {" in failure.text
    error = found["too-fine", "answer-time"].find("error")
    assert error is not None
    assert error.text is not None
    assert error.text.startswith("INCONCLUSIVE ")
    assert "Traceback" not in text
    assert "wind-tunnel" in text
    assert done.returncode == 1
