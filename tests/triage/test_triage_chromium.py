"""The page in a real browser: drawn, quiet, reachable by keyboard, and as wide as the window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import chromium
import pytest
from made_records import make_record
from wire_captures import Fate, Wire, talk

from rig.triage.command import triage

pytestmark = pytest.mark.skipif(
    chromium.installed() is None, reason="chromium is not installed (Debian package `chromium`)"
)

DRAWN = """[...document.querySelectorAll('canvas')].map(c => {
  const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, seen = new Set();
  for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
  return [c.id, seen.size];
})"""


def lossy(wire: Wire) -> None:
    talk(wire, 200, lambda i, at: Fate(lost_in=i % 40 == 7, hold=9_000_000 if i == 100 else 0))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    record = make_record(
        tmp_path_factory.mktemp("set") / "001-made",
        make=lossy,
        log=[
            "rig-fw variant=x",
            "<script>document.title='broken'</script>",
            "<img src=http://10.9.9.9/x onerror=alert(1)>",
        ],
    )
    return triage(record, say=lambda line: None).report


@pytest.fixture(scope="module", params=[(1280, False), (390, True)], ids=["1280 light", "390 dark"])
def page(request: pytest.FixtureRequest, report: Path) -> Iterator[chromium.Page]:
    width, dark = request.param
    with chromium.Page(width, 900, dark) as opened:
        opened.open(report)
        yield opened


def test_the_console_is_empty_and_nothing_else_is_requested(page: chromium.Page, report: Path) -> None:
    assert page.console == []
    assert page.requests == [report.resolve().as_uri()]
    assert page.value("document.title") == "FAIL made"


def test_every_plot_is_drawn(page: chromium.Page) -> None:
    drawn = dict(page.value(DRAWN))
    assert set(drawn) == {"latency-0", "ecdf-0", "gaps", "sequence", "lane-plot"}
    assert all(colours > 3 for colours in drawn.values()), drawn


def test_axes_have_names_and_the_distribution_shows_limit_and_quantile(page: chromium.Page) -> None:
    models = page.value(
        "rigPlots.map(p => [p.canvas.id, p.model.xLabel, p.model.yLabel || '', (p.model.marks || []).map(m => m.text)])"
    )
    told = {identity: (across, up, marks) for identity, across, up, marks in models}
    assert told["latency-0"] == ("time, s", "response time, ms", ["p50 <= 4 ms"])
    assert told["ecdf-0"] == ("response time, ms", "share of samples, %", ["p50 <= 4 ms", "p50"])
    assert all(across and (up or identity == "lane-plot") for identity, (across, up, _) in told.items())


def test_a_point_beyond_a_limit_that_holds_is_not_red(page: chromium.Page) -> None:
    # One answer took 10 ms; the limit on the median holds, so that only what was lost counts as bad.
    assert page.value("rigPlots[0].model.series[0].y.filter(y => isFinite(y) && y > 4).length") == 1
    red = "(s => [...s.x.keys()].filter(i => isFinite(s.y[i]) && s.bad(i)).length)(rigPlots[0].model.series[0])"
    assert page.value(red) == 0


def test_requests_and_answers_differ_in_colour_and_size(page: chromium.Page) -> None:
    series = "rigPlots.find(p => p.canvas.id === 'sequence').model.series"
    requests, answers = page.value(f"{series}.map(s => [s.colour, s.size || 3])")
    assert requests[0] != answers[0]
    assert requests[1] > answers[1]


def test_nothing_is_wider_than_the_window(page: chromium.Page) -> None:
    assert page.value("document.documentElement.scrollWidth <= innerWidth")


def test_links_lead_to_parts_of_the_page_and_to_files_beside_it(page: chromium.Page, report: Path) -> None:
    links = page.value("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    assert len(links) > 7
    for link in links:
        if link.startswith("#"):
            assert page.value(f"!!document.getElementById({link[1:]!r})"), link
        else:
            assert (report.parent / link).is_file(), link


def test_a_frame_button_finds_its_point_and_shows_the_filter(page: chromium.Page) -> None:
    page.value("document.querySelector('#checks [data-frame]').click()")
    frame = page.value("document.querySelector('#checks [data-frame]').dataset.frame")
    told = page.value("document.getElementById('latency-0-out').textContent")
    assert f"frame {frame}," in told
    assert "lost" in told
    assert f"frame.number == {frame}" in told


def test_dragging_zooms_and_the_keyboard_resets(page: chromium.Page) -> None:
    page.value("document.getElementById('latency-0').scrollIntoView({block: 'center'})")
    page.value("rigPlots[0].reset()")
    x, y, width, height = page.value(
        "(() => { const b = document.getElementById('latency-0').getBoundingClientRect();"
        "return [b.x, b.y, b.width, b.height]; })()"
    )
    before = page.value("rigPlots[0].view.x1 - rigPlots[0].view.x0")
    page.drag(x + width * 0.4, x + width * 0.6, y + height / 2)
    assert page.value("rigPlots[0].view.x1 - rigPlots[0].view.x0") < before / 3
    # Time is one axis: the other plots over time follow.
    assert page.value("rigPlots.filter(p => p.linked).every(p => p.view.x0 === rigPlots[0].view.x0)")
    page.value("document.getElementById('latency-0').focus()")
    page.key("0")
    assert page.value("rigPlots[0].view.x1 - rigPlots[0].view.x0") == before


def test_a_click_on_a_point_names_frame_time_and_value(page: chromium.Page) -> None:
    page.value("document.getElementById('latency-0').scrollIntoView({block: 'center'}); rigPlots[0].reset()")
    # The one answer that was held for 9 ms is the highest point.
    x, y = page.value(
        "(() => { const p = rigPlots[0], s = p.model.series[0]; let k = 0;"
        "for (let i = 0; i < s.y.length; i++) if (isFinite(s.y[i]) && s.y[i] > s.y[k]) k = i;"
        "const b = p.canvas.getBoundingClientRect(); return [b.x + p.X(s.x[k]), b.y + p.Y(s.y[k])]; })()"
    )
    page.click(x + 2, y + 2)
    told = page.value("document.getElementById('latency-0-out').textContent")
    assert "frame 2" in told
    assert "10." in told
    assert " ms" in told


def test_the_keyboard_walks_from_one_bad_point_to_the_next(page: chromium.Page) -> None:
    page.value("rigPlots[0].reset(); rigPlots[0].cursor = -1; document.getElementById('latency-0').focus()")
    told = []
    for _ in range(3):
        page.key("b")
        told.append(page.value("document.getElementById('latency-0-out').textContent"))
    assert len(set(told)) == 3
    assert all("lost" in one or "10." in one for one in told)


def test_the_theme_button_changes_the_colours(page: chromium.Page) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    before = page.value(colour)
    page.value("document.getElementById('theme').click()")
    assert page.value(colour) != before
    page.value("document.getElementById('theme').click()")
    assert page.value(colour) == before
