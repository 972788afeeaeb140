"""From a run record to rows of the index. Reads run.json, verdicts.json and plan.yaml; judges nothing anew.

What a set keeps of a plan's comparisons is taken in beside the runs, as if the runs of the plan were one.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rig.errors import InternalError, PlanError
from rig.record import COMPARISONS, VERDICTS, RunInfo, load_run, runs_of

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
    """One run, or the comparisons over several. folder: `<set>/<run>`, of comparisons `<set>/<file>`, as they lie on
    disk. stamp: tells whether its verdicts have changed since. origin: what made the set. named: the folder by its
    run.json, which is another one where the record was copied or renamed.

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
    named: str = ""


def is_comparisons(name: str) -> bool:
    """Whether a file of this name, `comparisons-PLAN.BENCH.json`, holds what was judged of a plan's comparisons."""
    return name.startswith(COMPARISONS) and name.endswith(".json") and name.count(".") == 2


def stamp_of(judged: Path) -> str | None:
    """Changes when the verdicts of a run folder, or a file of comparisons, do; None while there are none."""
    try:
        found = (judged if is_comparisons(judged.name) else judged / VERDICTS).stat()
    except (OSError, ValueError):  # ValueError: a damaged record may name anything
        return None
    return f"{found.st_mtime_ns}.{found.st_size}"


def read_run(judged: Path) -> RunRow:
    """The rows of one run folder or file of comparisons; raises InternalError when it cannot be read."""
    stamp = stamp_of(judged) or ""
    row = _comparisons_row(judged, stamp) if is_comparisons(judged.name) else _run_row(judged, stamp)
    return replace(row, folder=f"{judged.parent.name}/{judged.name}", set_id=judged.parent.name, named=row.folder)


def _run_row(judged: Path, stamp: str) -> RunRow:
    info = load_run(judged)
    with _verdicts(judged / VERDICTS) as verdicts:
        return _storable(run_row(info, verdicts, _expected(judged, info), _origin(judged.parent), stamp))


def _comparisons_row(path: Path, stamp: str) -> RunRow:
    """As of one run that began with the last of those compared. What has no bound decides nothing and is left out."""
    plan, _, bench = path.name.removeprefix(COMPARISONS).removesuffix(".json").partition(".")
    runs = [(run, load_run(run)) for run in runs_of(path.parent) if run.name.partition("-")[2].startswith(plan)]
    mine = [(run, info) for run, info in runs if (info.plan_name, info.bench.get("bench")) == (plan, bench)]
    if not mine:
        raise InternalError(f"{path} compares runs of which none is left")
    run, last = mine[-1]
    images = sorted({str(info.firmware.get("sha256")) for _, info in mine})
    info = replace(
        last,
        run_id=f"{last.set_id}/{path.name}",
        point="",
        attempt=1,
        outcome="completed",
        error=None,
        expanded_sha256=last.plan_sha256,
        # Several images are the same as before only when all are.
        firmware=last.firmware
        if len(images) == 1
        else {"sha256": hashlib.sha256(",".join(images).encode()).hexdigest()},
    )
    with _verdicts(path) as verdicts:
        expected, unbounded = _of_comparisons((run / "plan.yaml").read_bytes())
        row = _storable(run_row(info, verdicts, expected, _origin(path.parent), stamp))
    return replace(row, results=tuple(result for result in row.results if result.check not in unbounded))


@contextlib.contextmanager
def _verdicts(path: Path) -> Iterator[Mapping[str, Any]]:
    """A verdicts file; InternalError for one that cannot be read, or that the block finds to be no such thing."""
    try:
        verdicts = json.loads(path.read_bytes())
        if verdicts["schema"] != 1:
            raise InternalError(f"{path}: schema {verdicts['schema']!r} is not known to this rig")
        yield verdicts
    except OSError as error:
        raise InternalError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise InternalError(f"{path} holds no verdicts: {error}") from error


def _storable(row: RunRow) -> RunRow:
    """`row`; ValueError where SQLite has no place for one of its values, as a damaged file may have them."""
    parts: list[RunRow | ResultRow] = [row, *row.results]
    for part in parts:
        for field in fields(part):
            value = getattr(part, field.name)
            if isinstance(value, str):
                value.encode()
            elif isinstance(value, int):
                if not -(2**63) <= value < 2**63:
                    raise ValueError(f"{field.name} is beyond 64 bits")
            elif value is not None and field.name != "results":
                raise ValueError(f"{field.name} is {type(value).__name__}")
    return row


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
        started_ms=began_ms(info),
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


@functools.lru_cache(maxsize=1024)
def _of_comparisons(text: bytes) -> tuple[Sequence[str], frozenset[str]]:
    """Names of a plan's comparisons (and checks) that must fail, and of those that only show a difference."""
    from rig.plan.load import load_plan_bytes

    try:
        plan = load_plan_bytes(text, Path("plan.yaml")).plan
    except PlanError:  # written for another version of the rig
        return (), frozenset()
    unbounded = (name for name, one in plan.comparisons.items() if one.difference is None and one.ratio is None)
    return plan.expect.fail if plan.expect else (), frozenset(unbounded)


@functools.lru_cache(maxsize=256)
def _origin(directory: Path) -> str:
    """What made a set: `nightly`, `pytest`, `run`, …; empty when it does not say."""
    try:
        command = json.loads((directory / "set.json").read_bytes())["command"]
        return str(command[1] if command[0] == "rig" else command[0])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return ""


def began_ms(info: RunInfo) -> int:
    """When a run began, ms since 1970; ValueError where run.json tells no time.

    No run begins before its set was made: where the clock went back in between, the set's id is right.
    """
    begun = milliseconds(info.started_utc)
    with contextlib.suppress(ValueError):
        made = datetime.strptime(info.set_id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        begun = max(begun, round(made.timestamp() * 1000))
    return begun


def milliseconds(utc: str) -> int:
    """A time of run.json as ms since 1970; ValueError for what is none."""
    return round(datetime.fromisoformat(utc).timestamp() * 1000)
