"""`rig triage`: the whole of it, from a record or a capture to a summary on the terminal and files to look at.

The files go beside the record, never into it: `captures/<set>/<run>.triage/`, or `<file>.triage/` beside a capture, or
where --out says. Everything there may be deleted and made again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rig.bench.model import BenchFile
from rig.errors import CaptureError, InternalError
from rig.plan.load import PlanFile
from rig.record import from_here, to_json, write_atomic
from rig.triage.against import Comparison, compare, comparison_lines
from rig.triage.annotate import ANNOTATED, SLICE, Annotated, annotate
from rig.triage.case import Case, load_case, require_record_or_capture
from rig.triage.diagnosis import Diagnosis, diagnose
from rig.triage.headline import as_expected, headlines, imposed, verdict_of
from rig.triage.report import render_report, write_report
from rig.triage.summary import summary_lines
from rig.triage.wireshark import open_command, write_profile

SCHEMA: Final = "rig.triage/1"


@dataclass(frozen=True)
class Triage:
    """What triage found and where it wrote it. annotated: None when there is no readable capture."""

    case: Case
    diagnosis: Diagnosis
    comparison: Comparison | None
    annotated: Annotated | None
    folder: Path
    report: Path


def output_folder(path: Path) -> Path:
    """Where the files about a record or a capture go unless somebody says otherwise."""
    resolved = path.resolve()
    return resolved.with_name(f"{resolved.name}.triage")


def triage(
    path: Path,
    plan_file: PlanFile | None = None,
    *,
    bench: BenchFile | None = None,
    point: str | None = None,
    against: Path | None = None,
    out: Path | None = None,
    say: Callable[[str], None] = print,
) -> Triage:
    """Diagnose `path`, tell the result through `say`, then write report, annotated capture and Wireshark profile.

    Raises RigError when `path` is neither a record nor a capture, or the folder cannot be written.
    """
    require_record_or_capture(path)
    case = load_case(path, plan_file, bench=bench, point=point)
    diagnosis = diagnose(case)
    for line in summary_lines(case, diagnosis):
        say(line)
    comparison = None
    if against is not None:
        require_record_or_capture(against)
        comparison = compare(case, load_case(against, plan_file, bench=bench, point=point))
        say("")
        for line in comparison_lines(comparison):
            say(line)
    folder = out or output_folder(path)
    _make(folder, path)
    earlier = _captures_of_before(folder)
    annotated, command = None, ""
    write_profile(folder / "wireshark")
    try:
        if not case.capture.is_file():
            raise CaptureError(f"there is no {case.capture.name}")
        annotated = annotate(case, diagnosis, folder)
        # A report may be read from anywhere: the line changes to the folder first.
        command = open_command(Path("wireshark"), Path(annotated.capture.name), annotated.focus)
    except CaptureError as error:
        say(f"\nno annotated capture: {error.what}")
    written = {annotated.capture, *(path for path, _ in annotated.slices)} if annotated is not None else set()
    for stale in earlier - written:
        if stale.resolve() != case.capture.resolve():
            stale.unlink(missing_ok=True)
    report = folder / "report.html"
    shown = f"cd {_quoted(folder.resolve())} && {command}" if command else ""
    write_report(report, render_report(case, diagnosis, annotated=annotated, command=shown, comparison=comparison))
    write_atomic(folder / "diagnosis.json", to_json(_as_text(as_json(case, diagnosis, comparison))))
    say("")
    say(f"report:  {from_here(report)}")
    if annotated is not None:
        where = from_here(folder)
        say(f"capture: {open_command(where / 'wireshark', where / annotated.capture.name, annotated.focus)}")
    return Triage(case, diagnosis, comparison, annotated, folder, report)


def as_json(case: Case, diagnosis: Diagnosis, comparison: Comparison | None = None) -> dict[str, Any]:
    """The diagnosis for programs; schema `rig.triage/1`, described in docs/triage.md."""
    first = diagnosis.first
    return {
        "schema": SCHEMA,
        "verdict": verdict_of(case) or None,
        "reason": headlines(case)[0],
        "as_expected": as_expected(case),
        "imposed": imposed(case) or None,
        "diagnosis": diagnosis.sentence,
        "cause": first.name if first else None,
        "side": first.rule.side if first else None,
        "causes": [
            {
                "name": cause.name,
                "title": cause.headline,
                "side": cause.rule.side,
                "score": round(cause.score, 3),
                "picture": cause.rule.picture,
                "for": [{"text": clue.text, "frames": list(clue.frames)} for clue in cause.support.for_it],
                "against": [{"text": clue.text, "frames": list(clue.frames)} for clue in cause.support.against],
                "experiment": cause.experiment,
            }
            for cause in diagnosis.causes
        ],
        "against": None
        if comparison is None
        else {
            "good": comparison.good,
            "first_moved": comparison.first or None,
            "sentence": comparison.sentence,
            "changed": [list(row) for row in comparison.changed],
        },
        "unread": list(case.unread),
    }


def _as_text(value: Any) -> Any:
    """The same with half characters, which a damaged log may hold and no file can, replaced."""
    if isinstance(value, dict):
        return {key: _as_text(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_as_text(one) for one in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _make(folder: Path, path: Path) -> None:
    if (folder / "run.json").exists():
        raise InternalError(
            f"{folder} is a run record; triage never writes into one", hint="name another folder with --out"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InternalError(
            f"cannot make {folder} for what triage found about {path.name}: {error.strerror}",
            hint="name a folder that can be written with --out",
        ) from error


def _captures_of_before(folder: Path) -> set[Path]:
    """What an earlier triage left in its folder beside what every triage writes anew."""
    if read_diagnosis(folder) is None:
        return set()
    slices = (path for path in folder.glob(f"{SLICE}*.pcapng") if path.stem.removeprefix(SLICE).isdecimal())
    return {folder / ANNOTATED, *slices}


def _quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))


def read_diagnosis(folder: Path) -> dict[str, Any] | None:
    """The diagnosis.json of a triage folder, None where there is none of this schema."""
    try:
        content = json.loads((folder / "diagnosis.json").read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and content.get("schema") == SCHEMA else None
