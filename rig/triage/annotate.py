"""The annotated capture: packet comments where the verdict and the causes point, and slices around the worst.

The original is never touched; its SHA-256 stands in the capture comment. Comments begin with FAIL (a limit is broken),
CAUSE or AGAINST (evidence), so that `frame.comment contains "FAIL"` finds them; what a packet is measured against says
so.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rig.record import sha256_file
from rig.timing.verdict import Verdict
from rig.triage.broken import Broken, broken_of, said, said_of_reference, worst_packets
from rig.triage.case import Case
from rig.triage.diagnosis import BELIEVED, Diagnosis, Support
from rig.triage.headline import badge, headline, name_of
from rig.triage.pcapng_writer import Target, rewrite

AROUND: Final = 15
"""Frames before and after the worst ones in their slices."""
SLICES: Final = 3
ANNOTATED: Final = "annotated.pcapng"
SLICE: Final = "frame-"
"""What the name of a slice begins with, before the number of its frame."""


@dataclass(frozen=True)
class Annotated:
    """capture: the annotated file. slices: (file, worst frame in it, by its new number). focus: the frame to look at
    first, 0 if none; why: the first line of its comment. comments: how many frames carry one."""

    capture: Path
    slices: tuple[tuple[Path, int], ...]
    focus: int
    why: str
    comments: int
    sha256: str


def comments_of(case: Case, diagnosis: Diagnosis) -> dict[int, str]:
    """Frame number → comment. Violations first, then the evidence of believed causes."""
    found: dict[int, list[str]] = {}
    broken = broken_of(case)
    for check in case.result.checks if case.result else ():
        for each in broken.get(check.check, Broken()).shown:
            word = "FAIL" if check.verdict is Verdict.FAIL else str(check.verdict)
            place = f" [{each.place}]" if each.place else ""
            text = f"{word} {check.check}: {said(check, each)} ({each.rule}){place}"
            if each.frame:
                found.setdefault(each.frame, []).append(text)
            if each.reference and each.reference != each.frame:
                found.setdefault(each.reference, []).append(f"{said_of_reference(check, each)} ({check.check})")
    for cause in diagnosis.causes:
        if cause.score < BELIEVED:
            continue
        for word, clues in (("CAUSE", cause.support.for_it), ("AGAINST", cause.support.against)):
            for clue in clues:
                for frame in clue.frames:
                    found.setdefault(frame, []).append(f"{word} {cause.rule.title} ({cause.name}): {clue.text}")
    # A broken limit is what a reader looks for: it comes first.
    return {
        frame: "\n".join(sorted(dict.fromkeys(texts), key=lambda text: not text.startswith("FAIL")))
        for frame, texts in found.items()
    }


def focus_of(case: Case, diagnosis: Diagnosis) -> int:
    """The frame to look at first: evidence of the first cause, best one that breaks a limit; else the worst violation;
    0 if there is neither."""
    return next(iter(_telling_frames(case, diagnosis)), 0)


def annotate(case: Case, diagnosis: Diagnosis, folder: Path) -> Annotated:
    """Write `annotated.pcapng` and up to three slices into `folder`. Raises CaptureError for what is no capture."""
    comments = comments_of(case, diagnosis)
    digest = sha256_file(case.capture)
    heading = _heading(case, diagnosis, digest)
    target = folder / ANNOTATED
    worst = _worst_frames(case, diagnosis)
    wanted: dict[Path, tuple[str, frozenset[int] | None]] = {target: (heading, None)}
    slices = []
    for frame in worst:
        first = max(1, frame - AROUND)
        path = folder / f"{SLICE}{frame}.pcapng"
        text = f"{heading}\nFrames {first} to {frame + AROUND} of it, around frame {frame}."
        wanted[path] = (text, frozenset(range(first, frame + AROUND + 1)))
        slices.append((path, frame - first + 1))
    _write(case, wanted, comments)
    focus = focus_of(case, diagnosis)
    return Annotated(target, tuple(slices), focus, comments.get(focus, "").partition("\n")[0], len(comments), digest)


def _write(case: Case, wanted: dict[Path, tuple[str, frozenset[int] | None]], comments: dict[int, str]) -> None:
    """All files in one pass, each whole or not at all."""
    temporary = {path: path.with_name(f".{path.name}.tmp") for path in wanted}
    try:
        with contextlib.ExitStack() as stack:
            targets = [
                Target(stack.enter_context(temporary[path].open("wb")), heading, only)
                for path, (heading, only) in wanted.items()
            ]
            rewrite(case.capture, targets, comments=comments)
        for path, written in temporary.items():
            written.replace(path)
    finally:
        for written in temporary.values():
            written.unlink(missing_ok=True)


def _telling_frames(case: Case, diagnosis: Diagnosis) -> list[int]:
    """Frames from the most telling on: evidence that breaks a limit, other evidence, what the cause cannot explain,
    then the worst violations."""
    broken = [each.frame or each.reference for _, each in worst_packets(case)]
    support = diagnosis.first.support if diagnosis.first is not None else Support(0.0)
    evidence = [frame for clue in support.for_it for frame in clue.frames]
    outside = [frame for clue in support.against for frame in clue.frames]
    both = [frame for frame in broken if frame in set(evidence) - set(outside)]
    return list(dict.fromkeys(frame for frame in (*both, *evidence, *outside, *broken) if frame))


def _worst_frames(case: Case, diagnosis: Diagnosis) -> list[int]:
    """The most telling frames that do not lie in each other's slices."""
    apart: list[int] = []
    for frame in _telling_frames(case, diagnosis):
        if all(abs(frame - other) > AROUND for other in apart):
            apart.append(frame)
        if len(apart) == SLICES:
            break
    return apart


def _heading(case: Case, diagnosis: Diagnosis, digest: str) -> str:
    lines = []
    if case.result is not None:
        lines.append(f"{badge(case)} {name_of(case)}")
        lines += [f"{check.verdict} {headline(check)}" for check in case.result.checks]
    lines.append(f"Diagnosis: {diagnosis.sentence}")
    if case.info is not None:
        lines.append(f"Run {case.info.run_id}, bench {case.info.bench.get('bench')}")
    lines.append(f"Annotated copy of {case.capture.name}, SHA-256 {digest}")
    return "\n".join(lines)
