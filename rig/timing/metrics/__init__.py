"""The metrics, one file each. A new one is a file and a line in `METRICS`; its key is the one that plans use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rig.plan.model import Check
from rig.timing.metrics.duplicates import duplicates
from rig.timing.metrics.gap import gap
from rig.timing.metrics.loss import loss
from rig.timing.metrics.measurement import Measurement, Scene
from rig.timing.metrics.reordering import reordering
from rig.timing.metrics.response_time import response_time

METRICS: Mapping[str, Callable[[Any, Scene], Measurement]] = {
    "response_time": response_time,
    "gap": gap,
    "loss": loss,
    "duplicates": duplicates,
    "reordering": reordering,
}


def metric_of(check: Check) -> tuple[str, Any]:
    """(key, model) of a check's metric."""
    for key in METRICS:
        model = getattr(check, key)
        if model is not None:
            return key, model
    raise ValueError("a check has exactly one metric; the plan's loader sees to that")


def measure(check: Check, scene: Scene) -> Measurement:
    """Run a check's metric over a scene."""
    key, model = metric_of(check)
    return METRICS[key](model, scene)
