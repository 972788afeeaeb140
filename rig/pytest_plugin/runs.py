"""The runs that the items of one plan share in this process: whoever needs one first sets it off."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from rig.pytest_plugin.invocation import INVOCATION
from rig.pytest_plugin.reporting import progress_of, shown_with

if TYPE_CHECKING:
    from rig.campaign import Compared, Judged, PlanRuns
    from rig.plan.load import PlanFile


class PlanItem(pytest.Item):
    """An item of a plan. needs: names of the points whose runs decide it."""

    def __init__(self, *, runs: SharedRuns, needs: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.runs = runs
        self.needs = needs


class SharedRuns:
    """The runs of one plan and what came out of them, for the items that pytest has selected.

    Points run in the order in which pytest has their items. What the rig did not expect is a bug of its own: each item
    that needs the point shows its traceback, after one run.
    """

    def __init__(self, config: pytest.Config, plan_file: PlanFile) -> None:
        self.plan_file = plan_file
        self._config = config
        self._runs: PlanRuns | None = None
        self._broken: dict[str, Exception] = {}
        self._compared: list[Compared] | Exception | None = None

    def of(self, point: str, item: PlanItem) -> list[Judged]:
        """All runs of a point; `item` is the one that shows those that it sets off."""
        return self._until_over([point], item).of(point)

    def compared(self, name: str, item: PlanItem) -> Compared:
        """The comparison of that name, after the last run of the plan."""
        runs = self._until_over(self._selected(item), item)
        if self._compared is None:
            try:
                self._compared = runs.compared()
            except Exception as error:  # noqa: BLE001 - raised below, for each comparison
                self._compared = error
        if isinstance(self._compared, Exception):
            raise self._compared
        return next(one for one in self._compared if one.result.check == name)

    def _until_over(self, names: Collection[str], item: PlanItem) -> PlanRuns:
        from rig.summary import row_of

        progress = progress_of(self._config)
        runs = self._runs or self._begin(item)
        while (point := runs.upcoming(names)) is not None:
            progress.lines = []
            try:
                judged = runs.make(point)
            except Exception as error:  # noqa: BLE001 - raised for each item that needs this point
                self._broken[point.name] = error
                continue
            shown_with(item, row_of(judged), progress.lines)
        for name in names:
            if name in self._broken:
                raise self._broken[name]
        return runs

    def _begin(self, item: PlanItem) -> PlanRuns:
        from rig.campaign import PlanRuns

        points = [self.plan_file.point(name) for name in self._selected(item)]
        self._runs = PlanRuns(self._config.stash[INVOCATION].campaign(), self.plan_file, points)
        return self._runs

    def _selected(self, item: PlanItem) -> list[str]:
        """Names of the points that the selected items of this plan need."""
        mine = [one for one in [*item.session.items, item] if isinstance(one, PlanItem) and one.runs is self]
        return list(dict.fromkeys(name for one in mine for name in one.needs))
