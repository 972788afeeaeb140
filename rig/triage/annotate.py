"""The annotated capture: packet comments where the verdict and the causes point, and slices around the worst.

The original is never touched; its SHA-256 stands in the capture comment. Comments begin with FAIL (a limit is broken)
or CAUSE (evidence), so that `frame.comment contains "FAIL"` finds them.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rig.plan.units import format_ns
from rig.record import sha256_file
from rig.timing.limits import format_value
from rig.timing.verdict import Verdict
from rig.triage.case import Case
from rig.triage.diagnosis import Diagnosis
from rig.triage.pcapng_writer import Target, rewrite

AROUND: Final = 15
"""Frames before and after the worst ones in their slices."""
SLICES: Final = 3


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
    for check in case.result.checks if case.result else ():
        for each in check.violations:
            limit = "" if each.limit_ns is None else f", limit {format_ns(each.limit_ns)}"
            margin = "" if each.margin_ns is None else f", margin {format_ns(each.margin_ns)}"
            word = "FAIL" if check.verdict is Verdict.FAIL else str(check.verdict)
            text = f"{word} {check.check}: {format_value(each.value_ns)}{limit}{margin} ({each.rule})"
            if each.place:
                text += f" [{each.place}]"
            if each.frame:
                found.setdefault(each.frame, []).append(text)
            if each.reference:
                pointer = f", answer in frame {each.frame}" if each.frame and each.frame != each.reference else ""
                found.setdefault(each.reference, []).append(f"{text}{pointer}")
    for cause in diagnosis.causes:
        if cause.score < 0.5:
            continue
        for clue in cause.support.for_it:
            for frame in clue.frames:
                found.setdefault(frame, []).append(f"CAUSE {cause.name}: {clue.text}")
    # A broken limit is what a reader looks for: it comes first.
    return {
        frame: "\n".join(sorted(dict.fromkeys(texts), key=lambda text: not text.startswith("FAIL")))
        for frame, texts in found.items()
    }


def focus_of(case: Case, diagnosis: Diagnosis) -> int:
    """The frame to look at first: the worst violation, else the first evidence; 0 if there is neither."""
    for check in case.result.checks if case.result else ():
        if check.verdict is Verdict.FAIL:
            for each in check.violations:
                return each.frame or each.reference
    first = diagnosis.first
    if first is not None:
        return next((clue.frames[0] for clue in first.support.for_it if clue.frames), 0)
    return 0


def annotate(case: Case, diagnosis: Diagnosis, folder: Path) -> Annotated:
    """Write `annotated.pcapng` and up to three slices into `folder`. Raises CaptureError for what is no capture."""
    comments = comments_of(case, diagnosis)
    digest = sha256_file(case.capture)
    heading = _heading(case, diagnosis, digest)
    target = folder / "annotated.pcapng"
    worst = _worst_frames(case, diagnosis)[:SLICES]
    wanted: dict[Path, tuple[str, frozenset[int] | None]] = {target: (heading, None)}
    slices = []
    for frame in worst:
        first = max(1, frame - AROUND)
        path = folder / f"frame-{frame}.pcapng"
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


def _worst_frames(case: Case, diagnosis: Diagnosis) -> list[int]:
    frames = [
        each.frame or each.reference
        for check in (case.result.checks if case.result else ())
        if check.verdict is Verdict.FAIL
        for each in check.violations
    ]
    if diagnosis.first is not None:
        frames += [clue.frames[0] for clue in diagnosis.first.support.for_it if clue.frames]
    apart: list[int] = []
    for frame in dict.fromkeys(frames):
        if frame and all(abs(frame - other) > AROUND for other in apart):
            apart.append(frame)
    return apart


def _heading(case: Case, diagnosis: Diagnosis, digest: str) -> str:
    lines = []
    if case.result is not None:
        name = case.result.plan + (f"[{case.result.point}]" if case.result.point else "")
        lines.append(f"{case.result.verdict} {name}")
        lines += [f"{check.verdict} {check.check}: {check.reason}" for check in case.result.checks]
    lines.append(f"Diagnosis: {diagnosis.sentence}")
    if case.info is not None:
        lines.append(f"Run {case.info.run_id}, bench {case.info.bench.get('bench')}")
    lines.append(f"Annotated copy of {case.capture.name}, SHA-256 {digest}")
    return "\n".join(lines)
