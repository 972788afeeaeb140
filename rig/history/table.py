"""The answers of `rig history` as plain tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rig.history.drift import Drift
from rig.history.series import Bias, Key, Settled, Standing
from rig.plan.units import format_ns

SCHEMA: Final = "rig.history/1"
MANY: Final = 50
"""More green lines than that hide the others."""
QUIET: Final = 4
"""Rank of what needs nobody."""


def overview(standings: Sequence[Standing]) -> Iterator[str]:
    """One line per check and bench; those that need a person come first, many that do not are only counted."""
    ordered = sorted(standings, key=_order)
    troubled = [one for one in ordered if _order(one)[0] < QUIET]
    shown = troubled if len(ordered) - len(troubled) > MANY else ordered
    rows = [(_word(one), one.key.name, one.key.bench, when(one.now), level(one.now), remark(one)) for one in shown]
    if len(shown) < len(ordered):
        yield f"{len(ordered) - len(shown)} checks are green and steady; name a plan, check or --bench to see some"
    if rows:
        yield from _aligned(("now", "check", "bench", "last looked at", "figure", "what to know"), rows)


def detail(one: Standing, last: int = 20) -> Iterator[str]:
    """One series: where it stands, then its last results."""
    yield f"{one.key.name} on {one.key.bench}: {_word(one)}" + (f"; {remark(one)}" if remark(one) else "")
    rows = []
    for settled in one.settled[-last:]:
        result = settled.result
        tries = f"{len(settled.attempts)} runs" if len(settled.attempts) > 1 else ""
        said = [part for part in (tries, "green and red" if settled.mixed else "", result.reason) if part]
        rows.append(
            (result.verdict, when(settled), level(settled), (result.build or "-")[:12], result.folder, "; ".join(said))
        )
    yield from (
        "  " + line for line in _aligned(("verdict", "started (UTC)", "figure", "firmware", "record", ""), rows)
    )


def bias_lines(check: str, found: Sequence[Bias]) -> Iterator[str]:
    """`bench lab-3 measures 12 % above the others (14 nights, p = 0.0001)`."""
    for bias in found:
        side = "above" if bias.offset >= 0 else "below"
        sure = f"sign test p = {bias.p:.2g}" if bias.p < 0.01 else "may be chance"
        yield (
            f"{check}: bench {bias.bench} measures {abs(bias.offset):.1%} {side} the other benches "
            f"({bias.sets} nights, {sure})"
        )


def document(standings: Sequence[Standing], found: Mapping[str, Sequence[Bias]]) -> dict[str, Any]:
    """The same as data: `rig.history/1`, documented in docs/history.md."""
    return {
        "schema": SCHEMA,
        "series": [_plain(one) for one in standings],
        "bias": {
            check: [{"bench": b.bench, "offset": b.offset, "nights": b.sets, "p": b.p} for b in biases]
            for check, biases in found.items()
        },
    }


def remark(one: Standing) -> str:
    """What a reader has to know of a series, in one line; empty when all is well."""
    if one.now.state in ("open", "skip"):
        return f"{one.now.result.verdict}: {one.now.result.error or one.now.result.reason}"
    if one.flaky:
        return f"flaky: changed colour {one.flips} times in {one.pairs} nights with the same firmware and plan"
    if one.since is not None:
        text = f"failing since {when(one.since)}"
        if one.last_good is None:
            return f"{text}, never seen to pass"
        return f"{text}, {follows(one)}"
    if one.drift is not None and one.drift_since is not None:
        return f"drifting since {when(one.drift_since)}: {drift_sentence(one.drift)}"
    return ""


def follows(one: Standing) -> str:
    """What came between the last green and the first red."""
    return f"follows {', '.join(one.changed)}" if one.changed else "same firmware, plan and controller as before"


def drift_sentence(drift: Drift) -> str:
    """`1.5 ms → 2.1 ms of 5 ms, 17 % of the room used, 40 nights left`."""
    left = (
        f", about {drift.nights_left} nights until it is reached" if drift.nights_left is not None else ", at rest now"
    )
    return (
        f"{short_ns(drift.before)} → {short_ns(drift.now)}, limit {format_ns(drift.bound)}: "
        f"{drift.used:.0%} of the room used{left}"
    )


def level(settled: Settled) -> str:
    """`p50 1.46 of 5 ms` as `p50 1.46 ms / 5 ms`; `-` where nothing is measured."""
    result = settled.result
    if result.value is None:
        return "-"
    if result.bound is None:
        return f"{result.figure} {result.value}"
    return f"{result.figure} {short_ns(result.value)} / {format_ns(result.bound)}"


def short_ns(value: int) -> str:
    """Three digits are enough to look at."""
    return format_ns(round(value, -max(0, len(str(abs(value))) - 3)))


def when(settled: Settled) -> str:
    """Start of a settled result, UTC."""
    return datetime.fromtimestamp(settled.result.started_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def day(settled: Settled) -> str:
    """Its date, UTC."""
    return when(settled)[:10]


def _word(one: Standing) -> str:
    return (
        "FLAKY"
        if one.flaky and one.now.state != "open"
        else one.now.state
        if one.now.state == "green"
        else one.now.result.verdict
    )


def _order(one: Standing) -> tuple[int, Key]:
    if one.now.state == "red":
        rank = 0
    elif one.now.state == "open":
        rank = 1
    elif one.flaky:
        rank = 2
    else:
        rank = 3 if one.drift is not None else QUIET
    return rank, one.key


def _aligned(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in [head, *rows]:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _plain(one: Standing) -> dict[str, Any]:
    return {
        "plan": one.key.plan,
        "point": one.key.point,
        "check": one.key.check,
        "bench": one.key.bench,
        "state": one.now.state,
        "verdict": one.now.result.verdict,
        "record": one.now.result.folder,
        "started_ms": one.now.result.started_ms,
        "figure": one.now.result.figure,
        "value": one.now.result.value,
        "bound": one.now.result.bound,
        "failing_since_ms": one.since.result.started_ms if one.since else None,
        "follows": list(one.changed),
        "flaky": one.flaky,
        "flaky_rate": round(one.flaky_rate, 4),
        "drift": None
        if one.drift is None or one.drift_since is None
        else {
            "since_ms": one.drift_since.result.started_ms,
            "before": one.drift.before,
            "now": one.drift.now,
            "used": round(one.drift.used, 4),
            "nights_left": one.drift.nights_left,
        },
        "remark": remark(one),
    }
