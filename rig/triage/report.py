"""report.html: one file that needs nothing else, not even a network. What came from outside is escaped.

The text is complete without script; script only draws the plots. A content security policy admits exactly the script
and the style that are in the file, so that nothing a log or a capture smuggled in could run or call home.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rig.triage import sections
from rig.triage.case import Case
from rig.triage.diagnosis import BELIEVED, Cause, Clue, Diagnosis, pictures
from rig.triage.facts import reproduce_lines
from rig.triage.markup import command_line, escape, frame_buttons, meter
from rig.triage.series import Drawn, drawn
from rig.triage.summary import verdict_line
from rig.triage.timeline import LANES, Event, timeline

if TYPE_CHECKING:
    from rig.triage.against import Comparison
    from rig.triage.annotate import Annotated

_FRAMES = 6
_PARTS = (
    ("cause", "cause"),
    ("against", "against a good run"),
    ("plots", "plots"),
    ("checks", "checks"),
    ("stages", "where the time went"),
    ("time-line", "time line"),
    ("findings", "findings"),
    ("facts", "versions"),
)


def render_report(
    case: Case,
    diagnosis: Diagnosis,
    *,
    annotated: Annotated | None = None,
    command: str = "",
    comparison: Comparison | None = None,
) -> str:
    """The whole page. command: the shell line that opens the annotated capture. Deterministic for the same input."""
    pictures_drawn, events = drawn(case), timeline(case)
    verdict, reason = verdict_line(case)
    name = case.path.name
    if case.result is not None:
        name = case.result.plan + (f"[{case.result.point}]" if case.result.point else "")
    body = "\n".join(
        part
        for part in (
            _cards(case, diagnosis, annotated, command),
            sections.against(comparison) if comparison is not None else "",
            sections.plots(pictures_drawn),
            sections.checks(case),
            sections.stages(pictures_drawn.stages),
            sections.time_line(events),
            sections.findings(case, diagnosis),
            sections.versions(case),
        )
        if part
    )
    body = f"{_header(verdict, name, reason, case, body)}\n{body}"
    return _page(f"{verdict or 'capture'} {name}", body, _data(pictures_drawn, events))


def _page(title: str, body: str, data: dict[str, Any]) -> str:
    files = resources.files("rig.triage") / "page"
    style, script = (files / "style.css").read_text("utf-8"), (files / "plots.js").read_text("utf-8")
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:"
    # Inside a script element only `<` could end it.
    embedded = json.dumps(data, separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        f'<script type="application/json" id="data">{embedded}</script>\n<script>{script}</script>\n</body>\n</html>\n'
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(pictures_drawn: Drawn, events: Sequence[Event]) -> dict[str, Any]:
    return {
        "latency": [{"id": index, **series.packed()} for index, series in enumerate(pictures_drawn.latency)],
        "sequence": [series.packed() for series in pictures_drawn.sequence],
        "gauges": [[gauge.name, gauge.time_s, gauge.value] for gauge in pictures_drawn.telemetry],
        "lanes": LANES,
        "events": [
            [event.t_ns / 1e9, LANES.index(event.lane), event.level, event.text, event.frame] for event in events
        ],
    }


def _header(verdict: str, name: str, reason: str, case: Case, below: str) -> str:
    description = case.point.plan.description if case.point is not None else ""
    where = (
        f"{case.info.run_id} on bench {case.info.bench.get('bench')}" if case.info is not None else str(case.capture)
    )
    links = "".join(f'<a href="#{part}">{text}</a>' for part, text in _PARTS if f'id="{part}"' in below)
    nav = f'<nav class="noprint" aria-label="page">{links}</nav>'
    return (
        f'<header><span class="chip {escape(verdict or "CAPTURE")}">{escape(verdict or "CAPTURE")}</span>'
        f'<div class="grow"><h1>{escape(name)}</h1><p class="soft small">{escape(where)}</p></div>'
        '<button id="theme" type="button" title="dark or light">theme</button></header>'
        f'<p class="lead">{escape(reason)}</p>'
        + (f'<p class="soft">{escape(description)}</p>' if description else "")
        + nav
    )


def _cards(case: Case, diagnosis: Diagnosis, annotated: Annotated | None, command: str) -> str:
    first = diagnosis.first
    parts = ['<div class="two" id="cause"><section><h2>Suspected cause</h2>']
    parts.append(f'<p class="lead">{escape(diagnosis.sentence)}</p>')
    if first is not None:
        parts += _cause_body(first)
    elif diagnosis.causes:
        parts.append('<p class="soft">The closest that was found is listed below.</p>')
    else:
        parts.append(f'<p class="soft">{diagnosis.examined} causes were examined and none of them shows.</p>')
    parts.append("</section><section><h2>Look at it</h2>")
    if annotated is not None:
        if annotated.focus:
            parts.append(f"<p>Begin with frame {frame_buttons([annotated.focus])} {escape(annotated.why)}</p>")
        parts.append(command_line("open-command", command))
        slices = "".join(
            f'<li><a href="{escape(path.name)}">{escape(path.name)}</a>: frame {frame} of it is the one</li>'
            for path, frame in annotated.slices
        )
        parts.append(
            f'<p class="small"><a href="{escape(annotated.capture.name)}">{escape(annotated.capture.name)}</a>'
        )
        parts.append(f": {annotated.comments} frames carry comments; filter <code>frame.comment</code>.</p>")
        parts.append(f'<ul class="small">{slices}</ul>' if slices else "")
        parts.append(f'<p class="soft small mono">original SHA-256 {escape(annotated.sha256)}</p>')
    parts.append("<h3>Do it again</h3>")
    parts += [command_line(f"again-{index}", line) for index, line in enumerate(reproduce_lines(case))]
    parts.append("</section></div>")
    rest = [cause for cause in diagnosis.causes if cause is not first]
    if rest:
        parts.append("<section><h2>Also considered</h2>")
        for cause in rest:
            parts.append(f"<details><summary>{escape(cause.headline)} {meter(cause.score)}</summary>")
            parts += _cause_body(cause)
            parts.append("</details>")
        parts.append("</section>")
    return "".join(parts)


def _cause_body(cause: Cause) -> Iterator[str]:
    rule = cause.rule
    doubt = "" if cause.score >= BELIEVED else ", not enough to believe it"
    fit = f"{rule.side}, {rule.name}: fits {cause.score:.0%}{doubt}"
    yield f'<p class="soft small">{escape(fit)} {meter(cause.score)}</p>'
    yield '<ul class="clues">'
    yield from (_clue(clue, "+", "for") for clue in cause.support.for_it)
    yield from (_clue(clue, "−", "against") for clue in cause.support.against)
    yield "</ul>"
    yield f'<p class="next"><b>Next:</b> {escape(rule.experiment)}</p>'
    twins = [name for name in pictures()[rule.picture] if name != rule.name]
    if twins:
        yield f'<p class="soft small">Same picture on the wire: {escape(", ".join(twins))}.</p>'


def _clue(clue: Clue, sign: str, kind: str) -> str:
    frames = f" {frame_buttons(clue.frames[:_FRAMES])}" if clue.frames else ""
    return f'<li class="{kind}" data-sign="{sign}">{escape(clue.text)}{frames}</li>'


def write_report(path: Path, text: str) -> None:
    """Write the page, whole or not at all."""
    from rig.record import write_atomic

    write_atomic(path, text.encode("utf-8"))
