"""Did the run come to its end? One that the rig itself broke off says why, and its traffic proves little."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rig.triage.diagnosis import Clue, Rule, Support

if TYPE_CHECKING:
    from rig.triage.case import Case


def failed(case: Case) -> Support | None:
    """The error that run.json holds, in its own words."""
    error = case.info.error if case.info is not None else None
    if case.info is None or case.info.outcome != "error" or not error:
        return None
    clues = [Clue(f"phase `{error.get('phase')}` failed on the side of {error.get('side')}: {error.get('what')}")]
    clues += [Clue(f"last seen: {error['seen']}")] if error.get("seen") else []
    clues += [Clue(f"what the error advises: {error['hint']}")] if error.get("hint") else []
    return Support(0.96, tuple(clues), (), f"in phase `{error.get('phase')}`")


def cut_short(case: Case) -> Support | None:
    if case.info is None or case.info.outcome not in ("interrupted", "running"):
        return None
    how = "was interrupted" if case.info.outcome == "interrupted" else "never finished: it was killed, or still runs"
    last = case.info.phases[-1].name if case.info.phases else "none"
    return Support(0.6, (Clue(f"the run {how}; its last phase was `{last}`"),))


RULES = (
    Rule(
        "run-failed",
        "capture",
        "bench",
        "The rig or its bench failed",
        "run broken off",
        "do what the error advises, then `rig doctor`, then run it again",
        failed,
    ),
    Rule(
        "run-cut-short",
        "capture",
        "bench",
        "The run did not come to its end",
        "run broken off",
        "run it again, and look at who ended it if it ends so again",
        cut_short,
        fault=False,
    ),
)
