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
from rig.triage.diagnosis import BELIEVED, Cause, Clue, Diagnosis, all_rules
from rig.triage.facts import reproduce_lines
from rig.triage.headline import badge, headlines, imposed, name_of, verdict_of
from rig.triage.location import soundness
from rig.triage.location import where as where_of
from rig.triage.markup import command_line, escape, frame_buttons, prose
from rig.triage.series import Drawn, drawn
from rig.triage.timeline import LANES, Event, timeline

if TYPE_CHECKING:
    from rig.triage.against import Comparison
    from rig.triage.annotate import Annotated

_FRAMES = 6
_PARTS = (
    ("cause", "cause"),
    ("against", "against a good run"),
    ("checks", "checks"),
    ("plots", "plots"),
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
    verdict, name = verdict_of(case), name_of(case)
    body = "\n".join(
        part
        for part in (
            _cards(case, diagnosis, annotated, command),
            sections.against(comparison) if comparison is not None else "",
            sections.checks(case),
            sections.plots(pictures_drawn),
            sections.stages(pictures_drawn.stages),
            sections.time_line(events),
            sections.findings(case, diagnosis),
            sections.versions(case),
        )
        if part
    )
    body = f"{_header(verdict, name, case, body)}\n{body}"
    return _page(f"{verdict or 'capture'} {name}", body, _data(pictures_drawn, events))


def _page(title: str, body: str, data: dict[str, Any]) -> str:
    files = resources.files("rig.triage") / "page"
    style = (files / "style.css").read_text("utf-8")
    script = "".join((files / name).read_text("utf-8") for name in ("plot.js", "page.js"))
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


def _header(verdict: str, name: str, case: Case, below: str) -> str:
    description = case.point.plan.description if case.point is not None else ""
    where = (
        f"{case.info.run_id} on bench {case.info.bench.get('bench')}" if case.info is not None else str(case.capture)
    )
    links = "".join(f'<a href="#{part}">{text}</a>' for part, text in _PARTS if f'id="{part}"' in below)
    nav = f'<nav class="noprint" aria-label="page">{links}</nav>'
    lines = "".join(f'<p class="lead">{escape(line)}</p>' for line in headlines(case))
    told = (("Plan", description), ("The plan imposes", imposed(case)))
    return (
        f'<header><span class="chip {escape(verdict or "CAPTURE")}">{escape(badge(case))}</span>'
        f'<div class="grow"><h1>{escape(name)}</h1><p class="soft small">{escape(where)}</p></div>'
        '<button id="theme" type="button" title="dark or light">theme</button></header>'
        + lines
        + "".join(f'<p class="soft"><b>{label}:</b> {prose(text)}</p>' for label, text in told if text)
        + nav
    )


def _cards(case: Case, diagnosis: Diagnosis, annotated: Annotated | None, command: str) -> str:
    first = diagnosis.first
    parts = ['<div class="two" id="cause"><section><h2>Suspected cause</h2>']
    parts.append(f'<p class="lead">{escape(diagnosis.sentence)}</p>')
    if first is not None:
        parts.append(f"<p><b>Where:</b> {escape(where_of(first))}.</p>")
    parts.append(f'<p class="soft">{escape(soundness(case, diagnosis))}</p>')
    if first is not None:
        parts += _cause_body(first)
    elif diagnosis.causes:
        parts.append('<p class="soft">The closest that was found is listed below.</p>')
    else:
        parts.append(f'<p class="soft">{diagnosis.examined} causes were examined and none of them shows.</p>')
    parts.append("</section><section><h2>Look at it</h2>")
    parts += _look(case, annotated, command)
    parts.append("</section></div>")
    rest = [cause for cause in diagnosis.causes if cause is not first]
    if rest:
        parts.append("<section><h2>Also considered</h2>")
        for cause in rest:
            parts.append(f"<details><summary>{escape(cause.headline)} (fits {cause.score:.0%})</summary>")
            parts += _cause_body(cause)
            parts.append("</details>")
        parts.append("</section>")
    return "".join(parts)


def _look(case: Case, annotated: Annotated | None, command: str) -> Iterator[str]:
    """The frame to begin with and the line that opens it; the rest is folded."""
    again = [command_line(f"again-{index}", line) for index, line in enumerate(reproduce_lines(case))]
    if annotated is None:
        yield "<h3>Do it again</h3>" + "".join(again)
        return
    if annotated.focus:
        yield f"<p>Begin with frame {frame_buttons([annotated.focus])} {escape(annotated.why)}</p>"
    yield command_line("open-command", command)
    file = escape(annotated.capture.name)
    yield f'<p class="small"><a href="{file}">{file}</a>: {annotated.comments} frames carry comments; '
    yield "filter <code>frame.comment</code>.</p>"
    slices = "".join(
        f'<li><a href="{escape(path.name)}">{escape(path.name)}</a>: frame {frame} of it is the one</li>'
        for path, frame in annotated.slices
    )
    yield '<details class="small"><summary>Excerpts, checksum, and how to do it again</summary>'
    yield f"<ul>{slices}</ul>" if slices else ""
    yield "".join(again)
    yield f'<p class="soft mono">original SHA-256 {escape(annotated.sha256)}</p></details>'


def _cause_body(cause: Cause) -> Iterator[str]:
    rule = cause.rule
    doubt = "" if cause.score >= BELIEVED else ", not enough to believe it"
    yield '<ul class="clues">'
    yield from (_clue(clue, "+", "for") for clue in cause.support.for_it)
    yield from (_clue(clue, "−", "against") for clue in cause.support.against)
    yield "</ul>"
    sentence, command = cause.step
    yield f'<p class="next"><b>Next:</b> {prose(sentence)}</p>'
    yield command_line(f"next-{rule.name}", command) if command else ""
    twins = [one for one in all_rules() if one.picture == rule.picture and one.name != rule.name]
    named = "; ".join(f"{one.title} ({one.name})" for one in twins)
    same = f" Same picture on the wire: {named}." if named else ""
    yield f'<p class="soft small">Fits {cause.score:.0%}{doubt} (<code>{escape(rule.name)}</code>).{escape(same)}</p>'


def _clue(clue: Clue, sign: str, kind: str) -> str:
    frames = f" {frame_buttons(clue.frames[:_FRAMES])}" if clue.frames else ""
    return f'<li class="{kind}" data-sign="{sign}">{escape(clue.text)}{frames}</li>'


def write_report(path: Path, text: str) -> None:
    """Write the page, whole or not at all."""
    from rig.record import write_atomic

    write_atomic(path, text.encode("utf-8"))
