"""Rules about comparisons: both points and the check must exist, and the runs must be able to prove the bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from rig.plan.grammar import did_you_mean
from rig.plan.metrics import DURATIONS
from rig.plan.model import Comparison, Plan
from rig.plan.proof import pairs_needed
from rig.plan.subject import Complaint, Subject
from rig.plan.units import format_share
from rig.plan.yaml_positions import Path


def comparison_complaints(subject: Subject, name: str, comparison: Comparison) -> Iterator[Complaint]:
    """What is wrong with one comparison whatever the points are."""
    plan = subject.plan
    path: Path = ("comparisons", name)
    if name in subject.check_names:
        yield Complaint(path, f"`{name}` is a check already, and verdicts need different names", None, True)
    check = plan.checks.get(comparison.of)
    if comparison.of not in subject.check_names:
        suggestion = did_you_mean(comparison.of, sorted(subject.check_names), "checks")
        yield Complaint((*path, "of"), f"no check is named `{comparison.of}`", suggestion)
    elif check is not None and check.metric_name not in DURATIONS:
        message = f"`{comparison.of}` measures {check.metric_name}, whose samples are no durations to compare"
        yield Complaint((*path, "of"), message)
    confidence = comparison.confidence if comparison.confidence is not None else plan.confidence
    if not Fraction(1, 2) <= confidence < 1:
        return  # the rule about confidences tells
    needed = pairs_needed(confidence)
    bound = comparison.difference or comparison.ratio
    if bound is not None and plan.repeat < needed and "repeat" not in subject.broken:
        message = (
            f"{plan.repeat} {'runs' if plan.repeat > 1 else 'run'} of each point can never prove a difference at "
            f"{format_share(confidence)} confidence; it needs at least {needed}"
        )
        yield Complaint(path, message, f"`repeat: {needed}` or more, or no bound, which only reports", True)
    if bound is None and comparison.confidence is not None:
        yield Complaint((*path, "confidence"), "`confidence` has no meaning without a bound", None, True)


def point_complaints(plan: Plan, points: Sequence[str]) -> Iterator[Complaint]:
    """What is wrong with the points that the comparisons name."""
    for name, comparison in plan.comparisons.items():
        path: Path = ("comparisons", name)
        for key in ("a", "b"):
            point = getattr(comparison, key)
            if point not in points:
                known = [each for each in points if each]
                suggestion = did_you_mean(point, known, "points") if known else "a comparison needs a `matrix`"
                yield Complaint((*path, key), f"the matrix has no point `{point}`", suggestion)
        if comparison.a == comparison.b:
            yield Complaint((*path, "b"), f"`{comparison.b}` is compared with itself")
