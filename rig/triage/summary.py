"""The terminal's half of triage: what is wrong, why it is believed, what to do next, how to look at it. 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rig.terminal import printable
from rig.triage.case import Case
from rig.triage.diagnosis import BELIEVED, Cause, Clue, Diagnosis
from rig.triage.headline import as_expected, badge, headlines, imposed, name_of
from rig.triage.location import soundness, where

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
        yield from _wrap(f"  {soundness(case, diagnosis)}", "    ")
        return
    first = diagnosis.first
    yield from _wrap(f"diagnosis: {diagnosis.sentence}")
    if first is not None:
        yield from _wrap(f"  where: {where(first)}", "    ")
    yield from _wrap(f"  {soundness(case, diagnosis)}", "    ")
    for rank, cause in enumerate(diagnosis.causes[:_CAUSES], 1):
        yield ""
        yield from _cause(rank, cause)
    rest = diagnosis.causes[_CAUSES:]
    if rest:
        yield ""
        yield from _wrap("also considered: " + ", ".join(f"{cause.name} ({cause.score:.0%})" for cause in rest))
    if first is not None:
        yield ""
        sentence, command = first.step
        yield from _wrap(f"next: {sentence}", "      ")
        if command:
            yield f"      {printable(command)}"


def _verdict(case: Case) -> Iterator[str]:
    first, *others = headlines(case)
    colon = "" if as_expected(case) is None else ":"
    yield from _wrap(f"{badge(case)}{colon} {name_of(case)}: {first}", "    ")
    for line in others:
        yield from _wrap(f"  {line}", "    ")
    if case.result is not None and len(case.result.checks) > 1:
        yield from _wrap(
            "  checks: " + ", ".join(f"{check.check} {check.verdict}" for check in case.result.checks), "    "
        )
    if imposed(case):
        yield from _wrap(f"  the plan imposes: {imposed(case)}", "    ")


def _cause(rank: int, cause: Cause) -> Iterator[str]:
    doubt = "" if cause.score >= BELIEVED else ", not enough to believe it"
    yield from _wrap(f"{rank}. {cause.headline}  [{cause.name}, fits {cause.score:.0%}{doubt}]", "   ")
    for sign, clues in (("+", cause.support.for_it), ("-", cause.support.against)):
        for clue in clues:
            yield from _wrap(f"   {sign} {_text(clue)}", "     ")


def _text(clue: Clue) -> str:
    if not clue.frames or clue.text.startswith(f"frame {clue.frames[0]}:"):
        return clue.text
    return f"{clue.text} (frames {', '.join(map(str, clue.frames[:6]))})"


def _wrap(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(
        printable(text), _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [""]
