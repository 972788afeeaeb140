"""The phases of a run: each with its own budget, its line for the person who waits, its entry in run.json."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Final, Literal, get_args

from rig.board.report import BootFailure
from rig.deadline import Deadline
from rig.errors import InternalError, RigError
from rig.progress import Progress
from rig.record import Phase, RunRecord

PhaseName = Literal["preflight", "flash", "capture", "boot", "engine", "network", "traffic", "drain", "collect"]
PHASES: Final[tuple[PhaseName, ...]] = get_args(PhaseName)
"""In the order in which a run goes through them; one that failed goes on with `drain`."""


class PhaseInProgress:
    """What the body of a phase sees: its deadline, and what its line will say.

    warnings: one line each, shown below it: what may spoil this run or a later one, and what to do about it.
    """

    def __init__(self, deadline: Deadline, progress: Progress) -> None:
        self.deadline = deadline
        self.note = ""
        self.warnings: list[str] = []
        self._progress = progress

    def update(self, text: str) -> None:
        """How far it has come."""
        self._progress.update(text)


class Phases:
    """Makes phases; remembers which one failed."""

    def __init__(self, record: RunRecord, progress: Progress) -> None:
        self.start_ns = time.monotonic_ns()
        self.failed: str | None = None
        self._record = record
        self._progress = progress

    @contextlib.contextmanager
    def phase(self, name: PhaseName, budget_s: float) -> Iterator[PhaseInProgress]:
        """Run a block as the phase `name`, at most `budget_s` s, and write run.json when it ends."""
        began = time.monotonic_ns()
        current = PhaseInProgress(Deadline.after(budget_s), self._progress)
        shown = f"{name:<10} {PHASES.index(name) + 1}/{len(PHASES)}"
        self._progress.phase_begins(shown)
        outcome = "failed"
        try:
            yield current
            outcome = "ok"
        except BaseException as error:
            self.failed = self.failed or name
            current.note = _what_ended_it(error)
            raise
        finally:
            took = time.monotonic_ns() - began
            self._record.info.phases.append(
                Phase(name, began - self.start_ns, took, int(budget_s * 1e9), outcome, current.note, current.warnings)
            )
            # A full disk shows where the evidence is written; the record's end has room of its own.
            with contextlib.suppress(InternalError):
                self._record.save()
            self._progress.phase_ends(shown, took / 1e9, outcome, current.note)
            for warning in current.warnings:
                self._progress.warn(warning)


def _what_ended_it(error: BaseException) -> str:
    if isinstance(error, RigError):
        return error.what
    if isinstance(error, KeyboardInterrupt):
        return "interrupted" + (f" by {error}" if str(error) else "")
    return str(error) if isinstance(error, BootFailure) else type(error).__name__
