"""What a runner's events.jsonl says, as one value. Pure reading: the same call during a run and on an old record."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rig.errors import JetsonError


@dataclass(frozen=True)
class Schedule:
    """How well an open load kept its times. Lateness is send_ns − intended_ns, in ns; `late` counts sends that left
    more than half a period behind. The pipeline's share: requests whose post-processing ended after their time."""

    every_ns: int
    sends: int
    late: int
    late_by_pipeline: int
    p50_ns: int
    p99_ns: int
    worst_ns: int


@dataclass(frozen=True)
class RunnerReport:
    """The sum of one run on the Jetson.

    complete: the file has its final record. reason: `done`, `error`, `deadline`, `parent gone`, `signal N`,
    `aborted by the rig`, `lease lost`, `events cannot be written`. counts: the ledger, docs/jetson.md lists the names.
    sentinels: kind → answered. boot_ids: boards seen, in order; two mean a reboot. provider, fallback: what the engine
    really used, and whether that is less than the machine should offer. clock_step_ns: how far the wall clock moved
    against the monotonic one during the run. throttled: evidence of throttling, one sentence each.
    """

    complete: bool
    reason: str
    counts: Mapping[str, int]
    sentinels: Mapping[str, bool]
    boot_ids: tuple[int, ...]
    board_counters: Mapping[str, Mapping[str, int]]
    """Sentinel kind → the board's counters as its answer carried them."""
    engine: Mapping[str, Any]
    schedule: Schedule | None
    clock_step_ns: int
    throttled: tuple[str, ...]
    errors: tuple[str, ...]
    spec: Mapping[str, Any] = field(default_factory=dict)

    @property
    def provider(self) -> str | None:
        return self.engine.get("provider")

    @property
    def fallback(self) -> bool:
        return bool(self.engine.get("fallback", False))

    def count(self, name: str) -> int:
        """A counter; those that never moved are not in the file and are 0."""
        return self.counts.get(name, 0)


ANSWERS = b'"event":"answer"'
"""Marks the lines of answers, as the runner writes them: half of a large file."""


def iterate_events(path: Path, *, without: bytes | None = None) -> Iterator[dict[str, Any]]:
    """The events of a file in their order; a cut last line is left out. JetsonError for a line that is no event.

    without: lines that hold this text are passed over unread, which is a tenth of the work of parsing them.
    """
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if without is not None and without in line:
                continue
            try:
                event = json.loads(line)
                event["event"].lower()
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                if not line.endswith(b"\n"):
                    return
                raise JetsonError(f"{path}:{number}: not an event of the runner", seen=repr(line[:80])) from error
            yield event


def read_report(path: Path) -> RunnerReport:
    """Read events.jsonl (jetson.jsonl in a run record) in one pass."""
    return report_of(iterate_events(path, without=ANSWERS))


def report_of(events: Iterable[dict[str, Any]]) -> RunnerReport:
    """The sum of a run's events, in their order."""
    last: dict[str, dict[str, Any]] = {}
    clocks: list[int] = []
    hosts: list[dict[str, Any]] = []
    errors: list[str] = []
    lateness: list[int] = []
    by_pipeline = 0
    counters: dict[str, dict[str, int]] = {}
    for event in events:
        kind = event["event"]
        if kind == "request":
            if event["intended_ns"] is not None and not event["warmup"]:
                lateness.append(event["send_ns"] - event["intended_ns"])
                by_pipeline += event["post_end_ns"] > event["intended_ns"]
        elif kind == "clock":
            clocks.append(event["realtime_ns"] - event["t_ns"])
        elif kind == "host":
            hosts.append(event)
        elif kind == "sentinel-answer":
            counters[event["kind"]] = event["counters"]
        elif kind == "error":
            errors.append(event["what"])
        elif kind in ("send-error", "receive-error"):
            errors.append(f"{kind}: {event['text']}")
        elif kind in ("spec", "engine", "end"):
            last[kind] = event
    end, spec = last.get("end", {}), last.get("spec", {}).get("spec", {})
    engine = {key: value for key, value in last.get("engine", {}).items() if key not in ("event", "t_ns")}
    return RunnerReport(
        complete="end" in last,
        reason=end.get("reason", "cut"),
        counts=end.get("counts", {}),
        sentinels=end.get("sentinels", {}),
        boot_ids=tuple(end.get("boot_ids", ())),
        board_counters=counters,
        engine=engine,
        schedule=_schedule(lateness, by_pipeline, int(spec.get("every_ns", 0))) if lateness else None,
        clock_step_ns=clocks[-1] - clocks[0] if clocks else 0,
        throttled=_throttling(hosts),
        errors=tuple(errors),
        spec=spec,
    )


def _schedule(lateness: list[int], by_pipeline: int, every_ns: int) -> Schedule:
    ordered = sorted(lateness)
    count = len(ordered)
    return Schedule(
        every_ns=every_ns,
        sends=count,
        late=sum(1 for value in ordered if value > every_ns // 2),
        late_by_pipeline=by_pipeline,
        p50_ns=ordered[-(-count * 50 // 100) - 1],
        p99_ns=ordered[-(-count * 99 // 100) - 1],
        worst_ns=ordered[-1],
    )


_WHEN = {"start": "at the start", "run": "during the run", "end": "at the end"}


def _throttling(hosts: list[dict[str, Any]]) -> tuple[str, ...]:
    """Over-current events that happened during the run, and cooling (fans aside) in action at any look."""
    if not hosts:
        return ()
    first, last = hosts[0], hosts[-1]
    found = [
        f"{name} went from {before} to {last['over_current'].get(name)}"
        for name, before in first["over_current"].items()
        if last["over_current"].get(name) != before
    ]
    for host in hosts:
        found += [
            f"cooling device {name} at state {state} {_WHEN.get(host['when'], host['when'])}"
            for name, state in host["cooling"].items()
            if state not in (None, "0") and "fan" not in name.lower()
        ]
    return tuple(dict.fromkeys(found))
