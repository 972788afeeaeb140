"""The phases of a run: each with its own budget, its line for the person who waits, its entry in run.json."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rig.board.report import BootFailure
from rig.deadline import Deadline
from rig.errors import RigError
from rig.progress import Progress
from rig.record import Phase, RunRecord


class PhaseInProgress:
    """What the body of a phase sees: its deadline, and the note that its line will carry."""

    def __init__(self, deadline: Deadline, progress: Progress) -> None:
        self.deadline = deadline
        self.note = ""
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
    def phase(self, name: str, budget_s: float) -> Iterator[PhaseInProgress]:
        """Run a block as the phase `name`, at most `budget_s` s, and write run.json when it ends."""
        began = time.monotonic_ns()
        current = PhaseInProgress(Deadline.after(budget_s), self._progress)
        self._progress.phase_begins(name)
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
                Phase(name, began - self.start_ns, took, int(budget_s * 1e9), outcome, current.note)
            )
            self._record.save()
            self._progress.phase_ends(name, took / 1e9, outcome, current.note)


def _what_ended_it(error: BaseException) -> str:
    if isinstance(error, RigError):
        return error.what
    if isinstance(error, KeyboardInterrupt):
        return "interrupted" + (f" by {error}" if str(error) else "")
    return str(error) if isinstance(error, BootFailure) else type(error).__name__
