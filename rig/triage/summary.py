"""The terminal's half of triage: what is wrong, why it is believed, what to do next, how to look at it. 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rig.timing.verdict import Verdict, worst
from rig.triage.case import Case
from rig.triage.diagnosis import BELIEVED, Cause, Clue, Diagnosis

_WIDTH = 100
_CAUSES = 3


def summary_lines(case: Case, diagnosis: Diagnosis) -> Iterator[str]:
    """Verdict, first reason, causes with their evidence, next experiment."""
    yield from _verdict(case)
    for sentence in case.unread:
        yield from _wrap(f"note: {sentence}")
    yield ""
    if not diagnosis.causes:
        yield f"diagnosis: {diagnosis.sentence} ({diagnosis.examined} causes examined)"
        return
    first = diagnosis.first
    yield from _wrap(f"diagnosis: {diagnosis.sentence}")
    for rank, cause in enumerate(diagnosis.causes[:_CAUSES], 1):
        yield ""
        yield from _cause(rank, cause)
    rest = diagnosis.causes[_CAUSES:]
    if rest:
        yield ""
        yield from _wrap("also considered: " + ", ".join(f"{cause.name} ({cause.score:.0%})" for cause in rest))
    if first is not None:
        yield ""
        yield from _wrap(f"next: {first.rule.experiment}", "      ")


def printable(text: str) -> str:
    """Text for a terminal: logs, records and captures may hold escape sequences."""
    return "".join(c if c.isprintable() else "?" for c in text)


def verdict_line(case: Case) -> tuple[str, str]:
    """(verdict, first reason); an empty verdict for a capture without a plan."""
    result = case.result
    if result is None:
        return "", "a capture without a plan: diagnosed, not judged"
    total = worst(check.verdict for check in result.checks)
    deciding = next((check for check in result.checks if check.verdict is total), None)
    if total is Verdict.PASS or deciding is None:
        return str(total), "every check passed"
    return str(total), f"{deciding.check}: {deciding.reason}"


def _verdict(case: Case) -> Iterator[str]:
    verdict, reason = verdict_line(case)
    name = case.path.name
    if case.result is not None:
        name = case.result.plan + (f"[{case.result.point}]" if case.result.point else "")
    yield from _wrap(f"{verdict or 'CAPTURE'} {name}: {reason}", "    ")
    if case.result is not None:
        others = [f"{check.check} {check.verdict}" for check in case.result.checks]
        if len(others) > 1:
            yield from _wrap("  checks: " + ", ".join(others), "    ")


def _cause(rank: int, cause: Cause) -> Iterator[str]:
    doubt = "" if cause.score >= BELIEVED else ", not enough to believe it"
    yield from _wrap(
        f"{rank}. {cause.headline}  [{cause.rule.side}, {cause.name}, fits {cause.score:.0%}{doubt}]", "   "
    )
    for sign, clues in (("+", cause.support.for_it), ("-", cause.support.against)):
        for clue in clues:
            yield from _wrap(f"   {sign} {_text(clue)}", "     ")


def _text(clue: Clue) -> str:
    return clue.text + (f" (frames {', '.join(map(str, clue.frames[:6]))})" if clue.frames else "")


def _wrap(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(
        printable(text), _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [""]
