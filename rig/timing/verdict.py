"""Verdicts and results: what a run's judgement is as data, and its JSON, which is the same for the same input.

Order when results are summed up: FAIL, ERROR, INCONCLUSIVE, PASS; SKIP stands apart. The JSON has no wall clock and
no path in it, keys are sorted, durations are integer ns, a lost sample is the word "lost", one of which nothing is
known "open". `compared_within` and `unprovable` are only written where they say something.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, Final

from rig.timing.evidence import Finding
from rig.timing.limits import LimitResult
from rig.timing.metrics.measurement import INFINITE_NS, NO_FLOOR_NS
from rig.timing.statistics import Summary

SCHEMA: Final = 1


class Verdict(Enum):
    """Members in the order in which they are summed up."""

    FAIL = "FAIL"
    ERROR = "ERROR"
    INCONCLUSIVE = "INCONCLUSIVE"
    PASS = "PASS"
    SKIP = "SKIP"

    def __str__(self) -> str:
        return self.value


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a whole; SKIP when there is nothing but skips."""
    order = list(Verdict)
    return min(verdicts, key=order.index, default=Verdict.SKIP)


@dataclass(frozen=True)
class Violation:
    """One packet, or pair of packets, beyond a limit.

    frame shows it, reference is what it is measured against (0: none). at_ns counts from the first frame of the
    capture. margin_ns: limit minus value, negative when beyond a maximum; None for what was lost or has no limit_ns.
    unit: of value_ns, which for bursts and rates is `packets` or `bit/s`.
    """

    rule: str
    place: str
    frame: int
    reference: int
    at_ns: int
    value_ns: int
    limit_ns: int | None
    margin_ns: int | None
    unit: str = "ns"


@dataclass(frozen=True)
class CheckResult:
    """One check. reason: one sentence that explains the verdict. n: samples, or what is counted. voided_by: names of
    the findings that turned a PASS into INCONCLUSIVE, or that may have caused what would be a FAIL. compared: figure →
    its observed value in ns, for the plan's comparisons; compared_within: figure → the least and the most that it can
    be, where samples are open or a clock had to be aligned. unprovable: why the samples cannot show that all is well.
    """

    check: str
    metric: str
    verdict: Verdict
    reason: str
    limits: tuple[LimitResult, ...] = ()
    n: int = 0
    of: str = ""
    summary: Summary | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    set_aside: Mapping[str, int] = field(default_factory=dict)
    violations: tuple[Violation, ...] = ()
    display_filter: str = ""
    voided_by: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    confidence: Fraction | None = None
    proof: str = ""
    compared: Mapping[str, int] = field(default_factory=dict)
    compared_within: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    unprovable: str = ""
    seen: str | None = None
    hint: str | None = None


@dataclass(frozen=True)
class PointResult:
    """One run of one point. counts: who counted what. window_ns: relative to the first frame of the capture. notes:
    what was taken for granted of a capture that is no record."""

    plan: str
    point: str
    profile: str
    e_ns: int
    verdict: Verdict
    checks: tuple[CheckResult, ...]
    findings: tuple[Finding, ...] = ()
    counts: Mapping[str, int | None] = field(default_factory=dict)
    window_ns: tuple[int | None, int | None] = (None, None)
    notes: tuple[str, ...] = ()

    def check(self, name: str) -> CheckResult:
        """The result of one check; KeyError when there is none of that name."""
        for result in self.checks:
            if result.check == name:
                return result
        raise KeyError(name)

    def to_json(self) -> str:
        """Deterministic JSON text, ending in a newline; `schema` counts its format."""
        return json.dumps({"schema": SCHEMA, **_plain(self)}, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def unjudged(
    plan: str,
    point: str,
    profile: str,
    e_ns: int,
    checks: Iterable[tuple[str, str]],
    verdict: Verdict,
    reason: str,
    *,
    seen: str | None = None,
    hint: str | None = None,
) -> PointResult:
    """A run that gave nothing to judge (ERROR, SKIP): every check, as (name, metric), gets the same verdict."""
    results = tuple(CheckResult(name, metric, verdict, reason, seen=seen, hint=hint) for name, metric in checks)
    return PointResult(plan, point, profile, e_ns, verdict, results)


_DURATIONS = {"value_ns", "low_ns", "high_ns", "min_ns", "max_ns", "mean_ns", "compared", "compared_within"}
_WORDS = {INFINITE_NS: "lost", NO_FLOOR_NS: "open"}
_WHERE_SET = {"compared_within", "unprovable"}


def _plain(value: Any, name: str = "") -> Any:
    """Dataclasses, enums and fractions as JSON values."""
    if name in _DURATIONS and isinstance(value, int) and value in _WORDS:
        return _WORDS[value]
    if isinstance(value, LimitResult):
        spec = value.spec
        return {
            "rule": value.rule,
            "key": spec.key,
            "file": spec.file,
            "line": spec.line,
            "column": spec.column,
            "source": spec.source,
            "verdict": value.verdict,
            "reason": value.reason,
            "beyond": value.beyond,
            "open": value.open,
            "needed": value.needed,
            "limit_ns": value.limit_ns,
            "block": value.block,
            "stretch": value.stretch,
            "marginal": value.marginal,
        }
    if is_dataclass(value) and not isinstance(value, type):
        found = {item.name: getattr(value, item.name) for item in fields(value)}
        return {key: _plain(item, key) for key, item in found.items() if item or key not in _WHERE_SET}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Fraction):
        return f"{float(value * 100):.6g} %"
    if isinstance(value, Mapping):
        return {str(key): _plain(item, name) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item, name) for item in value]
    return value
