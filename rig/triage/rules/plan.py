"""Last: does the plan ask for something that the bench or the firmware cannot give?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rig.plan.units import format_ns
from rig.timing.metrics.measurement import INFINITE_NS
from rig.timing.verdict import Verdict
from rig.triage.diagnosis import Clue, Rule, Support

if TYPE_CHECKING:
    from rig.plan.model import Plan
    from rig.triage.case import Case


def limit_out_of_reach(case: Case) -> Support | None:
    """Every sample breaks the limit, by little, and steadily: the limit is below what this build ever does."""
    if case.result is None:
        return None
    clues = []
    for check in case.result.checks:
        summary = check.summary
        if check.verdict is not Verdict.FAIL or summary is None or summary.min_ns in (None, INFINITE_NS):
            continue
        for limit in check.limits:
            least = summary.min_ns
            if limit.verdict != "FAIL" or not limit.is_max or limit.limit_ns is None or least is None:
                continue
            if least > limit.limit_ns:
                text = f"check `{check.check}`: the best of {summary.n} samples is {format_ns(least)}"
                clues.append(Clue(f"{text}, the limit is {limit.rule} [{limit.spec.place}]"))
                break
    if not clues:
        return None
    return Support(0.5, tuple(clues))


def too_fine(case: Case) -> Support | None:
    if case.result is None:
        return None
    found = [
        f"check `{check.check}`: {limit.rule}: {limit.reason}"
        for check in case.result.checks
        for limit in check.limits
        if limit.verdict == "INCONCLUSIVE" and ("finer than" in limit.reason or limit.needed)
    ]
    return Support(0.55, tuple(Clue(text) for text in found)) if found else None


def overload(case: Case) -> Support | None:
    """Requests arrive faster than the board can answer by its declared times: waiting is what the plan asks for."""
    exchanges = case.exchanges
    if case.point is None or exchanges is None or not len(exchanges.answered):
        return None
    load = case.point.plan.inference.load.open
    takes = declared_ns(case.point.plan)
    if load is None or case.point.plan.inference.mode == "push" or takes <= load.every:
        return None
    response = exchanges.response_ns[exchanges.answered]
    third = max(1, len(response) // 3)
    grows = float(np.median(response[-third:])) > 2 * float(np.median(response[:third]))
    if not grows and not len(exchanges.lost):
        return None  # this board is faster than declared: nothing waits
    clue = Clue(f"a request comes every {format_ns(load.every)} and needs {format_ns(takes)} by the plan's own `npu`")
    return Support(0.85 if grows else 0.6, (clue,))


def declared_ns(plan: Plan) -> int:
    """How long the board's NPU is busy with one request, by the plan."""
    return plan.npu.first_token + plan.npu.per_token * (plan.inference.answer_tokens - 1)


RULES = (
    Rule(
        "plan-overload",
        "plan",
        "plan",
        "The plan asks faster than its own NPU times allow",
        "queue grows",
        "raise `every`, or lower `first_token`",
        overload,
    ),
    Rule(
        "plan-limit-out-of-reach",
        "plan",
        "plan",
        "The limit is below the best that was ever measured here",
        "all beyond the limit",
        "run a build that is known to be good with the same plan: if it fails as well, the limit is wrong",
        limit_out_of_reach,
    ),
    Rule(
        "plan-cannot-prove",
        "plan",
        "plan",
        "The plan asks for what this run could not prove",
        "too little evidence",
        "raise `requests`, calibrate the bench (`rig bench calibrate`), or widen the limit",
        too_fine,
        fault=False,
    ),
)
