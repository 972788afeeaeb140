"""Which attempts are made again. One table: a new class of trouble is one line.

Only trouble that passes by itself is worth a second attempt: of the bench (ERROR by side) and of the evidence
(INCONCLUSIVE by finding). Statistics are never tried again: an INCONCLUSIVE for want of samples or of a finer clock
would sooner or later pass by luck. A FAIL is measured once more, which shows whether it is solid; it stays FAIL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Rule:
    """What happens after an attempt of this kind. attempts: how many there may be in all."""

    verdict: str
    kind: str
    attempts: int
    why: str


TABLE: Final = (
    Rule("ERROR", "board", 3, "serial ports, flashing and resets fail now and then"),
    Rule("ERROR", "jetson", 3, "SSH connections break"),
    Rule("ERROR", "capture", 3, "an interface may have been away"),
    Rule("ERROR", "bench", 2, "somebody else may have held the bench"),
    Rule("ERROR", "rig", 2, "a part of an emulated bench may have been killed"),
    Rule("ERROR", "budget", 2, "a run that hangs may not hang again"),
    Rule("ERROR", "plan", 1, "a faulty plan stays faulty"),
    Rule("INCONCLUSIVE", "capture-drops", 3, "the recorder was not scheduled in time"),
    Rule("INCONCLUSIVE", "nic-drops", 3, "the NIC was not served in time"),
    Rule("INCONCLUSIVE", "capture-loss", 3, "the recorder was not scheduled in time"),
    Rule("INCONCLUSIVE", "recording-unsound", 3, "the recorder ended early"),
    Rule("INCONCLUSIVE", "cut-file", 3, "the recorder ended early"),
    Rule("INCONCLUSIVE", "requests-not-seen", 3, "the recorder was not scheduled in time"),
    Rule("INCONCLUSIVE", "clock-step", 2, "time was set during the run"),
    Rule("INCONCLUSIVE", "time-step-back", 2, "time was set during the run"),
    Rule("INCONCLUSIVE", "carrier-changed", 3, "a cable or switch port went down for a moment"),
    Rule("INCONCLUSIVE", "no-start-sentinel", 2, "the start was not recorded"),
    Rule("INCONCLUSIVE", "no-end-sentinel", 2, "the end was not recorded"),
    Rule("INCONCLUSIVE", "schedule-missed", 3, "the Jetson was busy"),
    Rule("INCONCLUSIVE", "jetson-degraded", 2, "the Jetson was hot"),
    Rule("INCONCLUSIVE", "short-run", 2, "the run was cut short"),
    Rule("FAIL", "", 2, "shows whether it is solid; the verdict stays FAIL"),
)


def rule_for(verdict: str, side: str, findings: Sequence[str]) -> Rule | None:
    """The rule of an attempt with this verdict, or None when it is not made again.

    side: whose error (`budget` where the run took too long). findings: names of what voided INCONCLUSIVE checks. Of
    several the most cautious counts; findings without a rule are not transient and rule another attempt out.
    """
    kinds = {"ERROR": [side], "INCONCLUSIVE": list(findings), "FAIL": [""]}.get(verdict, [])
    rules = [next((rule for rule in TABLE if (rule.verdict, rule.kind) == (verdict, kind)), None) for kind in kinds]
    if not rules or None in rules:
        return None
    return min((rule for rule in rules if rule is not None), key=lambda rule: rule.attempts)
