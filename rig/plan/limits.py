"""Which limits hold on a given bench."""

from __future__ import annotations

from typing import Literal, NamedTuple

from rig.plan.bounds import SINGLE, AtMost, CountBound, DurationBound, LateBound, Limits, RateBound, ShareBound
from rig.plan.model import Check
from rig.plan.proof import quantile
from rig.plan.yaml_positions import Path

Bound = DurationBound | AtMost | CountBound | ShareBound | LateBound | RateBound


class EffectiveLimit(NamedTuple):
    """One limit of a check. `path` leads from the check to it, such as ("hardware", "p99"); its first part says
    whether the plan's own limit or that of the bench's profile applies."""

    key: str
    bound: Bound
    path: Path


def effective_limits(check: Check, profile: Literal["hardware", "emulated"]) -> list[EffectiveLimit]:
    """The limits of `check` on a bench of `profile`, in fixed order: each, at_most, percentiles rising, the others.

    A key in the profile's section takes the place of the same key in `limits` as a whole (`max` and `min` together).
    """
    chosen: dict[str, EffectiveLimit] = {}
    for section in ("limits", profile):
        limits: Limits | None = getattr(check, section)
        if limits is not None:
            for key, bound in bounds(limits):
                chosen[key] = EffectiveLimit(key, bound, (section, key))
    return sorted(chosen.values(), key=lambda limit: _rank(limit.key))


def bounds(limits: Limits) -> list[tuple[str, Bound]]:
    """(key, bound) of one section, in the same order."""
    named = {key: getattr(limits, key) for key in SINGLE} | limits.percentiles
    return sorted(((key, bound) for key, bound in named.items() if bound is not None), key=lambda item: _rank(item[0]))


def _rank(key: str) -> tuple[int, float]:
    place = SINGLE.index(key) if key in SINGLE else SINGLE.index("at_most")
    return (place, 0.0 if key in SINGLE else float(quantile(key)))
