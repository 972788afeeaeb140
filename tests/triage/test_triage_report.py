"""The page as text: complete without script, and safe whatever a log, a plan or a capture holds."""

from __future__ import annotations

import base64
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from made_records import make_record, tell_host
from wire_captures import Fate, Wire, talk
from wire_signatures import make

from rig.plan.load import load_plan_bytes
from rig.triage.case import case_of_capture, case_of_record
from rig.triage.command import triage
from rig.triage.diagnosis import diagnose
from rig.triage.exchange_model import LOST_NS
from rig.triage.report import render_report
from rig.triage.series import MOST_POINTS, Series, _thinned, drawn

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&</td>"


class Elements(HTMLParser):
    """Counts elements, and collects attributes and the text outside of script and style."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text = ""
        self._quiet = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        self._quiet = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._quiet = False

    def handle_data(self, data: str) -> None:
        if not self._quiet:
            self.text += data


def page_of(record: Path) -> str:
    case = case_of_record(record)
    return render_report(case, diagnose(case))


def lossy(wire: Wire) -> None:
    talk(wire, 200, lambda i, at: Fate(lost_in=i % 40 == 7))


def test_hostile_text_in_log_plan_and_banner_stays_text(tmp_path: Path) -> None:
    record = make_record(
        tmp_path / "001-made",
        description=HOSTILE.replace("\\", ""),
        make=lossy,
        log=[f"rig-fw variant={HOSTILE}", f"FAULT {HOSTILE}", "\x1b[2J\x07 bell"],
        observations=[{"kind": "fault", "detail": HOSTILE, "t_ns": 1}],
        variant=HOSTILE,
        build=HOSTILE,
    )
    page = page_of(record)
    elements = Elements(page)
    assert elements.tags.count("script") == 2
    assert "img" not in elements.tags
    assert not [one for one in elements.attributes if one[1].startswith("on")]
    assert HOSTILE in elements.text
    assert "\x1b" not in page
    assert "\\x1b[2J" in elements.text


def test_the_embedded_data_cannot_end_its_element(tmp_path: Path) -> None:
    page = page_of(make_record(tmp_path / "001-made", log=[f"FAULT {HOSTILE}</script><b>"]))
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    events = json.loads(data[1])["events"]
    assert any(HOSTILE in event[3] for event in events)


def test_nothing_is_fetched_and_only_our_own_script_may_run(tmp_path: Path) -> None:
    page = page_of(make_record(tmp_path / "001-made", make=lossy))
    elements = Elements(page)
    fetched = [value for _, name, value in elements.attributes if name in ("src", "srcset", "poster", "data")]
    assert fetched == []
    assert [
        value for tag, name, value in elements.attributes if name == "href" and not str(value).startswith("#")
    ] == []
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    policy = next(
        value for tag, name, value in elements.attributes if name == "content" and "default-src" in str(value)
    )
    assert "default-src 'none'" in str(policy)
    assert "unsafe" not in str(policy)
    assert not [one for one in elements.attributes if one[1] == "style"]


def test_the_page_says_verdict_cause_frame_and_next_step_without_script(tmp_path: Path) -> None:
    text = " ".join(Elements(page_of(make_record(tmp_path / "001-made", make=lossy))).text.split())
    assert "FAIL" in text
    assert "no-loss: 5 of 200 requests unanswered, 0 allowed" in text
    assert "Frames to the board are lost: 5 of 200" in text
    assert "Next: compare mac_rx_frames" in text
    assert "rig judge" in text
    assert "frame.number in {23," in text


def test_checks_come_before_plots_and_a_single_limit_says_its_reason_once(tmp_path: Path) -> None:
    page = page_of(make_record(tmp_path / "001-made", make=lossy))
    assert page.index('id="checks"') < page.index('id="plots"')
    assert Elements(page).text.count("5 of 200 requests sent") == 1


def test_what_a_first_look_does_not_need_is_folded(tmp_path: Path) -> None:
    record = make_record(tmp_path / "001-made", make=lossy)
    triage(record, say=lambda line: None)
    page = (tmp_path / "001-made.triage" / "report.html").read_text()
    look = page[page.index("<h2>Look at it</h2>") : page.index('id="checks"')]
    shown, folded = look.split("<details", 1)
    assert "Begin with frame" in shown
    assert "wireshark -C rig" in shown
    for text in ("SHA-256", "rig judge", "frame-23.pcapng"):
        assert text not in shown
        assert text in folded


def test_causes_are_named_in_words_with_their_fit(tmp_path: Path) -> None:
    fault = {"kind": "fault", "detail": "FAULT HardFault pc=0x60000100", "t_ns": 1}
    record = make_record(tmp_path / "001-made", make=lossy, observations=[fault])
    text = " ".join(Elements(page_of(record)).text.split())
    assert "Where: the product: the board's firmware." in text
    assert "Fits 97% (board-crash). Same picture on the wire: The board was reset or lost power (board-reboot)." in text
    assert "Frames to the board are lost: 5 of 200 (fits " in text


def test_a_limit_that_holds_paints_nothing_red(tmp_path: Path) -> None:
    slow = make_record(tmp_path / "001", make=lambda w: talk(w, 200, lambda i, at: Fate(hold=9_000_000 * (i % 9 == 0))))
    (series,) = drawn(case_of_record(slow)).latency
    assert [(line.rule, line.quantile, line.holds) for line in series.limits] == [("p50 <= 4 ms", 50.0, True)]
    assert not series.has_bad
    (tight,) = drawn(case_of_record(make_record(tmp_path / "002", limit="1 ms"))).latency
    assert tight.has_bad
    (lost,) = drawn(case_of_record(make_record(tmp_path / "003", make=lossy))).latency
    assert lost.has_bad


def test_a_gauge_of_few_values_is_a_table(tmp_path: Path) -> None:
    record = make_record(tmp_path / "001-made")
    for i in range(6):
        tell_host(record, i * 10**9, temperature_c={"cpu": 40 + i, **({"soc": 50 + i} if i < 2 else {})})
    case = case_of_record(record)
    found = drawn(case)
    assert [gauge.name for gauge in found.telemetry] == ["Jetson, temperature_c cpu"]
    assert [gauge.name for gauge in found.few] == ["Jetson, temperature_c soc"]
    page = page_of(record)
    assert "Told too seldom to be drawn" in page
    assert "50 at 0." in page


def test_the_same_record_gives_the_same_page(tmp_path: Path) -> None:
    record = make_record(tmp_path / "001-made", make=lossy)
    assert page_of(record) == page_of(record)


def test_values_and_frames_of_the_plots_are_exact(tmp_path: Path) -> None:
    case = case_of_record(make_record(tmp_path / "001-made", make=lossy))
    (series,) = drawn(case).latency
    packed = series.packed()
    value = np.frombuffer(base64.b64decode(packed["value"]), "<f8")
    frame = np.frombuffer(base64.b64decode(packed["frame"]), "<u4")
    exchanges = case.exchanges
    assert exchanges is not None
    assert np.count_nonzero(np.isinf(value)) == 5
    answered = exchanges.answered
    assert value[~np.isinf(value)].tolist() == exchanges.response_ns[answered].tolist()
    assert frame[answered].tolist() == exchanges.answers.number[exchanges.final[answered]].tolist()
    assert frame[exchanges.lost].tolist() == exchanges.asks.number[exchanges.lost].tolist()


@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark")
def test_checks_by_display_filter_and_field_are_drawn_like_the_others(tmp_path: Path) -> None:
    record = make_record(tmp_path / "001-made")
    text = (record / "plan.yaml").read_text()
    (plain,) = drawn(case_of_record(record)).latency
    for flow in ("requests: {from: jetson,", "answers: {from: board,"):
        text = text.replace(flow, f"{flow} filter: udp.length > 20, key: {{field: udp.stream}},")
    text = text.replace("match: request_id, to: last", "match: key")
    (series,) = drawn(case_of_record(record, load_plan_bytes(text.encode(), Path("made.plan.yaml")))).latency
    assert (series.name, series.limits) == ("answer-time", plain.limits)
    assert series.value.tolist() == plain.value.tolist()
    assert series.frame.tolist() == plain.frame.tolist()


def test_a_bare_capture_has_plots_and_causes_and_no_verdict(tmp_path: Path) -> None:
    case = case_of_capture(make("V12 uart_log_block", 1, tmp_path / "made.pcapng"))
    text = Elements(render_report(case, diagnose(case))).text
    assert "CAPTURE" in text
    assert "115200 baud" in text
    assert "a capture without a plan: diagnosed, not judged" in text


def test_an_empty_capture_makes_a_page(tmp_path: Path) -> None:
    case = case_of_capture(Wire(1).write(tmp_path / "made.pcapng"))
    assert "nothing wrong was found" in Elements(render_report(case, diagnose(case))).text


def test_a_long_series_keeps_extremes_and_lost_samples() -> None:
    rng = np.random.default_rng(1)
    count = 6 * MOST_POINTS
    value = rng.integers(1_000_000, 2_000_000, count)
    value[[5, 70_000, count - 9]] = [9_000_000, 100, 7_000_000]
    value[[11, 400_000]] = np.iinfo(np.int64).max
    whole = Series("x", "x", np.arange(count), value, np.arange(1, count + 1).astype(np.uint32))
    thin = _thinned(whole)
    assert len(thin.value) <= MOST_POINTS
    assert thin.thinned == count - len(thin.value)
    assert {6, 70_001, count - 8, 12, 400_001} <= set(thin.frame.tolist())


@pytest.mark.parametrize("values", [1, 3])
def test_extremes_and_lost_samples_stay_among_many_equal_values(values: int) -> None:
    """Stamps of a coarse clock: nearly every point is as small, or as large, as any other."""
    rng = np.random.default_rng(1)
    count = 1_000_000
    value = rng.integers(1, 1 + values, count) * 1_000_000
    slow, fast, lost = np.split(rng.choice(count, 300, replace=False), 3)
    value[slow], value[fast], value[lost] = 500_000_000, -3_000_000, LOST_NS
    frame = np.arange(1, count + 1).astype(np.uint32)
    thin = _thinned(Series("x", "x", np.arange(count), value, frame))
    assert len(thin.value) <= MOST_POINTS
    kept = {what: set(thin.frame[thin.value == what].tolist()) for what in (500_000_000, -3_000_000, LOST_NS)}
    # Two spikes may share a slice of twenty points, which then keeps the earlier one.
    assert kept[LOST_NS] == set((lost + 1).tolist())
    assert min(len(kept[500_000_000]), len(kept[-3_000_000])) >= 98
    assert thin.time_ns.tolist() == sorted(thin.time_ns.tolist())


def test_of_very_many_lost_samples_some_of_every_stretch_stay() -> None:
    count = 1_000_000
    value = np.full(count, LOST_NS)
    value[::100] = 1_000_000
    thin = _thinned(Series("x", "x", np.arange(count), value, np.arange(count).astype(np.uint32)))
    lost = thin.time_ns[thin.value == LOST_NS]
    assert len(lost) == MOST_POINTS // 3
    assert np.diff(lost).max() < 30
    assert (lost[0], lost[-1]) == (1, count - 1)
    nothing = _thinned(Series("x", "x", np.arange(count), np.full(count, LOST_NS), np.arange(count).astype(np.uint32)))
    assert len(nothing.value) == MOST_POINTS // 3
