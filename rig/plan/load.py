"""From a `*.plan.yaml` to points that can run and be judged, or to one error that holds every fault of the file.

What a record keeps of a plan is the file's own text and the point's name: loading that text under the file's name
gives the same limits at the same lines, so verdicts made offline are byte for byte those made live.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rig.errors import Fault, PlanError
from rig.plan import matrix
from rig.plan.base import Model
from rig.plan.comparison_rules import point_complaints
from rig.plan.explain import build
from rig.plan.limit_rules import misplaced_limits
from rig.plan.model import Expect, Plan
from rig.plan.rules import complaints
from rig.plan.subject import Subject
from rig.plan.yaml_positions import MAX_BYTES, Document, read_document, unique
from rig.plan.yaml_positions import Path as KeyPath

Spelled = dict[str, Any]


@dataclass(frozen=True)
class Point:
    """One combination of the plan's matrix. `name` is empty for a plan without one.

    `overrides` maps the matrix's paths to values as the plan writes them;
    `plan` is the plan with the overrides in their places and no matrix. Its `expect` is about its own checks: what the
    file expects of comparisons stands in the file's plan.
    """

    name: str
    plan: Plan
    overrides: Spelled
    document: Document

    def position(self, *path: str | int) -> tuple[int, int]:
        """(line, column) of a key, such as ("checks", "answer-time", "limits", "p99", "max"), in the plan's file.

        Where the matrix set the value it is the matrix's line; for a key that is not there, the nearest one around it.
        """
        return self.document.position(*path)

    @property
    def expanded_hash(self) -> str:
        """SHA-256 of what runs and what judges: every key with its default, without words for people.

        Comments, spelling (`5 ms` or `5000 us`), description, requirement and comparisons, which are about several
        runs, do not change it; a changed default does.
        """
        told = spell(self.plan) | {"comparisons": {}}
        for key in ("description", "requirement"):
            told.pop(key)
        return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True)
class PlanFile:
    """A loaded plan. `path`: the file's name as messages show it; `text`: its text, verbatim, as records keep it."""

    path: Path
    text: str
    sha256: str
    plan: Plan
    points: tuple[Point, ...]
    document: Document

    def point(self, name: str) -> Point:
        """The point of that name."""
        for point in self.points:
            if point.name == name:
                return point
        names = ", ".join(point.name or "(the only one, without a name)" for point in self.points)
        raise PlanError(f"plan {self.plan.plan} ({self.path}) has no point `{name}`", hint=f"its points: {names}")

    def position(self, *path: str | int) -> tuple[int, int]:
        """(line, column) of a key of the file as it stands, before the matrix. Limits are best asked of a `Point`."""
        return self.document.position(*path)


def load_plan(path: Path) -> PlanFile:
    """Load one plan file; raises PlanError with all its faults, sorted by position."""
    return load_plan_bytes(read_bytes(path, PlanError), path)


def load_plan_bytes(raw: bytes, path: Path) -> PlanFile:
    """The same for a text at hand, such as a record's: `path` only names it."""
    document = read_document(raw, str(path))
    if document.data is None:
        raise _error(document, document.faults)
    plan, faults, broken = build(Plan, document)
    if plan is None:
        faults = _misplaced_first(document, faults, broken)
        faults += _whole_faults(document, *_salvaged(document, broken))
        if not any(path[:1] == ("matrix",) for path in broken):
            faults += matrix.read_axes(document)[1]
        raise _error(document, (*document.faults, *faults))
    axes, faults = matrix.read_axes(document)
    if faults:
        raise _error(document, (*document.faults, *faults, *_whole_faults(document, plan, frozenset())))
    points, faults = _points(matrix.place(document, axes))
    if points or not faults:
        named = point_complaints(plan, [point.name for point in points])
        faults += [document.fault(c.path, c.message, c.suggestion, at_key=c.at_key) for c in named]
    if faults or document.faults:
        raise _error(document, (*document.faults, *faults))
    digest = hashlib.sha256(raw).hexdigest()
    return PlanFile(path, raw.decode("utf-8"), digest, plan, tuple(points), document)


def dump_plan(point: Point) -> str:
    """The point as a plan of its own: every key with its value, matrix applied, without comparisons, which one point
    cannot have; loads to the same plan and hash.

    For people and tools that want the expanded plan; positions in it are its own.
    """
    import yaml

    told = spell(point.plan)
    for key in ("matrix", "comparisons"):
        told.pop(key)
    return str(yaml.safe_dump(told, sort_keys=False, allow_unicode=True, width=110))


def spell(model: Model) -> Spelled:
    """A model as its file would write it, all defaults included."""
    return model.model_dump(mode="json", by_alias=True)


def read_bytes(path: Path, error: type[PlanError] | type[Any]) -> bytes:
    """The file's bytes, not much more than `MAX_BYTES` of them; raises `error` with a Fault when it cannot be read."""
    try:
        if not path.is_file():
            reason = "is not a regular file" if path.exists() else "does not exist"
            raise error(f"{path} {reason}", faults=[Fault(str(path), 0, 0, reason)])
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as os_error:
        reason = f"cannot be read: {os_error.strerror}"
        raise error(f"{path} {reason}", faults=[Fault(str(path), 0, 0, reason)]) from os_error


def _error(document: Document, faults: tuple[Fault, ...]) -> PlanError:
    kept = unique(faults)
    return PlanError(f"{document.file} has {counted(kept)}", faults=kept)


def counted(faults: Sequence[Fault]) -> str:
    """`3 faults`, `a fault`."""
    return f"{len(faults)} faults" if len(faults) != 1 else "a fault"


def _points(placed: list[matrix.Placed]) -> tuple[list[Point], list[Fault]]:
    """The points, and the faults of all of them; a fault that only some have names them."""
    points: list[Point] = []
    by_point: dict[str, tuple[Fault, ...]] = {}
    for one in placed:
        plan, faults, _ = build(Plan, one.document)
        if plan is not None:
            points.append(Point(one.name, _of_a_run(plan), one.overrides, one.document))
            faults = _whole_faults(one.document, plan, frozenset())
        by_point[one.name] = unique(faults)
    times = Counter(fault for faults in by_point.values() for fault in faults)
    found = []
    for fault, count in times.items():
        names = [name for name, faults in by_point.items() if fault in faults]
        where = f", in point {', '.join(names[:3])}{' and others' if len(names) > 3 else ''}"
        found.append(fault if count == len(placed) else replace(fault, message=fault.message + where))
    return points, found


def _of_a_run(plan: Plan) -> Plan:
    """The plan without what it expects of its comparisons: no single run can show that."""
    if plan.expect is None or not plan.comparisons:
        return plan
    expect = Expect(fail=[name for name in plan.expect.fail if name not in plan.comparisons])
    return plan.model_copy(update={"expect": expect})


def _misplaced_first(document: Document, faults: list[Fault], broken: Mapping[KeyPath, list[Fault]]) -> list[Fault]:
    """The faults; of a limit that does not fit its metric only that, not what its contents would have to be."""
    for complaint in misplaced_limits(document.data):
        about = [one for path, found in broken.items() if path[:4] == complaint.path for one in found]
        if about:
            kept = [fault for fault in faults if fault not in about]
            faults = [document.fault(complaint.path, complaint.message, complaint.suggestion, at_key=True), *kept]
    return faults


def _whole_faults(document: Document, plan: Plan | None, broken: frozenset[str]) -> list[Fault]:
    if plan is None:
        return []
    names = {key: _keys(document.data.get(key)) for key in ("flows", "checks")}
    subject = Subject(plan, names["flows"], names["checks"], broken)
    found = complaints(subject)
    return [document.fault(c.path, c.message, c.suggestion, at_key=c.at_key) for c in found]


def _keys(value: Any) -> frozenset[str]:
    return frozenset(value) if isinstance(value, dict) else frozenset()


def _salvaged(document: Document, broken: Iterable[KeyPath]) -> tuple[Plan | None, frozenset[str]]:
    """The plan without its broken parts, so that the rules can speak about the rest in the same pass."""
    data: dict[str, Any] = dict(document.data)
    gone: set[str] = set()
    for path in broken:
        group = data.get(str(path[0])) if path else None
        if len(path) > 1 and path[0] in ("flows", "checks") and isinstance(group, dict):
            data[str(path[0])] = {key: value for key, value in group.items() if key != path[1]}
        elif path:
            data.pop(str(path[0]), None)
            gone.add(str(path[0]))
    for key, stand_in in (("plan", "unnamed"), ("flows", {}), ("checks", {})):
        data.setdefault(key, stand_in)
    plan, _, _ = build(Plan, replace(document, data=data))
    return plan, frozenset(gone)
