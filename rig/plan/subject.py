"""What the rules of a plan look at and what they yield, with the arithmetic of how many samples a plan can give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rig.plan.metrics import Gap, Ipdv, Itl, Jitter, Loss, OneWayDelay, Pdv, ResponseTime, Tpot, Ttft, Turnaround
from rig.plan.model import Check, Plan
from rig.plan.yaml_positions import Path


class Complaint(NamedTuple):
    """One fault of a plan as data. at_key: it is about the key, not about its value."""

    path: Path
    message: str
    suggestion: str | None = None
    at_key: bool = False


@dataclass(frozen=True)
class Subject:
    """A plan, or what is sound of it. flow_names, check_names: all names of the file, the broken parts' too.
    broken: top-level keys that are faulty, so that their values are defaults here and mean nothing."""

    plan: Plan
    flow_names: frozenset[str]
    check_names: frozenset[str]
    broken: frozenset[str] = field(default=frozenset())


def samples_of(subject: Subject, check: Check) -> int | None:
    """The most samples that the check's metric can have in this plan; None where the plan does not say."""
    if subject.broken & {"inference", "npu"}:
        return None
    per_exchange, less = _shape(subject, check)
    return None if per_exchange is None else max(0, subject.plan.inference.requests * per_exchange - less)


def _shape(subject: Subject, check: Check) -> tuple[int | None, int]:
    """(samples per exchange, how many fewer there are in all); None where the plan does not say."""
    metric, inference = check.metric, subject.plan.inference
    if isinstance(metric, Itl | Tpot | Ttft) and metric.source == "jetson":
        tokens = inference.infer_tokens
        each = tokens - 1 if isinstance(metric, Itl) else int(tokens > (1 if isinstance(metric, Tpot) else 0))
        return max(0, each), check.skip_first
    if isinstance(metric, ResponseTime | Loss | Ttft):
        return 1, check.skip_first
    datagrams = datagrams_of(subject, metric.of)
    if datagrams is None:
        return None, 0
    if isinstance(metric, Turnaround):
        return (1 if metric.stage in ("whole", "inference") else datagrams), check.skip_first
    if isinstance(metric, Itl) or (isinstance(metric, Gap) and metric.within == "request_id"):
        return datagrams - 1, check.skip_first
    if isinstance(metric, Tpot):
        return int(datagrams > 1), check.skip_first
    if isinstance(metric, Gap | Ipdv):
        return datagrams, check.skip_first + 1
    if isinstance(metric, OneWayDelay | Pdv | Jitter):
        return datagrams, check.skip_first
    return None, 0


def requests_for(subject: Subject, check: Check, samples: int) -> int:
    """The `inference.requests` with which the check can have that many samples."""
    per_exchange, less = _shape(subject, check)
    return -(-(samples + less) // max(1, per_exchange or 1))


def datagrams_of(subject: Subject, name: str) -> int | None:
    """Datagrams of the flow per request or push."""
    flow = subject.plan.flows.get(name)
    if flow is None or flow.protocol is None:
        return None
    if flow.src == "jetson" and subject.plan.inference.mode == "request":
        return 1
    if flow.src == "board":
        return -(-subject.plan.inference.answer_tokens // subject.plan.npu.tokens_per_datagram)
    return None
