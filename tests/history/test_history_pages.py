"""The morning page in its forms: what machines and browsers make of it, and that foreign text stays text."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from written_runs import Conditions, counted, timed, write_run

from rig.history.series import Standing
from rig.nightly.command import morning_of
from rig.nightly.journal import Attempt, Job, Journal, Order
from rig.nightly.morning import Morning
from rig.nightly.page_html import page
from rig.nightly.page_markdown import markdown
from rig.nightly.reports import code_quality, github_annotations, junit

HOSTILE = '<script>alert(1)</script> & "x" ]]> \x07 # [a](javascript:b)\n::error::not mine %0A'
FIRST = datetime(2026, 1, 1, 1, tzinfo=UTC)
CHROMIUM = shutil.which("chromium")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--enable-logging=stderr", "--v=0", "--virtual-time-budget=3000"),
]


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Three nights on two benches; in the last one a check fails, one run ends in an error, one job is left out."""
    for night in range(3):
        for number, bench in enumerate(("lab-1", "lab-2")):
            at = FIRST + timedelta(days=night, minutes=number)
            checks = [timed("answer-time", 1_500_000 if night < 2 else 6_000_000), counted("no-loss", 0)]
            set_id = f"2026010{night + 1}T010000Z-abcdef"
            run = write_run(tmp_path, set_id, at, "zero-copy-latency", checks, Conditions(bench))
    report = run.with_name(f"{run.name}.triage") / "report.html"
    report.parent.mkdir()
    report.write_text("<p>triage</p>")
    error = {"side": "board", "phase": "flash", "what": HOSTILE, "seen": "", "hint": ""}
    at = FIRST + timedelta(days=2, minutes=5)
    write_run(tmp_path, set_id, at, "copy-latency", [counted("no-loss", 0)], Conditions("lab-1", error=error))
    directory = tmp_path / set_id
    journal = Journal(directory)
    journal.begin(Order((), (), 1, 3600.0, 600.0, None, at.timestamp()), [])
    journal.health("lab-2", [HOSTILE])
    journal.leave_out(Job("lab-2", "push-latency", ""), "quarantined until 2026-02-01: relay on order")
    for number, verdict in enumerate(("ERROR", "PASS"), 1):
        journal.attempt_ends(Attempt(Job("lab-2", "soak", "x-1"), number, verdict, f"{verdict}: {HOSTILE}", "board"))
    journal.note(HOSTILE)
    journal.end()
    journal.close()
    return tmp_path


@pytest.fixture
def morning(records: Path) -> tuple[Morning, list[Standing]]:
    return morning_of(records, records / "20260103T010000Z-abcdef")


def test_markdown_names_everything_and_foreign_text_makes_no_markup(morning: tuple[Morning, list[Standing]]) -> None:
    text = markdown(morning[0])
    assert "**1 newly failing, 2 not run**" in text
    assert "`zero-copy-latency::answer-time` on lab-1, lab-2" in text
    assert "`push-latency` on lab-2: quarantined until 2026-02-01" in text
    assert "`soak[x-1]` on lab-2: ERROR, PASS; counts as PASS" in text
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert "](javascript" not in text.replace("\\](", "")


def test_junit_tells_failure_from_error_and_skip(morning: tuple[Morning, list[Standing]]) -> None:
    root = ElementTree.fromstring(junit(*morning))
    suites = {suite.get("name"): suite for suite in root}
    assert suites.keys() == {"lab-1", "lab-2"}
    cases = {(case.get("classname"), case.get("name")): [child.tag for child in case] for case in suites["lab-1"]}
    assert cases["zero-copy-latency", "answer-time"] == ["properties", "failure"]
    assert cases["zero-copy-latency", "no-loss"] == ["properties"]
    assert cases["copy-latency", "no-loss"] == ["properties", "error"]
    assert [(one.get("failures"), one.get("errors")) for one in suites.values()] == [("1", "1"), ("1", "0")]
    left_out = suites["lab-2"].find("testcase[@classname='push-latency']/skipped")
    assert left_out is not None
    error = suites["lab-1"].find("testcase[@classname='copy-latency']/error")
    assert error is not None
    assert "<script>" in str(error.get("message"))


def test_a_finding_keeps_its_fingerprint_while_it_fails(morning: tuple[Morning, list[Standing]]) -> None:
    found = json.loads(code_quality(morning[0]))
    assert [one["location"]["path"] for one in found] == ["testplans/zero-copy-latency.plan.yaml"]
    assert {one["severity"] for one in found} == {"major"}
    later = replace(morning[0], still=morning[0].new, new=())
    assert [one["fingerprint"] for one in json.loads(code_quality(later))] == [one["fingerprint"] for one in found]


def test_annotations_are_one_line_each(morning: tuple[Morning, list[Standing]]) -> None:
    lines = list(github_annotations(morning[0]))
    assert lines[0].startswith("::error title=zero-copy-latency%3A%3Aanswer-time,file=testplans/zero-copy-latency")
    assert len([line for line in lines if line.startswith("::warning")]) == 2
    assert all("\n" not in line for line in lines)
    assert "%0A::error::not mine %250A" in next(line for line in lines if "copy-latency was not run" in line)


def test_links_of_the_page_lead_to_what_is_there(records: Path, morning: tuple[Morning, list[Standing]]) -> None:
    for place in (records / "morning", records / "20260103T010000Z-abcdef"):
        place.mkdir(exist_ok=True)
        text = page(morning[0], records, place)
        links = re.findall(r'href="([^"#]+)"', text.replace('href="data:,"', ""))
        assert len(links) == 7
        assert any(link.endswith("/report.html") for link in links)
        for link in links:
            assert (place / link).exists(), link
    anchors = set(re.findall(r'href="#([^"]+)"', text))
    assert anchors <= set(re.findall(r'id="([^"]+)"', text))


def test_foreign_text_is_text_on_the_page(morning: tuple[Morning, list[Standing]], records: Path) -> None:
    text = page(morning[0], records, records)
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert not re.search(r'(?:src|href)="(?:https?:)?//', text)


@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium to open the page")
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_the_page(
    records: Path, morning: tuple[Morning, list[Standing]], tmp_path: Path, width: int
) -> None:
    """No word on the console, no request, nothing wider than the window: the page measures itself, by a script that
    only this test puts in."""
    measure = (
        "<script>addEventListener('load',()=>{document.title=JSON.stringify({width:document.documentElement.scrollWidth,"
        "inner:innerWidth,sparks:document.querySelectorAll('svg circle').length,"
        "loaded:performance.getEntriesByType('resource').filter(e=>!e.name.startsWith('data:')).length})})</script>"
    )
    frame = tmp_path / "page.html"
    frame.write_text(page(morning[0], records, tmp_path).replace("</body>", f"{measure}</body>"))
    # A window of headless Chromium has a least width of its own; a frame has none.
    outer = tmp_path / "outer.html"
    outer.write_text(
        f'<iframe src="page.html" width="{width}" height="900" onload="setTimeout(()=>{{document.title='
        'frames[0].document.title},200)"></iframe>'
    )
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            *(CHROMIUM, *FLAGS, "--allow-file-access-from-files"),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", outer.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    told = re.search(r"<title>(\{.*?\})</title>", done.stdout)
    assert told, done.stdout[:400]
    found = json.loads(told[1].replace("&quot;", '"'))
    assert found["inner"] == width
    assert found["width"] <= width
    assert found["loaded"] == 0
    assert found["sparks"] >= 12
    assert "CONSOLE" not in done.stderr
