"""How pytest-xdist hands out checks: the checks of a run, or the tests of a module or class, go to one worker together.

The scope is the node id up to its last `::`; of a plan whose points are interleaved or compared it is the file. A
worker that crashed had its turn with the item that it died of: the rest of its scopes goes to others, which for a
plan's checks means a new run.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

from rig.errors import RigError


@cache
def is_one_experiment(path: Path) -> bool:
    """Whether the points of a plan must run on one bench: interleaved, or to be compared."""
    from rig.plan.load import load_plan

    try:
        plan = load_plan(path).plan
    except RigError:
        return False  # the worker tells
    return bool(plan.comparisons) or (plan.repeat > 1 and bool(plan.matrix))


class RunScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """LoadScopeScheduling, which after a crash would hand the fatal item out again, and could wait for ever."""

    def _split_scope(self, nodeid: str) -> str:
        path, plan, _ = nodeid.partition(".plan.yaml::")
        if plan and is_one_experiment(self.config.rootpath / f"{path}.plan.yaml"):
            return f"{path}.plan.yaml"
        return str(super()._split_scope(nodeid))

    def remove_node(self, node: Any) -> str | None:
        """The item that `node` died of, None if it had nothing left to do; KeyError for one that never came up."""
        workload = self.assigned_work.pop(node)
        pending = [(unit, nodeid) for unit in workload.values() for nodeid, done in unit.items() if not done]
        if not pending:
            return None
        unit, fatal = pending[0]
        unit[fatal] = True
        self.workqueue.update((scope, unit) for scope, unit in workload.items() if not all(unit.values()))
        for other in self.assigned_work:
            self._reschedule(other)
        return str(fatal)

    def schedule(self) -> None:
        super().schedule()
        # A worker begins an item once it knows the next one, or that there is none. One that took a crashed one's place
        # has been given a single scope so far, maybe of a single item.
        if self.collection:
            for node in self.nodes:
                self._reschedule(node)
