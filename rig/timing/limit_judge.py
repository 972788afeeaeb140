"""Judging one limit of a check: which rule a bound is, and how fine the samples are that it judges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from rig.plan.bounds import AtMost, CountBound, DurationBound, LateBound, RateBound, ShareBound
from rig.timing.limit_amounts import judge_amounts, judge_each_event, judge_events
from rig.timing.limit_durations import judge_durations, judge_spans
from rig.timing.limits import Doubt, LimitResult, LimitSpec, Setting, ends_of, rules
from rig.timing.metrics.measurement import Measurement


def judge_limit(spec: LimitSpec, measured: Measurement, setting: Setting, doubt: Doubt) -> tuple[LimitResult, ...]:
    """Judge one limit, one result per rule. What `doubt` can account for is never held against the board."""
    return tuple(_judge(spec, measured, setting, doubt))


def _judge(spec: LimitSpec, measured: Measurement, setting: Setting, doubt: Doubt) -> Iterator[LimitResult]:
    bound = spec.bound
    if measured.far_clock:
        setting = replace(setting, e_ns=0)
    elif measured.error_ns:
        setting = replace(setting, e_ns=setting.e_ns + measured.error_ns)
    if isinstance(bound, RateBound) or (spec.key == "packets" and isinstance(bound, CountBound)):
        ends = ends_of(bound) if isinstance(bound, RateBound) else [(bound.max, True)]
        for (limit, is_max), rule in zip(ends, rules(spec), strict=True):
            yield judge_amounts(spec, rule, limit, is_max, measured, doubt)
    elif spec.key == "extent" and isinstance(bound, CountBound):
        extent = np.empty(0, np.int64) if measured.extent is None else measured.extent
        yield judge_each_event(spec, extent > bound.max, extent > bound.max, measured, setting, doubt)
    elif isinstance(bound, LateBound):
        e_ns, late = setting.e_ns, measured.value_ns
        yield judge_each_event(spec, late > bound.max + e_ns, late > bound.max - e_ns, measured, setting, doubt)
    elif isinstance(bound, CountBound):
        yield judge_events(spec, measured, Fraction(bound.max), doubt)
    elif isinstance(bound, ShareBound):
        yield judge_events(spec, measured, bound.max * measured.denominator, doubt)
    elif isinstance(bound, AtMost) and bound.in_any is not None:
        yield judge_spans(spec, bound, bound.in_any, measured, setting, doubt)
    elif isinstance(bound, AtMost):
        yield judge_durations(spec, rules(spec)[0], bound.beyond, True, bound.count, measured, setting, doubt)
    elif isinstance(bound, DurationBound):
        for (limit, is_max), rule in zip(ends_of(bound), rules(spec), strict=True):
            allowed = 0 if spec.key == "each" else None
            yield judge_durations(spec, rule, limit, is_max, allowed, measured, setting, doubt)
