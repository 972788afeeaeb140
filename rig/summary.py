"""The table at the end of an invocation: one line per run, the figures that people look for first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rig.plan.units import format_ns
from rig.timing.metrics.measurement import INFINITE_NS
from rig.timing.verdict import CheckResult, Verdict

if TYPE_CHECKING:
    from rig.campaign import Judged

_COLOURS = {Verdict.FAIL: "31", Verdict.ERROR: "35", Verdict.INCONCLUSIVE: "33", Verdict.PASS: "32", Verdict.SKIP: "36"}


def summary_lines(runs: Sequence[Judged], colour: bool) -> Iterator[str]:
    """Lines of the table: verdict, run, packets, median and p99 of its first timed check, what to look at."""
    width = max((len(run.title) for run in runs), default=0)
    yield f"{'verdict':<13} {'run':<{width}} {'n':>7} {'p50':>10} {'p99':>10}  checks"
    for run in runs:
        verdict = f"{run.verdict!s:<13}"
        if colour:
            verdict = f"\x1b[{_COLOURS[run.verdict]}m{verdict}\x1b[0m"
        timed = next((check for check in run.result.checks if check.summary is not None), None)
        n = next((check.n for check in run.result.checks if check.n), 0)
        p50, p99 = (_quantile(timed, wanted) for wanted in ("p50", "p99"))
        yield f"{verdict} {run.title:<{width}} {n:>7} {p50:>10} {p99:>10}  {_checks(run)}".rstrip()


def _quantile(check: CheckResult | None, name: str) -> str:
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
    bad = [f"{check.check} {check.verdict}" for check in run.result.checks if check.verdict is not Verdict.PASS]
    text = ", ".join(bad) if bad else f"{len(run.result.checks)} pass"
    return f"{text} (as expected)" if bad and run.outcome.green else text
