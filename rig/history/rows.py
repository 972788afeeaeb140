"""From a run record to rows of the index. Reads run.json, verdicts.json and plan.yaml; judges nothing anew."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from rig.errors import InternalError, PlanError
from rig.record import VERDICTS, RunInfo, load_run

State = Literal["green", "red", "open", "skip"]
"""A verdict as the plan wants it: an expected FAIL is green, PASS in its place red; ERROR and INCONCLUSIVE are open."""


@dataclass(frozen=True)
class ResultRow:
    """One check of one run. value, bound: the figure that is followed over time and its limit, ns (counts: packets).

    falling: smaller is worse. reason: only where the state is not green.
    """

    check: str
    metric: str
    state: State
    verdict: str
    n: int = 0
    figure: str | None = None
    value: int | None = None
    bound: int | None = None
    falling: bool = False
    reason: str | None = None


@dataclass(frozen=True)
class RunRow:
    """One run. folder: `<set>/<run>`. stamp: tells whether its verdicts have changed since. origin: what made the set.

    error: `side, phase: what` of a run that could not be finished. findings: names of what was wrong with the evidence.
    """

    folder: str
    stamp: str
    set_id: str
    origin: str
    plan: str
    point: str
    bench: str
    profile: str
    started_ms: int
    attempt: int
    outcome: str
    verdict: str
    variant: str | None
    firmware: str | None
    build: str | None
    commit_id: str | None
    dirty: bool | None
    plan_hash: str
    e_ns: int
    error: str | None
    findings: str
    results: tuple[ResultRow, ...] = ()


def stamp_of(run: Path) -> str | None:
    """Changes when the run's verdicts do; None while there are none."""
    try:
        found = (run / VERDICTS).stat()
    except OSError:
        return None
    return f"{found.st_mtime_ns}.{found.st_size}"


def read_run(run: Path) -> RunRow:
    """The rows of one run folder; raises InternalError when it cannot be read."""
    info = load_run(run)
    stamp = stamp_of(run)
    try:
        verdicts = json.loads((run / VERDICTS).read_bytes())
        if verdicts["schema"] != 1:
            raise InternalError(f"{run / VERDICTS}: schema {verdicts['schema']!r} is not known to this rig")
        return run_row(info, verdicts, _expected(run, info), _origin(run.parent), stamp or "")
    except OSError as error:
        raise InternalError(f"cannot read {run / VERDICTS}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InternalError(f"{run / VERDICTS} holds no verdicts: {error}") from error


def run_row(
    info: RunInfo, verdicts: Mapping[str, Any], expected_to_fail: Sequence[str], origin: str, stamp: str
) -> RunRow:
    """The rows of a run at hand; the bulk path for stores that are filled without run folders."""
    error = info.error
    # Kept texts are cut: an index is no place for a board's whole last words.
    words = f"{error['side']}, {error['phase']}: {error['what']}"[:400] if error else None
    return RunRow(
        folder=info.run_id,
        stamp=stamp,
        set_id=info.set_id,
        origin=origin,
        plan=info.plan_name,
        point=info.point,
        bench=str(info.bench.get("bench", "?")),
        profile=str(verdicts["profile"]),
        started_ms=_milliseconds(info.started_utc),
        attempt=info.attempt,
        outcome=info.outcome,
        verdict=str(verdicts["verdict"]),
        variant=info.firmware.get("variant"),
        firmware=info.firmware.get("sha256"),
        build=info.firmware.get("build_id"),
        commit_id=info.controller.get("commit"),
        dirty=info.controller.get("dirty"),
        plan_hash=info.expanded_sha256,
        e_ns=int(verdicts["e_ns"]),
        error=words,
        findings=",".join(sorted({str(finding["name"]) for finding in verdicts["findings"]})),
        results=tuple(_result(check, check["check"] in expected_to_fail) for check in verdicts["checks"]),
    )


def _result(check: Mapping[str, Any], fails: bool) -> ResultRow:
    verdict = str(check["verdict"])
    state: State = {"PASS": "green", "FAIL": "red", "SKIP": "skip"}.get(verdict, "open")  # type: ignore[assignment]
    if fails and state in ("green", "red"):
        state = "red" if state == "green" else "green"
    figure, value, bound, falling = _figure(check)
    reason = None if state == "green" else str(check["reason"])[:400]
    return ResultRow(
        str(check["check"]),
        str(check["metric"]),
        state,
        verdict,
        int(check["n"]),
        figure,
        value,
        bound,
        falling,
        reason,
    )


def _figure(check: Mapping[str, Any]) -> tuple[str | None, int | None, int | None, bool]:
    """(name, value, limit, falling) of the figure that is followed: that of the first limit which has one."""
    summary = check.get("summary") or {}
    quantiles = {one["name"]: one["value_ns"] for one in summary.get("quantiles", ())}
    for limit in check.get("limits", ()):
        key, falling = str(limit["key"]), ">=" in str(limit["rule"])
        if limit.get("limit_ns") is not None and summary:
            extreme = summary.get("min_ns" if falling else "max_ns")
            value = quantiles.get(key, summary.get("mean_ns") if key == "mean" else extreme)
            return key, value if isinstance(value, int) else None, int(limit["limit_ns"]), falling
        if key == "count":
            return key, int(limit["beyond"]), None, falling
    return None, None, None, False


def _expected(run: Path, info: RunInfo) -> tuple[str, ...]:
    try:
        text = (run / "plan.yaml").read_bytes()
    except OSError:
        return ()
    return _expected_to_fail(text, info.point)


@functools.lru_cache(maxsize=1024)
def _expected_to_fail(text: bytes, point: str) -> tuple[str, ...]:
    if b"expect" not in text:  # loading a plan costs more than all the rest
        return ()
    from rig.plan.load import load_plan_bytes
    from rig.plan.yaml_positions import read_document

    try:
        expect = load_plan_bytes(text, Path("plan.yaml")).point(point).plan.expect
        return tuple(expect.fail) if expect else ()
    except PlanError:
        # Written for another version of the rig: what it expects is there to be read all the same.
        data = read_document(text, "plan.yaml").data
        found = data.get("expect") if isinstance(data, dict) else None
        names = found.get("fail") if isinstance(found, dict) else None
        return tuple(map(str, names)) if isinstance(names, list) else ()


@functools.lru_cache(maxsize=256)
def _origin(directory: Path) -> str:
    """What made a set: `nightly`, `pytest`, `run`, …; empty when it does not say."""
    try:
        command = json.loads((directory / "set.json").read_bytes())["command"]
        return str(command[1] if command[0] == "rig" else command[0])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return ""


def _milliseconds(utc: str) -> int:
    return round(datetime.fromisoformat(utc).timestamp() * 1000)
