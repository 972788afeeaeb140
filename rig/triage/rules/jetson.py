"""The Jetson's share: schedule, stages, engine, throttling. Most of it needs its events; a capture shows only pace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rig.plan.units import format_ns
from rig.triage.diagnosis import Clue, Rule, Support

if TYPE_CHECKING:
    from rig.triage.case import Case


def starved(case: Case) -> Support | None:
    """The pipeline does not keep the schedule of an open load."""
    report = case.report
    clues = []
    score = 0.0
    about = ""
    if report is not None and report.schedule is not None:
        schedule = report.schedule
        share, by_pipeline = schedule.late / schedule.sends, schedule.late_by_pipeline / schedule.sends
        if share > 0.1:
            about = f"{share:.0%} of the sends are late"
            clues.append(
                Clue(
                    f"{schedule.late} of {schedule.sends} sends left more than half a period behind schedule, "
                    f"the worst by {format_ns(schedule.worst_ns)}"
                )
            )
            clues.append(
                Clue(f"of {schedule.late_by_pipeline} requests ({by_pipeline:.0%}) the pipeline itself was not done")
            )
            score = 0.9 if share > 0.5 and by_pipeline > 0.5 else 0.55 if share > 0.25 else 0.35
    elif case.point is not None and case.exchanges is not None:
        load = case.point.plan.inference.load.open
        time_ns = case.exchanges.asks.time_ns
        if load is not None and len(time_ns) > 10 and case.point.plan.inference.mode == "request":
            pace = int(np.median(np.diff(time_ns)))
            if pace > load.every * 1.25:
                clues.append(Clue(f"requests leave every {format_ns(pace)}, the plan wants {format_ns(load.every)}"))
                score = 0.8
    return Support(score, tuple(clues), (), about) if clues else None


def fallback(case: Case) -> Support | None:
    report = case.report
    if report is None or not report.fallback:
        return None
    return Support(0.75, (Clue(f"the engine wanted {report.engine.get('provider_wanted')} and got {report.provider}"),))


def throttled(case: Case) -> Support | None:
    report = case.report
    if report is None or not report.throttled:
        return None
    return Support(0.75, tuple(Clue(sentence) for sentence in report.throttled))


def ended_early(case: Case) -> Support | None:
    report = case.report
    if report is None or (report.complete and report.reason == "done"):
        return None
    if case.info is not None and case.info.outcome in ("interrupted", "running"):
        return None  # whoever ended the run ended the runner with it
    clues = [Clue(f"the runner ended with `{report.reason}`")]
    clues += [Clue(sentence) for sentence in report.errors[:4]]
    return Support(0.7, tuple(clues))


RULES = (
    Rule(
        "jetson-starved",
        "Jetson",
        "jetson",
        "The Jetson does not keep its schedule",
        "requests slower than planned",
        "run with `infer_tokens: 0`; if the schedule holds, the pipeline is too slow for `every`",
        starved,
    ),
    Rule(
        "jetson-fallback",
        "Jetson",
        "jetson",
        "The engine fell back to a slower provider",
        "requests slower than planned",
        "install the engine's GPU build; `onnxruntime.get_available_providers()` must name CUDA",
        fallback,
    ),
    Rule(
        "jetson-throttled",
        "Jetson",
        "jetson",
        "The Jetson throttled",
        "requests slower than planned",
        "cool it and fix the power mode (nvpmodel, jetson_clocks); watch over-current events",
        throttled,
    ),
    Rule(
        "jetson-ended-early",
        "Jetson",
        "jetson",
        "The runner on the Jetson ended early",
        "requests end early",
        "read the last events of jetson.jsonl, then run again with `rig doctor` first",
        ended_early,
    ),
)
