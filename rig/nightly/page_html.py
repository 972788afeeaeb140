"""The morning page as one HTML file: no script, nothing loaded, dark and light, readable on a phone.

Whatever comes from boards, logs and bench files is escaped: it is hostile until shown otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from rig.history.series import Standing
from rig.history.table import level, when
from rig.nightly.morning import Item, Morning, by_reason
from rig.nightly.sparkline import sparkline

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --paper: #ffffff; --card: #f5f7fa; --edge: #d5dbe3;
  --red: #b3261e; --green: #1b7f3b; --amber: #8a5a00; --blue: #1f5fa8; --violet: #7a3fa0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --soft: #9aa6b5; --paper: #12161c; --card: #1b212a;
  --edge: #323b48; --red: #ff8a80; --green: #6fcf8d; --amber: #f0b849; --blue: #86b9f5; --violet: #d0a3ee; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1.2rem 1rem 3rem; background: var(--paper); color: var(--ink);
  font: 16px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.45rem; margin: 0; } .sub { color: var(--soft); margin: .2rem 0 1rem; }
h2 { font-size: 1.05rem; margin: 1.8rem 0 .5rem; display: flex; gap: .5rem; align-items: baseline; }
h2 .n { color: var(--soft); font-weight: normal; }
a { color: var(--blue); }
nav { display: flex; flex-wrap: wrap; gap: .5rem; margin: 0 0 1rem; }
nav a { text-decoration: none; color: var(--ink); background: var(--card); border: 1px solid var(--edge);
  border-radius: .5rem; padding: .35rem .7rem; } nav b { font-size: 1.15rem; margin-right: .3rem; }
nav .zero { opacity: .55; }
.item { background: var(--card); border: 1px solid var(--edge); border-left: .3rem solid var(--tone, var(--edge));
  border-radius: .4rem; padding: .6rem .8rem; margin: .5rem 0; overflow-wrap: anywhere; }
.item h3 { font: 600 .95rem/1.4 ui-monospace, monospace; margin: 0 0 .2rem; } .item p { margin: .15rem 0; }
.where { color: var(--soft); }
.benches { display: grid; grid-template-columns: max-content max-content 1fr; gap: .2rem .9rem; align-items: center;
  margin-top: .4rem; }
.benches .bench { font-weight: 600; } .benches .more { color: var(--soft); font-size: .9rem; }
.new { --tone: var(--red); } .still { --tone: var(--red); } .fixed { --tone: var(--green); }
.flaky { --tone: var(--violet); } .drifting { --tone: var(--amber); } .not-run { --tone: var(--blue); }
.dead { --tone: var(--red); font-size: 1.1rem; }
.spark { display: block; max-width: 100%; } .spark .line { fill: none; stroke: var(--soft); stroke-width: 1.2; }
.spark .limit { stroke: var(--red); stroke-width: 1; stroke-dasharray: 3 3; } .spark .green { fill: var(--green); }
.spark .red { fill: var(--red); } .spark .mixed { fill: var(--violet); } .spark .open { fill: var(--blue); }
.spark .skip { fill: var(--soft); }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
td, th { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--edge);
  overflow-wrap: anywhere; vertical-align: middle; } th { color: var(--soft); font-weight: 600; }
summary { cursor: pointer; color: var(--soft); } ul { margin: .3rem 0; padding-left: 1.1rem; }
@media (max-width: 40rem) { body { padding: .8rem .7rem 2rem; }
  .benches { grid-template-columns: 1fr; gap: .1rem; } .benches .bench { margin-top: .35rem; }
  .stack thead { display: none; } .stack tr { display: block; padding: .35rem 0;
  border-bottom: 1px solid var(--edge); } .stack td { display: block; border: 0; padding: .05rem 0; } }
@media print { nav { display: none; } details > * { display: block; } }
"""

_SECTIONS = (
    ("new", "New failures"),
    ("still", "Still failing"),
    ("fixed", "Fixed"),
    ("flaky", "Flaky"),
    ("drifting", "Drifting"),
)


def page(morning: Morning, records: Path, place: Path) -> str:
    """The page as it is to lie in folder `place`; links lead to the records from there."""
    return "\n".join(_lines(morning, records, place)) + "\n"


def _lines(morning: Morning, records: Path, place: Path) -> Iterator[str]:
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f'<link rel="icon" href="data:,">\n<title>{escape(morning.title)}: {escape(morning.headline)}</title>'
    yield f"<style>{_STYLE}</style>\n</head>\n<body>"
    yield f"<h1>{escape(morning.title)}</h1>"
    yield f'<p class="sub">{escape(morning.headline)}{_times(morning)}</p>'
    if morning.dead:
        yield '<div class="item dead"><p>No run was made in this night, so nothing is known about it. Is the rig PC '
        yield "up, and did the timer fire? <code>systemctl list-timers</code>, "
        yield "<code>journalctl -u rig-nightly</code></p></div>"
    counts = [(name, title, getattr(morning, name)) for name, title in _SECTIONS]
    yield "<nav>"
    for name, title, items in [*counts, ("not-run", "Not run", morning.not_run)]:
        zero = "" if items else ' class="zero"'
        yield f'<a href="#{name}"{zero}><b>{len(items)}</b>{title.lower()}</a>'
    yield f'<a href="#steady"><b>{morning.green}</b>green</a></nav>'
    for name, title, items in counts:
        yield f'<section id="{name}">'
        if items:
            yield f'<h2>{title} <span class="n">{len(items)}</span></h2>'
            for item in items:
                yield from _item(name, item, records, place)
        yield "</section>"
    yield from _not_run(morning, records, place)
    yield from _again(morning)
    yield from _benches(morning)
    yield from _steady(morning.steady, records, place)
    yield "</body>\n</html>"


def _times(morning: Morning) -> str:
    if not morning.set_id:
        return ""
    end = f", ended {morning.ended[:16].replace('T', ' ')}" if morning.ended else ""
    begun = f"; begun {morning.begun}{end} UTC" if morning.begun else ""
    return escape(f"{begun}; set {morning.set_id}")


def _item(kind: str, item: Item, records: Path, place: Path) -> Iterator[str]:
    yield f'<article class="item {kind}"><h3>{escape(item.name)}</h3><p>{escape(item.sentence)}</p>'
    if item.where:
        yield f'<p class="where">{escape(item.where)}</p>'
    yield '<div class="benches">'
    for one in item.standings:
        label = f"{item.name} on {one.key.bench}, the last {len(one.settled)} nights"
        yield f'<span class="bench">{escape(one.key.bench)}</span>{sparkline(one.settled, label)}'
        reason = f"{one.now.result.reason}; " if one.now.state == "red" else f"{level(one.now)}; "
        yield f'<span class="more">{escape(reason)} {_links(one, records, place)}</span>'
    yield "</div></article>"


def _links(one: Standing, records: Path, place: Path) -> str:
    """To the records of tonight, and to that of the first failure and of the last pass."""
    found = [("record", attempt.folder) for attempt in one.now.attempts]
    if one.since is not None and one.since is not one.now:
        found.append(("first failure", one.since.result.folder))
    if one.last_good is not None:
        found.append(("last pass", one.last_good.result.folder))
    return " · ".join(_link(name, folder, records, place) for name, folder in found)


def _link(name: str, folder: str, records: Path, place: Path) -> str:
    """To a run's triage report where there is one, else to its folder."""
    run = records / folder
    report = run.with_name(f"{run.name}.triage") / "report.html"
    target = report if report.is_file() else run
    address = quote(os.path.relpath(target, place)) + ("/" if target.is_dir() else "")
    shown = "triage report" if target == report and name == "record" else name
    return f'<a href="{escape(address, quote=True)}">{escape(shown)}</a>'


def _not_run(morning: Morning, records: Path, place: Path) -> Iterator[str]:
    yield '<section id="not-run">'
    if morning.not_run:
        yield f'<h2>Not run, and why <span class="n">{len(morning.not_run)}</span></h2>'
    for one, titles in by_reason(morning.not_run):
        checks = f" ({', '.join(one.checks)})" if one.checks else ""
        links = " · ".join(_link("record", folder, records, place) for folder in one.records)
        yield f'<article class="item not-run"><h3>{escape(", ".join(titles) + checks)}</h3>'
        yield f"<p><b>{escape(one.bench)}</b>: {escape(one.reason)} {links}</p></article>"
    yield "</section>"


def _again(morning: Morning) -> Iterator[str]:
    if not morning.again:
        return
    yield f'<h2>Run more than once <span class="n">{len(morning.again)}</span></h2>'
    yield '<table class="stack"><thead><tr><th>run</th><th>bench</th><th>attempts</th><th></th></tr></thead><tbody>'
    for one in morning.again:
        said = "".join(f"<li>{escape(sentence)}</li>" for sentence in one.sentences)
        tries = f"<details><summary>{escape(', '.join(one.verdicts))}</summary><ul>{said}</ul></details>"
        row = (escape(one.title), escape(one.bench), tries, f"counts as {escape(one.settled)}")
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
    yield "</tbody></table>"


def _benches(morning: Morning) -> Iterator[str]:
    names = sorted({*morning.health, *morning.firmware})
    if names:
        yield "<h2>Benches</h2><table><thead><tr><th>bench</th><th>health</th><th>firmware builds</th></tr></thead>"
        yield "<tbody>"
        for name in names:
            faults = morning.health.get(name)
            health = "not examined" if faults is None else "; ".join(faults) or "in order"
            builds = ", ".join(morning.firmware.get(name, ())) or "-"
            yield f"<tr><td>{escape(name)}</td><td>{escape(health)}</td><td><code>{escape(builds)}</code></td></tr>"
        yield "</tbody></table>"
    if morning.notes:
        yield "<h2>Notes</h2><ul>" + "".join(f"<li>{escape(note)}</li>" for note in morning.notes) + "</ul>"


def _steady(steady: Sequence[Standing], records: Path, place: Path) -> Iterator[str]:
    yield '<section id="steady">'
    if steady:
        yield f'<h2>Green and steady <span class="n">{len(steady)}</span></h2><details><summary>show them</summary>'
        yield '<table class="stack"><thead><tr><th>check</th><th>bench</th><th>last nights</th><th>tonight</th></tr>'
        yield "</thead><tbody>"
        for one in steady:
            label = f"{one.key.name} on {one.key.bench}"
            links = _link(when(one.now)[11:], one.now.result.folder, records, place)
            cells = (escape(one.key.name), escape(one.key.bench), sparkline(one.settled, label))
            yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}<td>{escape(level(one.now))} {links}</td></tr>"
        yield "</tbody></table></details>"
    yield "</section>"
