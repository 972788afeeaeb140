"""Is the capture whole? Everything else is read from it, so this is asked first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rig.triage.diagnosis import Clue, Rule, Support

if TYPE_CHECKING:
    from rig.triage.case import Case


def capture_loss(case: Case) -> Support | None:
    """Frames that provably existed and are not in the file: what answers them, or counts them, is."""
    clues, against = [], []
    score = 0.0
    drops = {place: n for place, n in {**case.evidence.drops, **case.evidence.nic}.items() if n > 0}
    if drops:
        score = 0.9
        clues.append(Clue("the recorder counted drops: " + ", ".join(f"{n} on {place}" for place, n in drops.items())))
    in_file = sum(max(0, interface.dropped) for interface in case.table.interfaces)
    if in_file and not drops:
        score = 0.9
        clues.append(Clue(f"the file itself says that {in_file} frames were dropped"))
    exchanges = case.exchanges
    if exchanges is not None and exchanges.stamped and not exchanges.push:
        orphans = np.flatnonzero(exchanges.answers.owner < 0)
        missing, rows = case.jetson_gaps
        if len(orphans) and missing.sum():
            score = 0.97
            clues.append(
                Clue(
                    f"{len(orphans)} answers belong to requests that the capture lacks, "
                    f"and {missing.sum()} sequence numbers of the Jetson are missing",
                    case.numbers(exchanges.answers.row[orphans]),
                )
            )
        elif missing.sum():
            score = max(score, 0.4)
            clues.append(
                Clue(f"{missing.sum()} sequence numbers of the Jetson never passed the capture", case.numbers(rows))
            )
    report = case.report
    if report is not None and exchanges is not None:
        received = report.count("answers_unique")
        captured = int(np.count_nonzero(~exchanges.answers.copy))
        if received > captured:
            score = 0.97
            clues.append(Clue(f"the Jetson received {received} answers, the capture holds {captured}"))
        else:
            against.append(Clue(f"every one of the {received} answers that the Jetson received is in the capture"))
    for place, n in case.evidence.drops.items():
        if n == 0:
            against.append(Clue(f"the recorder counted no drops on {place}"))
    return Support(score, tuple(clues), tuple(against)) if clues else None


def capture_damaged(case: Case) -> Support | None:
    """A file that was cut, or whose frames were cut."""
    serious = {"cut-file": 0.6, "corrupt-block": 0.6, "snaplen-cut": 0.35, "no-timestamp": 0.6}
    found = [finding for finding in case.table.findings if finding.kind in serious]
    stopped = [sentence for sentence in case.evidence.recording if "nobody counted" not in sentence]
    if not found and not stopped:
        return None
    score = max([serious[finding.kind] for finding in found] + [0.6] * bool(stopped))
    return Support(score, tuple(Clue(finding.detail) for finding in found) + tuple(Clue(text) for text in stopped))


RULES = (
    Rule(
        "capture-loss",
        "capture",
        "capture",
        "The capture lost frames",
        "frames missing that others prove",
        "run again with a larger capture buffer on an idle machine; compare what the recorder says of drops",
        capture_loss,
    ),
    Rule(
        "capture-damaged",
        "capture",
        "capture",
        "The capture file is damaged or was stopped early",
        "file cut or damaged",
        "look for the recorder's last words in run.json under `capture`, then record again",
        capture_damaged,
    ),
)
