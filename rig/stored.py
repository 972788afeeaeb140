"""What a record says where it cannot be judged again: its verdicts of the time, or that there are none.

A capture may have been pruned, or left behind when the record was copied. Nobody may take that for health.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from rig.errors import RigError
from rig.history.prune import pruned_on
from rig.judging import metric_name
from rig.plan.load import PlanFile, Point, load_plan_bytes
from rig.record import VERDICTS, load_run
from rig.recorded import DAMAGED
from rig.timing.evidence import Finding
from rig.timing.verdict import SCHEMA, CheckResult, PointResult, Verdict, unjudged

UNREADABLE: Final = (RigError, OSError)
"""What judging a record that lacks parts, or holds damaged ones, may raise."""


def why_not_judged(directory: Path, error: Exception) -> str:
    """One sentence about what judging a record ran into."""
    if not (directory / "capture.pcapng").exists() and (directory / "run.json").exists():
        day = pruned_on(directory)
        return f"its capture was pruned on {day}" if day else "the record holds no capture.pcapng"
    if isinstance(error, RigError):
        return error.what
    return f"a part of the record cannot be read: {error}"


def stored_result(directory: Path) -> PointResult | None:
    """verdicts.json as it was written, without limits and samples: verdicts, reasons, findings. None where it cannot
    be read."""
    try:
        found = json.loads((directory / VERDICTS).read_bytes())
        if found["schema"] != SCHEMA:
            return None
        return PointResult(
            str(found["plan"]),
            str(found["point"]),
            str(found["profile"]),
            int(found["e_ns"]),
            Verdict(found["verdict"]),
            tuple(_check(check) for check in found["checks"]),
            tuple(_finding(finding) for finding in found["findings"]),
        )
    except (OSError, *DAMAGED):
        return None


def unjudgeable(directory: Path, error: Exception, point: Point | None) -> PointResult:
    """ERROR for every check of a record that could not be judged for `error`. point: as in its plan, None where that
    cannot be read."""
    stored = stored_result(directory)
    hint = error.hint if isinstance(error, RigError) else None
    try:
        info = load_run(directory)
        plan, name, profile = info.plan_name, info.point, str(info.bench.get("profile", ""))
        if stored:
            hint = f"`rig triage {directory}` shows its verdicts of the time: {stored.verdict}"
    except RigError:
        plan, name, profile = directory.name, "", ""
    if point is not None:
        checks = [(check, metric_name(wanted)) for check, wanted in point.plan.checks.items()]
    else:
        checks = [(check.check, check.metric) for check in stored.checks] if stored else []
    reason = f"the record cannot be judged: {why_not_judged(directory, error)}"
    return unjudged(plan, name, profile, 0, checks or [("every check", "")], Verdict.ERROR, reason, hint=hint)


def point_of(directory: Path, plan_file: PlanFile | None = None) -> Point | None:
    """The point that a record ran, by its own plan or by `plan_file`; None where it cannot be read."""
    try:
        info = load_run(directory)
        plan_file = plan_file or load_plan_bytes((directory / "plan.yaml").read_bytes(), Path(info.plan_file))
        return plan_file.point(info.point)
    except UNREADABLE:
        return None


def _check(found: dict[str, Any]) -> CheckResult:
    return CheckResult(
        str(found["check"]),
        str(found["metric"]),
        Verdict(found["verdict"]),
        str(found["reason"]),
        n=int(found["n"]),
        of=str(found["of"]),
        notes=tuple(map(str, found["notes"])),
        seen=found["seen"],
        hint=found["hint"],
    )


def _finding(found: dict[str, Any]) -> Finding:
    name, side, sentence = str(found["name"]), str(found["side"]), str(found["sentence"])
    return Finding(name, side, sentence, tuple(map(str, found["voids"])), tuple(map(str, found["explains"])))
