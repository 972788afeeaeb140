"""The error families of the rig: one per side of the bench, so that a reader knows where to look.

A user sees `what`, then what was seen last, then what to do; never a traceback for anything raised from here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar


class RigError(Exception):
    """Base of all expected failures.

    what: one sentence with the value, the place and the limit that was met.
    seen: what was observed last on that side (a console line, an stderr line, a reply).
    hint: the next step for the person who reads it.
    """

    side: ClassVar[str] = "rig"

    def __init__(self, what: str, *, seen: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.seen = seen
        self.hint = hint

    def __str__(self) -> str:
        lines = [f"{self.side}: {self.what}"]
        if self.seen:
            lines.append(f"  last seen: {self.seen}")
        if self.hint:
            lines.append(f"  next step: {self.hint}")
        return "\n".join(lines)


class InternalError(RigError):
    """The rig itself is at fault or lacks something on this machine (a tool, disk space, a permission)."""

    side = "rig"


class UsageError(InternalError):
    """The command line names what is not there, or lacks what the command needs; nothing was tried."""


class BoardError(RigError):
    """The board, its serial line, its reset, boot or power lines, or a firmware image."""

    side = "board"


class JetsonError(RigError):
    """The Jetson: SSH, the runner, its engine, its disk."""

    side = "jetson"


class CaptureError(RigError):
    """The capture: dumpcap, tshark, interfaces, permissions, capture files."""

    side = "capture"


@dataclass(frozen=True, order=True)
class Fault:
    """One fault at one place of a file. `line` and `column` count from 1; 0 means the file as a whole."""

    file: str
    line: int
    column: int
    message: str
    suggestion: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.message}" + (f" ({self.suggestion})" if self.suggestion else "")


class _FileError(RigError):
    def __init__(
        self, what: str, *, faults: Iterable[Fault] = (), seen: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(what, seen=seen, hint=hint)
        self.faults = tuple(sorted(faults, key=lambda f: (f.file, f.line, f.column, f.message)))

    def __str__(self) -> str:
        if not self.faults:
            return super().__str__()
        return "\n".join(str(fault) for fault in self.faults)


class PlanError(_FileError):
    """A plan that cannot be run as written. Holds every fault of the file, sorted by position."""

    side = "plan"


class BenchError(_FileError):
    """A bench file that cannot be used, or a bench that is busy or not as its file says."""

    side = "bench"
