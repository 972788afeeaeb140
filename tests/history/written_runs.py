"""Run records for tests, made through the public record writer at whatever time a test says it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from pathlib import Path

from rig.plan.bounds import CountBound, DurationBound
from rig.record import VERDICTS, RunInfo, RunSet, write_atomic
from rig.timing.limits import LimitResult, LimitSpec
from rig.timing.statistics import Quantile, Summary
from rig.timing.verdict import CheckResult, PointResult, Verdict, unjudged, worst

PLAN = """plan: {plan}
flows: {{a: {{udp.dstport: 5005, protocol: token-v2}}}}
checks:
  no-duplicates: {{duplicates: {{of: a}}, limits: {{count: {{max: 0}}}}}}
"""


def timed(name: str, p50_ns: int, max_ns: int = 5_000_000) -> CheckResult:
    """A check with the limit `p50 <= max_ns`."""
    verdict = Verdict.PASS if p50_ns <= max_ns else Verdict.FAIL
    reason = "every limit holds" if verdict is Verdict.PASS else f"p50 of {p50_ns} ns is over {max_ns} ns"
    limit = LimitResult(
        LimitSpec("p50", DurationBound.model_validate({"max": f"{max_ns} ns"})),
        f"p50 <= {max_ns / 1e6:g} ms",
        verdict.value,  # type: ignore[arg-type]
        reason,
        limit_ns=max_ns,
    )
    quantiles = (Quantile("p50", p50_ns, p50_ns - 10, p50_ns + 10, 5),)
    summary = Summary(600, 0, p50_ns // 2, p50_ns * 2, quantiles, 0.0)
    return CheckResult(
        name, "response_time", verdict, reason, (limit,), 600, "requests", summary, confidence=Fraction(19, 20)
    )


def counted(name: str, lost: int) -> CheckResult:
    """A check with the limit `count <= 0`."""
    verdict = Verdict.FAIL if lost else Verdict.PASS
    reason = f"count <= 0: {lost} of 600 requests sent" if lost else "every limit holds"
    limit = LimitResult(LimitSpec("count", CountBound(max=0)), "count <= 0", verdict.value, reason, beyond=lost)  # type: ignore[arg-type]
    return CheckResult(name, "loss", verdict, reason, (limit,), 600, "requests sent")


@dataclass(frozen=True)
class Conditions:
    """What a run ran with."""

    bench: str = "lab-1"
    build: str = "a" * 40
    commit: str = "c" * 40
    plan_hash: str = "0" * 64
    attempt: int = 1
    capture: int = 100
    error: dict[str, str] | None = None
    plan_text: str = PLAN


def write_run(
    records: Path,
    set_id: str,
    at: datetime,
    plan: str,
    checks: list[CheckResult],
    conditions: Conditions,
    point: str = "",
) -> Path:
    """One run of a nightly set, begun at `at` (aware); returns its folder."""
    runs = RunSet.create(records, ["rig", "nightly"], set_id)
    info = RunInfo(
        run_id="",
        set_id="",
        plan_file=f"testplans/{plan}.plan.yaml",
        plan_sha256="1" * 64,
        point=point,
        expanded_sha256=conditions.plan_hash,
        plan_name=plan,
        attempt=conditions.attempt,
        bench={"bench": conditions.bench},
        controller={"commit": conditions.commit, "dirty": False, "version": "0"},
        firmware={
            "variant": "zero_copy",
            "sha256": conditions.build.ljust(64, "0"),
            "build_id": conditions.build,
        },
        error=conditions.error,
    )
    record = runs.new_run(info, conditions.plan_text.format(plan=plan).encode(), f"bench: {conditions.bench}\n")
    record.capture.write_bytes(bytes(conditions.capture))
    record.seal("error" if conditions.error else "completed")
    record.info.started_utc = record.info.ended_utc = at.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    record.save()
    if conditions.error:
        names = [(check.check, check.metric) for check in checks]
        reason = f"{conditions.error['side']} failed: {conditions.error['what']}"
        result = unjudged(plan, point, "hardware", 1000, names, Verdict.ERROR, reason)
    else:
        result = PointResult(plan, point, "hardware", 1000, worst(check.verdict for check in checks), tuple(checks))
    write_atomic(record.directory / VERDICTS, result.to_json().encode())
    return record.directory
