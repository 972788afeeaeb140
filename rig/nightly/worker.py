"""One bench of a night, in a process of its own: an emulated bench ends with the main thread of its process, and a run
that hangs can be killed without the rest.

`python -m rig.nightly.worker SETTINGS` with Settings as JSON. Takes one command a line on stdin, answers with one JSON
line on stdout, in turn:

    {"do": "health"}                                              {"faults": ["serial-port: …"]}
    {"do": "run", "plan": PATH, "point": NAME, "attempt": N}      {"verdict": …, "sentence": …, "side": …, …}
    {"do": "compare", "plan": PATH}                               the same, of the plan's comparisons

All other output goes to stderr, which the night keeps as `nightly-<bench>.log` in the set. End of input ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rig.errors import RigError
from rig.interrupts import ENDINGS, interrupt

if TYPE_CHECKING:
    from rig.campaign import Campaign, Compared, Judged
    from rig.plan.load import PlanFile, Point
    from rig.plan.model import Expect

EXAMINATION_S = 120.0


@dataclass(frozen=True)
class Settings:
    """bench: its file. instance: see `rig.session.Rig`. command: for set.json."""

    bench: str
    instance: str | None
    records: str
    set_id: str
    command: tuple[str, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        given = json.loads(text)
        return cls(**given | {"command": tuple(given["command"])})


class Worker:
    """Holds the bench between runs; lets go of it for an examination, which wants it to itself."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._campaign: Campaign | None = None
        self._plans: dict[str, PlanFile] = {}
        self._made: dict[str, list[tuple[Point, Judged]]] = {}
        """What need not be judged again for the comparisons."""

    def close(self) -> None:
        if self._campaign is not None:
            self._campaign.close()
            self._campaign = None

    def health(self) -> list[str]:
        """What an examination finds that no run could work with."""
        from rig.bench.checks import Site
        from rig.bench.doctor import examine, rendered
        from rig.deadline import Deadline
        from rig.project import ROOT
        from rig.session import Rig

        self.close()
        settings = self._settings
        rig = Rig.of(Path(settings.bench), instance=settings.instance)
        site = Site(ROOT, Path(settings.records), rig.file, rig.name, Deadline.after(EXAMINATION_S), opener=rig)
        faults = []
        with contextlib.closing(examine(site)) as examination:
            for check, finding in examination:
                print(rendered(check, finding, colour=False), flush=True)
                if finding.state == "fail":
                    faults.append(f"{check.name}: {finding.found}")
        return faults

    def run(self, plan: str, point: str, attempt: int) -> dict[str, Any]:
        file, campaign = self._plan(plan), self._opened()
        chosen = file.point(point)
        judged = campaign.run(file, chosen, attempt)
        if judged.record is None and str(judged.verdict) == "ERROR":
            self.close()  # a bench that could not be opened gets another chance
        if judged.record is not None:
            _keep(judged.record)
            if file.plan.comparisons:
                self._made.setdefault(plan, []).append((chosen, judged))
        return answer(judged, chosen.plan.expect)

    def compare(self, plan: str) -> dict[str, Any]:
        file, campaign = self._plan(plan), self._opened()
        campaign.runs()  # those that other workers, or this one before it was cut off, have left count too
        return answer_to_comparisons(campaign.compare(file, self._made.pop(plan, [])))

    def _plan(self, path: str) -> PlanFile:
        from rig.plan.load import load_plan

        return self._plans.get(path) or self._plans.setdefault(path, load_plan(Path(path)))

    def _opened(self) -> Campaign:
        from rig.campaign import Campaign
        from rig.progress import TextProgress

        if self._campaign is None:
            settings = self._settings
            self._campaign = Campaign(
                Path(settings.bench),
                Path(settings.records),
                list(settings.command),
                TextProgress(sys.stdout),
                instance=settings.instance,
                set_id=settings.set_id,
            )
        return self._campaign


def answer(judged: Judged, expect: Expect | None) -> dict[str, Any]:
    """A run's outcome as the night keeps it: that of the checks that are not as the plan wants them.

    A FAIL that the plan expects is no FAIL of the run, a PASS in its place is one. INCONCLUSIVE says what voided it.
    """
    from rig.timing.expectation import outcome_of_check
    from rig.timing.verdict import Verdict

    red = [check for check in judged.result.checks if not outcome_of_check(check, expect).green]
    verdict = judged.verdict
    findings: list[str] = []
    if verdict is Verdict.INCONCLUSIVE:
        for check in red:
            # One that nothing voided lacks samples: statistics.
            findings += [finding.name for finding in check.voided_by] or ["statistics"]
    side = ""
    if verdict is Verdict.ERROR:
        side = _side(judged)
    return {
        "verdict": str(verdict),
        "sentence": judged.outcome.sentence,
        "side": side,
        "findings": sorted(set(findings)),
        "record": f"{judged.record.parent.name}/{judged.record.name}" if judged.record else None,
    }


def answer_to_comparisons(compared: Sequence[Compared]) -> dict[str, Any]:
    """The same for comparisons. One that is undecided stays so: the same records give the same."""
    from rig.timing.verdict import worst

    red = [one for one in compared if not one.outcome.green] or compared
    verdict = worst(one.verdict for one in red)
    first = next(one for one in red if one.verdict is verdict)
    more = f" (and {len(red) - 1} more)" if len(red) > 1 else ""
    sentence = f"{first.result.check}: {first.outcome.sentence}{more}"
    return {"verdict": str(verdict), "sentence": sentence, "side": "", "findings": [], "record": None}


def _side(judged: Judged) -> str:
    if judged.record is not None:
        from rig.record import load_run

        with contextlib.suppress(RigError):
            return str((load_run(judged.record).error or {}).get("side", "rig"))
    reason = judged.result.checks[0].reason if judged.result.checks else ""
    return reason.partition(" failed:")[0] or "rig"


def _keep(record: Path) -> None:
    """Into the history; what cannot be written now, the next question takes in."""
    from rig.history.index import add_run

    try:
        add_run(record)
    except RigError as error:
        print(error, flush=True)


def main(arguments: Sequence[str]) -> int:
    from rig.emulation.linux import die_with_parent

    die_with_parent()
    for signum in ENDINGS:
        signal.signal(signum, interrupt)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever prints from here on goes to the log
    worker = Worker(Settings.from_json(arguments[0]))
    with contextlib.closing(worker), contextlib.suppress(KeyboardInterrupt):
        for line in sys.stdin:
            command = json.loads(line)
            try:
                told: dict[str, Any]
                match command.pop("do"):
                    case "health":
                        told = {"faults": worker.health()}
                    case "compare":
                        told = worker.compare(**command)
                    case _:
                        told = worker.run(**command)
            except RigError as error:
                print(error, flush=True)
                told = {"verdict": "ERROR", "sentence": f"{error.side}: {error.what}", "side": error.side}
                told |= {"findings": [], "record": None, "faults": [error.what]}
            answers.write(json.dumps(told) + "\n")
            answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
