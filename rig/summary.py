"""The table at the end of an invocation: one line per run and comparison, the figures that people look for first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rig.campaign import Compared, Judged
    from rig.timing.verdict import CheckResult

_COLOURS = {"FAIL": "31", "ERROR": "35", "INCONCLUSIVE": "33", "PASS": "32", "SKIP": "36"}


@dataclass(frozen=True)
class Row:
    """One run or comparison as the table shows it, in plain values that travel between processes. p50, p99: of its
    first timed check; note: what to look at."""

    verdict: str
    title: str
    n: int = 0
    p50: str = "-"
    p99: str = "-"
    note: str = ""


def row_of(done: Judged | Compared) -> Row:
    """The line of a run, or of a comparison, whose n counts pairs of runs."""
    from rig.campaign import Compared

    if isinstance(done, Compared):
        return Row(str(done.verdict), done.title, done.result.n, note=_difference(done))
    timed = next((check for check in done.result.checks if check.summary is not None), None)
    n = next((check.n for check in done.result.checks if check.n), 0)
    return Row(str(done.verdict), done.title, n, _quantile(timed, "p50"), _quantile(timed, "p99"), _checks(done))


def summary_lines(done: Sequence[Judged | Compared], colour: bool) -> Iterator[str]:
    """Lines of the table: verdict, run, packets, median and p99 of its first timed check, what to look at."""
    return table_lines([row_of(one) for one in done], colour)


def table_lines(rows: Iterable[Row], colour: bool) -> Iterator[str]:
    """The same for rows at hand."""
    rows = list(rows)
    width = max((len(row.title) for row in rows), default=0)
    yield f"{'verdict':<13} {'run':<{width}} {'n':>7} {'p50':>10} {'p99':>10}  checks"
    for row in rows:
        verdict = f"{row.verdict:<13}"
        if colour:
            verdict = f"\x1b[{_COLOURS[row.verdict]}m{verdict}\x1b[0m"
        n = str(row.n or "-")
        yield f"{verdict} {row.title:<{width}} {n:>7} {row.p50:>10} {row.p99:>10}  {row.note}".rstrip()


def _quantile(check: CheckResult | None, name: str) -> str:
    from rig.plan.units import format_ns
    from rig.timing.metrics.measurement import INFINITE_NS

    if check is None or check.summary is None:
        return "-"
    found = next((one for one in check.summary.quantiles if one.name == name), None)
    if found is None or found.value_ns is None:
        return "n/a"
    if found.value_ns == INFINITE_NS:
        return "lost"
    # Four digits are enough to look at; the exact value is in the verdicts.
    magnitude = max(0, len(str(abs(found.value_ns))) - 4)
    return format_ns(round(found.value_ns, -magnitude))


def _checks(run: Judged) -> str:
    if run.record is None:
        return run.result.checks[0].reason if run.result.checks else ""
    if str(run.verdict) == "ERROR":
        return run.result.checks[0].reason
    bad = [f"{check.check} {check.verdict}" for check in run.result.checks if str(check.verdict) != "PASS"]
    text = ", ".join(bad) if bad else f"{len(run.result.checks)} pass"
    return f"{text} (as expected)" if bad and run.outcome.green else text


def _difference(compared: Compared) -> str:
    # What follows is about the proof; the verdict stands in front.
    text = compared.result.reason.partition("; ")[0]
    expected = compared.outcome.green and str(compared.result.verdict) == "FAIL"
    return f"{text} (as expected)" if expected else text
