"""The metrics. A new one is a model in `rig.plan.metrics`, a function and a line here; its key is the plan's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rig.plan.model import Check
from rig.timing.metrics.duplicates import duplicates
from rig.timing.metrics.gap import gap
from rig.timing.metrics.llm import itl, tpot, ttft
from rig.timing.metrics.loss import loss
from rig.timing.metrics.measurement import Measurement, Scene
from rig.timing.metrics.one_way import ipdv, jitter, one_way_delay, pdv
from rig.timing.metrics.reordering import reordering
from rig.timing.metrics.response_time import response_time
from rig.timing.metrics.turnaround import turnaround
from rig.timing.metrics.volume import burst, throughput

METRICS: Mapping[str, Callable[[Any, Scene], Measurement]] = {
    "response_time": response_time,
    "gap": gap,
    "one_way_delay": one_way_delay,
    "ipdv": ipdv,
    "pdv": pdv,
    "jitter": jitter,
    "turnaround": turnaround,
    "ttft": ttft,
    "itl": itl,
    "tpot": tpot,
    "loss": loss,
    "duplicates": duplicates,
    "reordering": reordering,
    "burst": burst,
    "throughput": throughput,
}


def metric_of(check: Check) -> tuple[str, Any]:
    """(key, model) of a check's metric."""
    return check.metric_name, check.metric


def asked_and_answering(metric: Any) -> tuple[str, str | None] | None:
    """(flow of a metric's requests, flow of their answers); None where it asks for nothing."""
    answers = getattr(metric, "response", None) or getattr(metric, "answered_by", None)
    requests = getattr(metric, "request", None) or (getattr(metric, "of", None) if answers else None)
    return None if requests is None else (requests, answers)


def measure(check: Check, scene: Scene) -> Measurement:
    """Run a check's metric over a scene; its first `skip_first` samples are left out and counted."""
    key, model = metric_of(check)
    measured = METRICS[key](model, scene)
    return measured.without_first(check.skip_first) if check.skip_first else measured
