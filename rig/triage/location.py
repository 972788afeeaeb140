"""Whose fault a cause is, in words, and whether the measurement that shows it is sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rig.plan.units import format_ns
from rig.triage.diagnosis import Diagnosis, Side, all_rules

if TYPE_CHECKING:
    from rig.triage.case import Case
    from rig.triage.diagnosis import Cause

WHERE: Final[dict[Side, str]] = {
    "board": "the product: the board's firmware",
    "jetson": "the Jetson",
    "link": "the bench: the link between capture point and board",
    "bench": "the bench: the rig or one of its devices",
    "capture": "the measurement: the capture",
    "clock": "the measurement: the clock of the capture",
    "plan": "the plan, not what it tests",
}


def where(cause: Cause) -> str:
    """The place of a cause, and other places that give the same picture on the wire."""
    place = WHERE[cause.rule.side]
    twins = {rule.side for rule in all_rules() if rule.picture == cause.rule.picture} - {cause.rule.side}
    others = " or ".join(WHERE[side] for side in sorted(twins))
    return f"{place}; the same picture could come from {others}" if others else place


def soundness(case: Case, diagnosis: Diagnosis) -> str:
    """Whether the evidence can be relied on, as one sentence."""
    first = diagnosis.first
    if first is not None and first.rule.side in ("capture", "clock"):
        return "The measurement is not sound: mend it before anything else is believed."
    findings = case.result.findings if case.result is not None else ()
    doubted = [one for one in findings if one.voids or one.explains]
    if doubted:
        checks = ", ".join(dict.fromkeys(name for one in doubted for name in (*one.voids, *one.explains)))
        return f"The measurement is not sound for {checks}: {doubted[0].sentence}."
    if diagnosis.blind:
        return f"Nobody can look at the measurement: {case.unread[0] if case.unread else 'there is no capture'}."
    damage = [one.detail for one in case.table.findings] or list(case.unread)
    if damage:
        return f"The measurement is sound as far as it goes; noted: {damage[0]}."
    if case.info is None:
        return "The capture shows no damage; nobody counted what it may have lost."
    return f"The measurement is sound: nothing speaks against the evidence (e = {format_ns(case.e_ns)})."
