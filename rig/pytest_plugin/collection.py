"""Collects `*.plan.yaml`: one item per check of a point, then one per comparison.

testplans/zero-copy-latency.plan.yaml::zero-copy-latency::answer-time
testplans/copy-vs-zero-copy.plan.yaml::copy-vs-zero-copy[variant-copy]::no-loss
testplans/copy-vs-zero-copy.plan.yaml::copy-vs-zero-copy::zero-copy-against-copy
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rig.errors import RigError
from rig.pytest_plugin.invocation import INVOCATION
from rig.pytest_plugin.items import CheckItem, ComparisonItem
from rig.pytest_plugin.runs import SharedRuns

if TYPE_CHECKING:
    from rig.plan.load import Point

SUFFIX = ".plan.yaml"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.name.endswith(SUFFIX):
        return PlanCollector.from_parent(parent, path=file_path)
    return None


class PlanCollector(pytest.File):
    """One plan file."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        from rig.plan.load import load_plan
        from rig.run import title

        shown = self.path
        with contextlib.suppress(ValueError):
            shown = self.path.relative_to(self.config.rootpath)
        try:
            plan_file = load_plan(self.path if shown == self.path else Path(os.path.relpath(self.path)))
            self.config.stash[INVOCATION].plan_names.take(plan_file)
        except RigError as error:
            raise self.CollectError(str(error)) from error
        runs = SharedRuns(self.config, plan_file)
        for point in plan_file.points:
            name = title(plan_file, point)
            # pytest takes all that follows a `[` on its command line for the last part of a node id: a check of a
            # named point is found by its whole name, a whole point only where that is a node.
            if not point.name or self._is_named(name):
                yield GroupCollector.from_parent(self, name=name, group=partial(_checks, runs=runs, point=point))
            else:
                yield from _checks(self, runs, point, f"{name}::")
        if plan_file.plan.comparisons:
            yield GroupCollector.from_parent(self, name=plan_file.plan.plan, group=partial(_comparisons, runs=runs))

    def _is_named(self, name: str) -> bool:
        return any(str(argument).endswith(f"{self.path.name}::{name}") for argument in self.config.args)


class GroupCollector(pytest.Collector):
    """The checks of one point, or the comparisons of a plan, under a name of their own."""

    def __init__(self, *, group: Callable[[pytest.Collector], Iterator[pytest.Item]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._group = group

    def collect(self) -> Iterator[pytest.Item]:
        yield from self._group(self)


def _checks(parent: pytest.Collector, runs: SharedRuns, point: Point, prefix: str = "") -> Iterator[pytest.Item]:
    for check in [*point.plan.checks, "alive"]:
        yield CheckItem.from_parent(parent, name=f"{prefix}{check}", runs=runs, point=point, check=check)


def _comparisons(parent: pytest.Collector, runs: SharedRuns) -> Iterator[pytest.Item]:
    for name in runs.plan_file.plan.comparisons:
        yield ComparisonItem.from_parent(parent, name=name, runs=runs, check=name)
