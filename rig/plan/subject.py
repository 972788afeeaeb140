"""What the rules of a plan look at and what they yield, with the arithmetic of how many samples a plan can give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rig.plan.model import Check, Gap, Loss, Plan, ResponseTime
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
    inference, metric = subject.plan.inference, check.metric
    if isinstance(metric, ResponseTime | Loss):
        return inference.requests
    datagrams = datagrams_of(subject, metric.of)
    if not isinstance(metric, Gap) or datagrams is None:
        return None
    if metric.within == "request_id":
        return inference.requests * (datagrams - 1)
    return inference.requests * datagrams - 1


def requests_for(subject: Subject, check: Check, samples: int) -> int:
    """The `inference.requests` with which the check can have that many samples."""
    if not isinstance(check.metric, Gap):
        return samples
    datagrams = datagrams_of(subject, check.metric.of) or 1
    if check.metric.within == "request_id":
        return -(-samples // max(1, datagrams - 1))
    return -(-(samples + 1) // datagrams)


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
