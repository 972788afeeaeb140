"""The sections of the report below its cards: plots, checks, stages, time line, findings, versions, comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rig.plan.units import format_ns
from rig.timing.verdict import CheckResult, Violation
from rig.triage.against import Comparison
from rig.triage.broken import EVENTS, Broken, broken_of, said
from rig.triage.case import Case
from rig.triage.diagnosis import Diagnosis
from rig.triage.facts import facts_of
from rig.triage.markup import command_line, escape, frame_buttons, rounded, table, value
from rig.triage.series import Drawn, StageShare
from rig.triage.timeline import LANES, TOLD, Event

_OPEN = 10
"""Packets of a check that are shown at once."""
_EVENTS = 40
"""Telling events that are shown at once."""


def plots(pictures_drawn: Drawn) -> str:
    """Figures for every series; script draws them."""
    if not pictures_drawn.latency and not pictures_drawn.sequence:
        return ""
    parts = [
        '<section id="plots"><h2>Plots</h2><p class="soft small noprint">Drag to zoom, Ctrl + wheel (or wheel after a '
        "click) zooms at the pointer, double click resets. Click a point for its frame. Keys: arrows, + and −, 0, n "
        "and p for the next and previous point, b for the next beyond the limit.</p>"
    ]
    for index, series in enumerate(pictures_drawn.latency):
        note = f", {series.thinned} points between the extremes are not drawn" if series.thinned else ""
        title = f"{series.label} over time ({len(series.value) + series.thinned} samples{note})"
        parts.append(_figure(f"latency-{index}", title, "tall", bad=series.has_bad))
        parts.append(_figure(f"ecdf-{index}", "Distribution: share of samples at most so long (ECDF)", "low"))
    if pictures_drawn.sequence:
        parts.append(_figure("gaps", "Gaps between the board's datagrams", "low"))
        title = (
            '<span class="key k-jetson"></span>requests <span class="key k-answers"></span>answers: sequence over time'
        )
        parts.append(_figure("sequence", title, "low", raw=True))
    if pictures_drawn.telemetry:
        options = "".join(
            f'<option value="{index}">{escape(gauge.name)}</option>'
            for index, gauge in enumerate(pictures_drawn.telemetry)
        )
        parts.append(f'<p class="noprint"><label>show <select id="gauge">{options}</select></label></p>')
        parts.append(_figure("gauges", "What board and Jetson told of themselves", "low"))
    if pictures_drawn.few:
        rows = [
            (gauge.name, ", ".join(f"{v:g} at {t:.3f} s" for t, v in zip(gauge.time_s, gauge.value, strict=True)))
            for gauge in pictures_drawn.few
        ]
        parts.append("<details><summary>Told too seldom to be drawn</summary>")
        parts.append(table(("what", "values"), rows) + "</details>")
    parts.append("</section>")
    return "".join(parts)


def _figure(identity: str, title: str, size: str, *, bad: bool = False, raw: bool = False) -> str:
    shown = title if raw else escape(title)
    label = escape("requests and answers: sequence over time") if raw else shown
    worst = f'<button type="button" data-bad="{identity}">next beyond limit</button>' if bad else ""
    reset = f'<button type="button" data-reset="{identity}">reset</button>'
    return (
        f"<figure><figcaption><b>{shown}</b>{worst}{reset}</figcaption>"
        f'<canvas id="{identity}" class="{size}" role="img" aria-label="{label}"></canvas>'
        f'<output id="{identity}-out" aria-live="polite"></output></figure>'
    )


def checks(case: Case) -> str:
    """Every check with its rules, quantiles and worst packets; what did not pass is open."""
    if case.result is None:
        return ""
    broken = broken_of(case)
    parts = ['<section id="checks"><h2>Checks</h2>']
    for check in case.result.checks:
        opened = " open" if str(check.verdict) != "PASS" else ""
        parts.append(
            f'<details{opened}><summary><span class="chip {escape(check.verdict)}">{escape(check.verdict)}</span> '
            f'<b>{escape(check.check)}</b> <span class="soft">{escape(check.reason)}</span></summary>'
        )
        parts += _check(check, broken.get(check.check, Broken()))
        parts.append("</details>")
    parts.append("</section>")
    return "".join(parts)


def _check(check: CheckResult, broken: Broken) -> Iterator[str]:
    if len(check.limits) > 1:
        rows = [(str(limit.verdict), limit.rule, limit.reason, limit.spec.place) for limit in check.limits]
        yield table(("verdict", "rule", "why", "plan"), rows)
    elif check.limits and check.limits[0].spec.place:
        # Rule and reason stand in the line above.
        yield f'<p class="soft small">limit of {escape(check.limits[0].spec.place)}</p>'
    summary = check.summary
    if summary is not None and summary.n:
        figures = [("min", value(summary.min_ns), "")]
        for quantile in summary.quantiles:
            low, high = value(quantile.low_ns), value(quantile.high_ns)
            shown = value(quantile.value_ns) if quantile.value_ns is not None else f"needs {quantile.needed} samples"
            figures.append((quantile.name, shown, f"{low} to {high}" if quantile.value_ns is not None else ""))
        figures.append(("max", value(summary.max_ns), ""))
        confidence = f" at {float(check.confidence):.4g}" if check.confidence is not None else ""
        lost = f", {summary.lost} lost" if summary.lost else ""
        yield f'<p class="soft small">{summary.n} {escape(check.of)}{lost}</p>'
        yield table(("", "observed", f"interval{confidence}"), figures, numbers=(1, 2))
    counted = [*check.counts.items(), *((f"set aside, {what}", n) for what, n in check.set_aside.items())]
    if counted:
        yield f'<p class="small">Counted: {escape(", ".join(f"{n} {what}" for what, n in counted))}</p>'
    for finding in check.voided_by:
        yield f'<p class="warn small">{escape(finding.side)}, {escape(finding.name)}: {escape(finding.sentence)}</p>'
    yield from (f'<p class="soft small">{escape(note)}</p>' for note in check.notes)
    if broken.shown:
        yield from _packets(check, broken)


def _packets(check: CheckResult, broken: Broken) -> Iterator[str]:
    """Packets beyond the limits, worst first, and the filter that shows them all."""
    cut = f" ({broken.cut})" if broken.cut else ""
    events, several = check.metric in EVENTS, len(check.limits) > 1
    title = "Packets that were counted" if events else "Worst packets"
    heads = ["value", *(["limit"] if several else []), "margin"] if not events else []
    shown_heads = "".join(f'<th class="n">{head}</th>' for head in (*heads, "time, s"))
    rows = [_packet(check, each, events, several) for each in broken.shown]
    rule = "<th>rule</th>" if several else ""
    head = f'<thead><tr><th class="n">frame</th><th class="what">what</th>{shown_heads}{rule}</tr></thead>'
    yield f"<h3>{title}{cut}</h3>"
    yield f'<div class="scroll"><table>{head}<tbody>{"".join(rows[:_OPEN])}</tbody></table></div>'
    if len(rows) > _OPEN:
        yield f"<details><summary>{len(rows) - _OPEN} more</summary>"
        yield f'<div class="scroll"><table>{head}<tbody>{"".join(rows[_OPEN:])}</tbody></table></div></details>'
    yield command_line(f"filter-{escape(check.check)}", broken.display_filter)


def _packet(check: CheckResult, each: Violation, events: bool, several: bool) -> str:
    cells = []
    if not events:
        cells.append(value(each.value_ns) if each.unit == "ns" else said(check, each))
        cells += ["-" if each.limit_ns is None else format_ns(each.limit_ns)] if several else []
        cells.append("-" if each.margin_ns is None else format_ns(each.margin_ns))
    cells.append(f"{each.at_ns / 1e9:.9f}")
    numbers = "".join(f'<td class="n">{escape(cell)}</td>' for cell in cells)
    frame = frame_buttons([each.frame]) if each.frame else "-"
    what = escape(said(check, each))
    if each.reference:
        what = what.replace(f"frame {each.reference}", f"frame {frame_buttons([each.reference])}", 1)
    rule = f"<td>{escape(f'{each.rule} [{each.place}]' if each.place else each.rule)}</td>" if several else ""
    return f'<tr><td class="n">{frame}</td><td>{what}</td>{numbers}{rule}</tr>'


def stages(stages: Sequence[StageShare]) -> str:
    """Where the time of an exchange went: bars to scale, then figures."""
    if not stages:
        return ""
    parts = ['<section id="stages"><h2>Where the time of an exchange went</h2>']
    for title, spent in (("median", [s.p50_ns for s in stages]), ("p99", [s.p99_ns for s in stages])):
        total = sum(max(0, ns) for ns in spent) or 1
        parts.append(f'<p class="soft small">{title} of each stage</p><svg class="stage" viewBox="0 0 1000 30" ')
        parts.append(f'preserveAspectRatio="none" role="img" aria-label="stages, {title}">')
        at = 0.0
        for stage, ns in zip(stages, spent, strict=True):
            width = 1000 * max(0, ns) / total
            text = escape(f"{stage.name}: {format_ns(ns)}")
            parts.append(f'<rect x="{at:.2f}" y="0" width="{width:.2f}" height="30" class="k-{stage.where}">')
            parts.append(f"<title>{text}</title></rect>")
            at += width
        parts.append("</svg>")
    parts.append(
        '<div class="scroll"><table><thead><tr><th>stage</th><th>whose</th><th class="n">p50</th><th class="n">p90</th>'
    )
    parts.append('<th class="n">p99</th><th class="n">max</th></tr></thead><tbody>')
    for stage in stages:
        cells = "".join(
            f'<td class="n">{escape(rounded(ns))}</td>'
            for ns in (stage.p50_ns, stage.p90_ns, stage.p99_ns, stage.max_ns)
        )
        key = f'<span class="key k-{stage.where}"></span>'
        parts.append(f"<tr><td>{key}{escape(stage.name)}</td><td>{escape(stage.where)}</td>{cells}</tr>")
    parts.append("</tbody></table></div>")
    parts.append(
        '<p class="soft small">The stages of the Jetson precede the request and are on its own clock; what passes '
        "between request and answer is wire, stacks and board. Each figure is a quantile of its stage, so they need "
        "not add up.</p></section>"
    )
    return "".join(parts)


def time_line(events: Sequence[Event]) -> str:
    """All events on one clock: as a figure, troubles and what the board said as a table, and the rest folded."""
    if not events:
        return ""
    options = "".join(f'<option value="{lane}">{lane}</option>' for lane in LANES)
    bad = [event for event in events if event.level == "bad"]
    telling = [event for event in events if event.level != "routine" and (event.level != "info" or event.lane in TOLD)]
    more = f" ({_EVENTS} of {len(telling)})" if len(telling) > _EVENTS else ""
    telling = sorted(telling, key=_weight)[:_EVENTS]
    return (
        '<section id="time-line"><h2>Time line</h2><p class="soft small">Everything that spoke, on the capture\'s '
        f"clock, seconds from its first frame: {len(events)} events, {len(bad)} of them troubles. Console and rig are "
        "placed to about a millisecond.</p>"
        + _figure("lane-plot", "Rig, board, Jetson and packets", "low")
        + f"<h3>Troubles, and what the board said{more}</h3>"
        + _events(sorted(telling, key=lambda event: event.t_ns), "told")
        + f"<details><summary>All {len(events)} events</summary>"
        + '<p class="noprint"><label>show <select id="lane-filter"><option value="">all</option>'
        + f"{options}</select></label></p>{_events(events, 'lanes')}</details></section>"
    )


def _weight(event: Event) -> int:
    """Of too many events, telemetry and the packets that stand with their check go first."""
    return 2 if event.lane == "board telemetry" else 1 if event.lane == "packets" and event.level == "bad" else 0


def _events(events: Sequence[Event], identity: str) -> str:
    rows = "".join(
        f'<tr class="{event.level}" data-lane="{event.lane}"><td class="n">{event.t_ns / 1e9:.6f}</td>'
        f"<td>{event.lane}</td>"
        f"<td>{escape(event.text)}{' ' + frame_buttons([event.frame]) if event.frame else ''}</td></tr>"
        for event in events
    )
    return (
        f'<div class="scroll"><table id="{identity}" class="lanes"><thead><tr><th class="n">s</th><th>who</th>'
        f"<th>what</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def findings(case: Case, diagnosis: Diagnosis) -> str:
    """What was noticed about the evidence, the ledger, and the board's counters."""
    rows = [(finding.kind, "capture", finding.detail, "") for finding in case.table.findings]
    if case.result is not None:
        rows = [(one.name, one.side, one.sentence, ", ".join(one.voids) or "nothing") for one in case.result.findings]
    parts = ['<section id="findings"><h2>Findings about the evidence</h2>']
    parts.append(table(("finding", "side", "what", "voids"), rows) if rows else '<p class="soft">None.</p>')
    parts += [f'<p class="warn small">{escape(sentence)}</p>' for sentence in case.unread]
    if case.result is not None and any(value is not None for value in case.result.counts.values()):
        ledger = [(name, "?" if n is None else str(n)) for name, n in case.result.counts.items()]
        if case.exchanges is not None and case.exchanges.stamped:
            asks, answers = case.exchanges.asks, case.exchanges.answers
            ledger.append(("copies of requests seen", str(int(asks.copies.sum()))))
            ledger.append(("copies of answers seen", str(int(answers.copy.sum()))))
        parts.append("<h3>Ledger</h3>" + table(("what", "count"), ledger, numbers=(1,)))
    if case.info is not None and case.info.board.get("counters"):
        grown = [(name, str(n)) for name, n in sorted(case.info.board["counters"].items()) if n]
        if grown:
            parts.append("<details><summary>Counters of the board</summary>")
            parts.append(table(("counter", "value"), grown, numbers=(1,)) + "</details>")
    parts.append(f'<p class="soft small">{diagnosis.examined} causes were examined.</p></section>')
    return "".join(parts)


def versions(case: Case) -> str:
    """What was used, and the phases of the run."""
    rows = list(facts_of(case).items())
    phases = ""
    if case.info is not None and case.info.phases:
        listed = [
            (phase.name, f"{phase.start_ns / 1e9:.2f}", f"{phase.duration_ns / 1e9:.2f}", phase.outcome, phase.note)
            for phase in case.info.phases
        ]
        phases = "<h3>Phases</h3>" + table(("phase", "start, s", "took, s", "outcome", "note"), listed, numbers=(1, 2))
    return f'<section id="facts"><h2>Versions and settings</h2>{table(("what", "value"), rows)}{phases}</section>'


def against(comparison: Comparison) -> str:
    """The comparison with a good run."""
    parts = [
        f'<section id="against"><h2>Against {escape(comparison.good)}</h2>'
        f'<p class="lead">{escape(comparison.sentence)}</p>'
    ]
    if comparison.shifts:
        rows = [
            (
                shift.check,
                shift.figure,
                value(shift.good_ns),
                value(shift.bad_ns),
                shift.shift_text,
                shift.interval_text,
            )
            for shift in comparison.shifts
        ]
        parts.append(table(("check", "figure", "good", "this", "shift", "95 % interval"), rows, numbers=(2, 3, 4, 5)))
    if comparison.counts:
        rows3 = [(what, str(good), str(bad)) for what, good, bad in comparison.counts]
        parts.append("<h3>Counts that differ</h3>" + table(("what", "good", "this"), rows3, numbers=(1, 2)))
    if comparison.changed:
        parts.append("<h3>What else changed</h3>" + table(("what", "good", "this"), comparison.changed))
    else:
        parts.append('<p class="soft">Nothing else that is recorded changed.</p>')
    parts.append("</section>")
    return "".join(parts)
