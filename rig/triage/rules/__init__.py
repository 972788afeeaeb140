"""The causes that triage knows, one entry each; a new one is a function and a `Rule` in the file of its side."""

from __future__ import annotations

from rig.triage.diagnosis import Rule
from rig.triage.rules import arp, board, capture, clock, copies, driver, jetson, link, path, plan, run

RULES: tuple[Rule, ...] = (
    *run.RULES,
    *capture.RULES,
    *clock.RULES,
    *copies.RULES,
    *link.RULES,
    *arp.RULES,
    *jetson.RULES,
    *path.RULES,
    *board.RULES,
    *driver.RULES,
    *plan.RULES,
)
