"""What of a capture a plan is about: the packets of its flows, and who asks and who answers there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rig.errors import PlanError
from rig.plan.model import Plan
from rig.timing.flows import Packets, Selection
from rig.timing.metrics import asked_and_answering


def asked_and_answered(plan: Plan) -> tuple[str, str | None] | None:
    """(flow of the requests, flow of their answers) of the first check that names them; None where nothing is asked."""
    named = (asked_and_answering(check.metric) for check in plan.checks.values())
    return next((flows for flows in named if flows is not None), None)


def keyed_flows(selection: Selection, plan: Plan, board: str) -> tuple[Packets, Packets] | None:
    """(requests to the board, their answers) of the first check that matches such flows by key; None without one."""
    for check in plan.checks.values():
        named = asked_and_answering(check.metric) if getattr(check.metric, "match", None) == "key" else None
        if named is None or named[1] is None:
            continue
        try:
            requests, answers = (selection.packets(name, plan.flows[name]) for name in (named[0], named[1]))
        except PlanError:
            continue  # nobody could apply a display filter
        if all(selection.table.flows[key].dst == board for key in requests.senders):
            return requests, answers
    return None


def planned_rows(selection: Selection, plan: Plan) -> NDArray[np.bool_] | None:
    """Mask over the rows that are in any of the plan's flows; None where nobody could apply a display filter."""
    chosen = np.zeros(len(selection.table), np.bool_)
    try:
        for flow in plan.flows.values():
            chosen[selection.rows(flow)] = True
    except PlanError:
        return None
    return chosen


def roles_by_plan(selection: Selection, plan: Plan) -> dict[str, str]:
    """Who is board and who Jetson where no bench says so: requests go to the board. Empty where the plan's flows do
    not tell."""
    named = asked_and_answered(plan)
    for name, board, jetson in ((named[0], "dst", "src"), (named[1], "src", "dst")) if named else ():
        try:
            rows = selection.rows(plan.flows[name]) if name is not None else np.empty(0, np.int64)
        except PlanError:
            return {}
        if len(rows):
            key = selection.table.flows[int(np.bincount(selection.table.flow[rows]).argmax())]
            return {"board": getattr(key, board), "jetson": getattr(key, jetson)}
    return {}
