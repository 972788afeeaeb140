"""Rules about limits: each must fit its metric, be able to hold, to break, and to be proven with the plan's samples."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from rig.plan.bounds import SINGLE, AtMost, DurationBound, Limits
from rig.plan.limits import bounds
from rig.plan.metrics import DURATIONS, METRICS, Loss, ResponseTime, Ttft
from rig.plan.model import Check, Npu
from rig.plan.proof import quantile
from rig.plan.subject import Complaint, Subject, requests_for, samples_of
from rig.plan.units import format_ns, format_share
from rig.plan.yaml_positions import Path
from rig.timing.binomial import samples_needed


def limit_complaints(subject: Subject, name: str, check: Check) -> Iterator[Complaint]:
    """Everything that is wrong with the limits of one check."""
    durations, takes = check.metric_name in DURATIONS, _takes(check.metric_name)
    if check.skip_first and not durations:
        message = f"`skip_first` leaves out samples, and {check.metric_name} has none"
        yield Complaint(("checks", name, "skip_first"), message, None, True)
    proven = False
    for section in ("limits", "hardware", "emulated"):
        limits: Limits | None = getattr(check, section)
        if limits is None:
            continue
        path: Path = ("checks", name, section)
        for key, bound in bounds(limits):
            if ("percentiles" if key in limits.percentiles else key) not in takes:
                yield _misfit((*path, key), check.metric_name)
            yield from _signs((*path, key), check.metric_name, bound)
        if durations:
            yield from _order(path, limits)
            yield from _reachable(subject, path, name, check, limits)
        yield from _decides(subject, path, check, limits)
        if limits.percentiles and durations:
            proven = True
            yield from _provable(subject, path, check, limits)
    if not proven:
        for key, said in (("confidence", check.confidence is not None), ("proof", check.proof != "exact")):
            if said:
                yield Complaint(("checks", name, key), f"`{key}` has no meaning without a percentile limit", None, True)


def misplaced_limits(data: Any) -> Iterator[Complaint]:
    """Limits whose keys do not fit their metric, in a plan's data as they are read: what such a limit holds is then
    nothing to complain about."""
    checks = data.get("checks") if isinstance(data, Mapping) else None
    for name, check in checks.items() if isinstance(checks, Mapping) else ():
        metric = next((key for key in METRICS if key in check), "") if isinstance(check, Mapping) else ""
        for section in ("limits", "hardware", "emulated") if metric else ():
            limits = check.get(section)
            for key in limits if isinstance(limits, Mapping) else ():
                kind = key if key in SINGLE else "percentiles" if re.fullmatch(r"p\d.*", str(key)) else None
                if kind is not None and kind not in _takes(metric):
                    yield _misfit(("checks", name, section, key), metric)


def _misfit(path: Path, metric: str) -> Complaint:
    return Complaint(path, f"`{path[-1]}` does not fit {metric}", f"{metric} takes {_listed(_takes(metric))}", True)


def _takes(metric: str) -> tuple[str, ...]:
    """The keys of limits that fit a metric. The jitter estimator is no sample, so it has no percentiles."""
    if metric == "jitter":
        return ("each", "at_most")
    if metric in DURATIONS:
        return ("each", "at_most", "percentiles")
    special = {"reordering": ("count", "ratio", "extent", "late"), "burst": ("packets",), "throughput": ("rate",)}
    return special.get(metric, ("count", "ratio"))


def _listed(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _signs(path: Path, metric: str, bound: object) -> Iterator[Complaint]:
    """Only a difference of delays is below zero in the ordinary course of things."""
    if not isinstance(bound, DurationBound) or metric == "ipdv":
        return
    for end in ("max", "min"):
        value = getattr(bound, end)
        if value is not None and value < 0:
            yield Complaint((*path, end), f"'{format_ns(value)}' is negative")


def _order(path: Path, limits: Limits) -> Iterator[Complaint]:
    """Quantiles rise with their rank, so bounds that fall with it cannot both decide."""
    ranked = sorted(
        ((quantile(key), key, bound) for key, bound in limits.percentiles.items()), key=lambda item: item[0]
    )
    each = limits.each
    lowest = [(Fraction(0), "each", each)] if each and each.min is not None else []
    highest = [(Fraction(1), "each", each)] if each and each.max is not None else []
    for (_, low, a), (_, high, b) in itertools.combinations([*lowest, *ranked, *highest], 2):
        if a.min is not None and b.max is not None and a.min > b.max and a is not b:
            message = f"`{low}` is at least {format_ns(a.min)} and `{high}` at most {format_ns(b.max)}: never both"
            yield Complaint((*path, high, "max"), message)
        if a.max is not None and b.max is not None and a.max > b.max and low != "each":
            message = (
                f"max {format_ns(a.max)} of `{low}` never decides: `{high}` already allows {format_ns(b.max)} at most"
            )
            yield Complaint((*path, low, "max"), message, f"are `{low}` and `{high}` swapped?")
        if a.min is not None and b.min is not None and a.min > b.min and high != "each":
            message = f"min {format_ns(b.min)} of `{high}` never decides: `{low}` already asks for {format_ns(a.min)}"
            yield Complaint((*path, high, "min"), message, f"are `{low}` and `{high}` swapped?")
    if limits.at_most and each and each.max is not None and limits.at_most.beyond >= each.max:
        message = f"never decides: `each` already forbids every sample beyond {format_ns(each.max)}"
        yield Complaint((*path, "at_most", "beyond"), message)


def _reachable(subject: Subject, path: Path, name: str, check: Check, limits: Limits) -> Iterator[Complaint]:
    plan, metric = subject.plan, check.metric
    if not isinstance(metric, ResponseTime | Ttft) or subject.broken & {"inference", "npu"}:
        return
    if isinstance(metric, Ttft) and metric.source == "jetson":
        return
    takes = plan.npu.first_token
    if isinstance(metric, ResponseTime) and metric.to == "last":
        takes += plan.npu.per_token * (plan.inference.answer_tokens - 1)
    wanted = plan.expect is not None and name in plan.expect.fail
    for key, bound in bounds(limits):
        value = bound.max if isinstance(bound, DurationBound) else bound.beyond if isinstance(bound, AtMost) else None
        where = (*path, key, "max" if isinstance(bound, DurationBound) else "beyond")
        if value is None:
            continue
        if value > plan.inference.timeout:
            limit, timeout = format_ns(value), format_ns(plan.inference.timeout)
            message = f"{limit} is beyond `inference.timeout` ({timeout}), after which an answer counts as lost"
            yield Complaint(where, message, f"raise the timeout above {limit}")
        # Only where the plan sets the NPU's time: other firmware has its own.
        if isinstance(bound, DurationBound) and value < takes and plan.npu != Npu() and not wanted:
            message = f"{format_ns(value)} can never hold: the scripted NPU alone takes {format_ns(takes)}"
            yield Complaint(where, message, "see `npu:`")


def _decides(subject: Subject, path: Path, check: Check, limits: Limits) -> Iterator[Complaint]:
    if limits.at_most and limits.at_most.in_any == 0:
        yield Complaint((*path, "at_most", "in_any"), "a span of zero holds no samples")
    if limits.ratio is not None and limits.ratio.max == 1:
        yield Complaint((*path, "ratio", "max"), "100 % can never be exceeded, so this limit never decides")
    answered = isinstance(check.metric, Loss) and check.metric.answered_by is not None
    samples = samples_of(subject, check) if isinstance(check.metric, ResponseTime) or answered else None
    if samples is None:
        return
    allowed = [((*path, "at_most", "count"), limits.at_most.count)] if limits.at_most else []
    allowed += [((*path, "count", "max"), limits.count.max)] if limits.count else []
    for where, value in allowed:
        if value >= samples:
            message = f"{value} can never be exceeded by {samples} requests, so this limit never decides"
            yield Complaint(where, message)


def _provable(subject: Subject, path: Path, check: Check, limits: Limits) -> Iterator[Complaint]:
    confidence = check.confidence if check.confidence is not None else subject.plan.confidence
    samples = samples_of(subject, check)
    if check.proof == "sample" or samples is None or not Fraction(1, 2) <= confidence < 1:
        return
    for key, bound in limits.percentiles.items():
        q = quantile(key)
        for end, beyond in (("max", 1 - q), ("min", q)):
            if getattr(bound, end) is None:
                continue
            needed = samples_needed(0, beyond, confidence)
            if needed > samples:
                message = (
                    f"{end} of `{key}` can never be proven at {format_share(confidence)} confidence with {samples} "
                    f"samples; it needs at least {needed}"
                )
                more = requests_for(subject, check, needed)
                yield Complaint((*path, key, end), message, f"`requests: {more}` or more, or `proof: sample`")
