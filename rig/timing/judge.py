"""The one entry: a frame table, a plan's point, its effective limits and the evidence in; a result out.

Pure and deterministic: the same call judges live and offline, and the same input gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from rig.plan.bounds import DurationBound
from rig.plan.model import Check, Plan
from rig.timing.copies import shown_twice
from rig.timing.evidence import Evidence, Finding, Seen, Subject, doubt_about
from rig.timing.flows import Dissected, Selection
from rig.timing.gate import gate
from rig.timing.limit_judge import judge_limit
from rig.timing.limits import ENOUGH, Doubt, LimitResult, LimitSpec, Setting
from rig.timing.merged import merged_frames
from rig.timing.metrics import asked_and_answering, measure, metric_of
from rig.timing.metrics.measurement import INFINITE_NS, NO_FLOOR_NS, Decoding, Measurement, Scene
from rig.timing.observed import Run, observe
from rig.timing.statistics import figures, percentile_of, summarise
from rig.timing.table import FrameTable, interfaces_of
from rig.timing.verdict import CheckResult, PointResult, Verdict, Violation, worst

ALIVE = "alive"
"""The implicit check of every run on a board whose console was observed."""

_SHOWN = 5
_NAMED = 5
"""Of faults or boots, however many there are."""
_ALWAYS = (Fraction(1, 2), Fraction(9, 10), Fraction(99, 100))


def judge(
    table: FrameTable,
    point_plan: Plan,
    limits: Mapping[str, Sequence[LimitSpec]],
    evidence: Evidence,
    addresses: Mapping[str, str],
    e_ns: int,
    profile: str,
    *,
    point: str = "",
    decoding: Decoding | None = None,
    dissected: Dissected | None = None,
) -> PointResult:
    """Judge one run.

    limits: check → its effective limits, as the plan and the bench profile give them. addresses: `board`, `jetson`,
    `rig` → IP address. e_ns: the bench's uncertainty of a time difference. point: name of the matrix point. decoding:
    the Jetson's own events, for `source: jetson`. dissected: what Wireshark says, for flows with `filter` or `field`.
    Raises PlanError for a plan whose flows cannot carry its metrics.
    """
    run = observe(table, point_plan, evidence, Selection(table, addresses, dissected), e_ns, decoding)
    load = point_plan.inference.load.open
    findings = gate(
        replace(evidence, ledger=run.ledger),
        table.findings,
        run.selection.window,
        run.seen,
        [_subject(name, check, run.scene) for name, check in point_plan.checks.items()],
        e_ns=run.e_ns,
        overrun=load.overrun if load else None,
        expected=_expected(point_plan),
        file_drops=sum(max(0, interface.dropped) for interface in table.interfaces),
        copied={
            name: copies
            for name, flow in run.scene.packets.items()
            if flow.tokens is None and (copies := shown_twice(table, flow.row[flow.measured])) is not None
        },
        merged={
            name: merged for name, flow in run.scene.packets.items() if (merged := merged_frames(flow)) is not None
        },
    )
    checks = [
        _judge_check(name, check, limits.get(name, ()), point_plan, run, findings)
        for name, check in point_plan.checks.items()
    ]
    alive = _judge_alive(evidence, run.seen)
    if alive is not None:
        checks.append(alive)
    window = run.selection.window
    return PointResult(
        plan=point_plan.plan,
        point=point,
        profile=profile,
        e_ns=run.e_ns,
        verdict=worst(result.verdict for result in checks),
        checks=tuple(checks),
        findings=findings,
        counts={
            "requests sent": run.ledger.requests_sent,
            "requests seen": run.seen.requests,
            "requests received": run.ledger.requests_received,
            "answers sent": run.ledger.answers_sent,
            "answers seen": run.seen.answers,
            "answers received": run.ledger.answers_received,
            "frames": len(table),
        },
        window_ns=(
            window.start_ns - run.origin_ns if window.start_seen else None,
            window.end_ns - run.origin_ns if window.end_seen else None,
        ),
    )


def _flows_of(model: Any, parts: Sequence[str] = ("request", "response", "of", "answered_by", "opposite")) -> list[str]:
    """Names of the flows that a metric looks at."""
    return [name for part in parts if (name := getattr(model, part, None))]


def _expected(plan: Plan) -> tuple[str, int]:
    """(side, datagrams) that begin the exchanges of the plan."""
    inference = plan.inference
    if inference.mode == "push":
        return "board", inference.requests * math.ceil(inference.answer_tokens / plan.npu.tokens_per_datagram)
    return "jetson", inference.requests


def _subject(name: str, check: Check, scene: Scene) -> Subject:
    metric, model = metric_of(check)
    flows = _flows_of(model)
    packets = [scene.packets[flow] for flow in flows]
    stamped = interfaces_of(packets[0].table, *(each.row for each in packets)) if packets else []
    # Bytes add up to the same, whichever frames they stand in.
    any_frames = metric == "throughput" and model.layer == "payload" and model.per is None
    return Subject(
        name=name,
        metric=metric,
        sides=tuple(scene.packets[flow].source for flow in _flows_of(model, ("response", "of"))),
        on_wire=getattr(model, "source", "wire") == "wire",
        counted=metric == "loss" and getattr(model, "answered_by", None) is None,
        cut=sum(scene.packets[flow].cut for flow in flows),
        takes_copies=() if getattr(model, "match", None) == "key" else tuple(flows),
        counts_packets=() if any_frames else tuple(_flows_of(model, ("request", "of"))),
        meets=() if any_frames else tuple(flows),
        systems=tuple(dict.fromkeys(interface.system for interface in stamped if interface.system)),
        both=_in_both(model, scene),
    )


def _in_both(model: Any, scene: Scene) -> tuple[str, str, int] | None:
    """The flows of a metric's requests and answers, and how many packets are in both; None where there are none."""
    requests, answers = asked_and_answering(model) or (None, None)
    if requests is None or answers is None:
        return None
    asked, said = scene.packets[requests], scene.packets[answers]
    if not asked.senders & said.senders:
        return None
    both = np.isin(asked.row, said.row)
    return (requests, answers, int(both.sum())) if both.any() else None


def _judge_check(
    name: str,
    check: Check,
    limits: Sequence[LimitSpec],
    plan: Plan,
    run: Run,
    findings: tuple[Finding, ...],
) -> CheckResult:
    metric, model = metric_of(check)
    measured = measure(check, run.scene)
    confidence = check.confidence if check.confidence is not None else plan.confidence
    summary, compared, within = None, {}, {}
    if measured.kind == "durations":
        named = {percentile_of(spec.key) for spec in limits if spec.key.startswith("p") and spec.key != "packets"}
        summary = summarise(measured.value_ns, sorted({*_ALWAYS, *named}), confidence)
        wanted = [each.statistic for each in plan.comparisons.values() if each.of == name]
        compared = figures(measured.value_ns, wanted)
        within = _leeway(compared, figures(measured.floor_ns, wanted), measured.error_ns)
    setting = Setting(run.e_ns, confidence, check.proof)
    doubt = _doubt(metric, model, doubt_about(name, findings))
    results = tuple(result for spec in limits for result in judge_limit(spec, measured, setting, doubt))

    verdict = worst(Verdict(result.verdict) for result in results) if results else Verdict.INCONCLUSIVE
    deciding = next((result for result in results if result.verdict == verdict.value), None)
    reason = f"{deciding.rule}: {deciding.reason}" if deciding else "the check has no limit"
    voided: tuple[Finding, ...] = ()
    if verdict is Verdict.PASS:
        voided = tuple(finding for finding in findings if name in finding.voids)
        if voided or measured.unprovable:
            verdict = Verdict.INCONCLUSIVE
            reason = measured.unprovable or voided[0].sentence
        else:
            sampled = check.proof == "sample" and any(isinstance(spec.bound, DurationBound) for spec in limits)
            reason = "every limit holds" + (" (percentiles by proof: sample)" if sampled else "")
    elif verdict is Verdict.INCONCLUSIVE:
        voided = tuple(finding for finding in findings if name in finding.explains or name in finding.voids)

    notes = [*measured.notes, *(run.timing_notes if measured.kind != "events" and not measured.far_clock else ())]
    if summary is not None and any(result.block > 1 for result in results):
        notes.append(f"successive samples depend on each other: lag-1 autocorrelation {summary.lag1}")
    notes += [
        f"{result.rule} is proven for samples beyond it that come in stretches of at most {result.stretch}"
        for result in results
        if 0 < result.stretch < ENOUGH
    ]
    notes += [f"marginal: {result.rule} holds with less than 10 % to spare" for result in results if result.marginal]
    violations = _violations(results, measured, run.origin_ns)
    frames = sorted({frame for each in violations for frame in (each.reference, each.frame) if frame})
    flows = _flows_of(model)
    set_aside = {f"{flow}: {what}": n for flow in flows for what, n in run.scene.packets[flow].set_aside.items()}
    return CheckResult(
        check=name,
        metric=metric,
        verdict=verdict,
        reason=reason,
        limits=results,
        n=measured.denominator,
        of=measured.of,
        summary=summary,
        counts=dict(measured.counts),
        set_aside=set_aside,
        violations=violations,
        display_filter=f"frame.number in {{{','.join(map(str, frames))}}}" if frames else "",
        voided_by=voided,
        notes=tuple(notes),
        confidence=setting.confidence,
        proof=setting.proof,
        compared=compared,
        compared_within=within,
        unprovable=measured.unprovable,
    )


def _leeway(most: Mapping[str, int], least: Mapping[str, int], error_ns: int) -> dict[str, tuple[int, int]]:
    """The least and the most that figures can be, of those that are not known exactly."""
    return {
        name: (_moved(least[name], -error_ns), _moved(value, error_ns))
        for name, value in most.items()
        if error_ns or least[name] != value
    }


def _moved(value_ns: int, by_ns: int) -> int:
    return value_ns if value_ns in (INFINITE_NS, NO_FLOOR_NS) else value_ns + by_ns


def _doubt(metric: str, model: Any, doubt: Doubt) -> Doubt:
    """What the doubt comes to in metrics whose samples it can touch more than once."""
    missing, shift = doubt.missing, doubt.shift_ns
    if metric == "response_time" and model.match == "order" and missing != 0:
        shift = None  # each response behind a hole may belong to another request; no more are lost than are missing
    if metric == "jitter" and missing:
        missing = None  # a hole changes the estimator for many packets
    if metric in ("one_way_delay", "pdv") and shift:
        shift *= 2  # the sample, and the clock that it is measured by
    return Doubt(missing, shift)


def _violations(results: tuple[LimitResult, ...], measured: Measurement, origin_ns: int) -> tuple[Violation, ...]:
    """The worst packets of each rule that does not hold, each packet once, under the first rule that it breaks."""
    shown: set[int] = set()
    found = []
    for result in results:
        for index in result.worst:
            if index in shown or len(shown) >= _SHOWN:
                continue
            shown.add(index)
            value = int(measured.value_ns[index])
            limit = result.limit_ns
            comparable = limit is not None and value != INFINITE_NS
            found.append(
                Violation(
                    rule=result.rule,
                    place=result.spec.place,
                    frame=int(measured.number[index]),
                    reference=int(measured.reference[index]),
                    at_ns=int(measured.time_ns[index]) - origin_ns,
                    value_ns=value,
                    limit_ns=limit,
                    margin_ns=((limit - value) if result.is_max else (value - limit))
                    if comparable and limit is not None
                    else None,
                    unit={"packets": "packets", "rates": "bit/s"}.get(measured.kind, "ns"),
                )
            )
    return tuple(found)


def _judge_alive(evidence: Evidence, seen: Seen) -> CheckResult | None:
    """FAIL when the board did not boot, faulted, asserted or rebooted unasked after a verified flash."""
    observed = evidence.alive
    rebooted = len(seen.board_boots) > 1
    troubles = []
    if observed is not None:
        if observed.no_boot:
            troubles.append(observed.no_boot)
        troubles += _some([f"the board reported: {fault}" for fault in observed.faults])
        troubles += _some(list(observed.resets))
    if rebooted:
        boots = ", ".join(_some([f"{boot:08x}" for boot in seen.board_boots]))
        troubles.append(f"its datagrams carry {len(seen.board_boots)} boot ids ({boots}): it rebooted while measured")
    if observed is None:
        return CheckResult(ALIVE, ALIVE, Verdict.FAIL, "; ".join(troubles)) if troubles else None
    if troubles and not observed.image_verified:
        return CheckResult(
            ALIVE,
            ALIVE,
            Verdict.ERROR,
            "; ".join(troubles)
            + "; what is on the board was not verified, so this says nothing about the plan's image",
            hint="flash the image with `flash: always` and run again",
        )
    if troubles:
        return CheckResult(ALIVE, ALIVE, Verdict.FAIL, "; ".join(troubles))
    return CheckResult(ALIVE, ALIVE, Verdict.PASS, "the board booted and neither faulted nor rebooted")


def _some(texts: list[str]) -> list[str]:
    """The first of them, and how many more there are."""
    more = len(texts) - _NAMED
    return [*texts[:_NAMED], f"{more} more"] if more > 0 else texts
