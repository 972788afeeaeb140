"""A plan whose points run several times and are compared, on real runs of the emulated bench; then judged offline."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from rig.record import load_run, runs_of

pytestmark = pytest.mark.bench

COMPARING = """
matrix: {npu.first_token: [1 ms, 9 ms]}
repeat: 2
comparisons:
  slower: {of: answer-time, a: first_token-1ms, b: first_token-9ms, confidence: 75 %, difference: {min: 2 ms}}
  the-same: {of: answer-time, a: first_token-1ms, b: first_token-9ms, confidence: 75 %, difference: {max: 2 ms}}
  shown: {of: answer-time, statistic: mean, a: first_token-1ms, b: first_token-9ms}
expect: {fail: [the-same]}
"""


def test_a_comparison_is_judged_live_as_it_is_offline(place, write_plan, tmp_path: Path) -> None:
    plan, xml = write_plan("two-speeds"), tmp_path / "junit.xml"
    plan.write_text(plan.read_text() + COMPARING)
    done = place.pytest(plan, f"--junitxml={xml}")
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert "8 passed, 1 skipped" in text

    [run_set] = place.records.iterdir()
    points = [load_run(run).point for run in runs_of(run_set)]
    assert points == ["first_token-1ms", "first_token-9ms", "first_token-9ms", "first_token-1ms"]
    verdicts = {
        str(case.get("name")): one.get("value")
        for case in ET.parse(xml).getroot().iter("testcase")
        for one in case.iter("property")
        if one.get("name") == "verdict"
    }
    compared = {name: verdicts[name] for name in ("slower", "the-same", "shown")}
    assert compared == {"slower": "PASS", "the-same": "FAIL", "shown": "SKIP"}, text
    assert "PASS          two-speeds::slower" in text

    offline = place.rig("judge", run_set, "--json")
    assert offline.returncode == 0, offline.stdout + offline.stderr
    results = [*((run / "verdicts.json") for run in runs_of(run_set)), run_set / "comparisons-two-speeds.emulated.json"]
    assert offline.stdout == "".join(path.read_text() for path in results)
