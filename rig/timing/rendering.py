"""A check's result as text for a terminal: the verdict first, then why, then the packets to look at. 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rig.plan.units import format_ns, format_rate
from rig.terminal import printable
from rig.timing.limits import LimitResult, format_share, format_value
from rig.timing.statistics import Quantile, Summary
from rig.timing.verdict import CheckResult, Violation

_WIDTH = 100


def render_check(result: CheckResult) -> str:
    """Several lines; the first word is the verdict."""
    return "\n".join(map(printable, _lines(result)))


def _lines(result: CheckResult) -> Iterator[str]:
    yield from _wrap(f"{result.verdict} {result.check}: {result.reason}", "    ")
    if result.seen:
        yield from _wrap(f"  last seen: {result.seen}", "    ")
    if result.hint:
        yield from _wrap(f"  next step: {result.hint}", "    ")
    for limit in result.limits:
        yield from _limit(limit)
    if result.confidence is not None:
        yield from _samples(result)
    for title, counts in (("counted", result.counts), ("set aside", result.set_aside)):
        if counts:
            yield from _wrap(f"  {title}: " + ", ".join(f"{count} {what}" for what, count in counts.items()), "    ")
    for finding in result.voided_by:
        yield from _wrap(f"  evidence ({finding.side}, {finding.name}): {finding.sentence}", "    ")
    for note in result.notes:
        yield from _wrap(f"  note: {note}", "    ")
    if result.violations:
        yield ""
        yield from _table(result.violations)
        beyond = max(limit.beyond for limit in result.limits)
        if beyond > len(result.violations):
            yield f"  the worst {len(result.violations)} of {beyond}; `rig triage` lists more"
        yield ""
        yield f"  show them: {result.display_filter}"


def _limit(limit: LimitResult) -> Iterator[str]:
    spec = limit.spec
    section = "" if spec.source == "limits" else f", limit of profile {spec.source}"
    place = f"  [{spec.place}{section}]" if spec.place or section else ""
    yield from _wrap(f"  {limit.verdict:<12} {limit.rule}: {limit.reason}{place}", " " * 15)


def _samples(result: CheckResult) -> Iterator[str]:
    summary = result.summary
    proof = (
        "observed order statistic only (proof: sample)"
        if result.proof == "sample"
        else f"exact binomial rule at {format_share(result.confidence)}"
        if result.confidence is not None
        else ""
    )
    if summary is None:
        yield f"  n = {result.n} {result.of}"
        return
    lost = f", {summary.lost} lost" if summary.lost else ""
    yield f"  n = {summary.n} {result.of}{lost}; percentiles: {proof}"
    if summary.n:
        yield from _wrap("  " + ", ".join(_quantiles(summary)), "    ")


def _quantiles(summary: Summary) -> Iterator[str]:
    if summary.min_ns is not None:
        yield f"min {format_value(summary.min_ns)}"
    for quantile in summary.quantiles:
        yield _quantile(quantile)
    if summary.max_ns is not None:
        yield f"max {format_value(summary.max_ns)}"


def _quantile(quantile: Quantile) -> str:
    if quantile.value_ns is None:
        return f"{quantile.name} n/a (needs {quantile.needed})"
    low = "…" if quantile.low_ns is None else format_value(quantile.low_ns)
    high = "…" if quantile.high_ns is None else format_value(quantile.high_ns)
    return f"{quantile.name} {format_value(quantile.value_ns)} [{low}, {high}]"


def _table(violations: tuple[Violation, ...]) -> Iterator[str]:
    rows = [("frame", "against", "time", "value", "limit", "margin", "rule")]
    for each in violations:
        rows.append(
            (
                str(each.frame or "-"),
                str(each.reference or "-"),
                f"{each.at_ns / 1e9:.6f} s",
                _amount(each.value_ns, each.unit),
                "-" if each.limit_ns is None else format_ns(each.limit_ns),
                "-" if each.margin_ns is None else format_ns(each.margin_ns),
                f"{each.rule} [{each.place}]" if each.place else each.rule,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    for row in rows:
        cells = "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=False))
        yield f"  {cells}  {row[6]}"


def _amount(value: int, unit: str) -> str:
    if unit == "ns":
        return format_value(value)
    return format_rate(value) if unit == "bit/s" else f"{value} {unit}"


def _wrap(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
