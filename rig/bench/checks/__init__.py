"""What `rig doctor` and the preflight of a run look at: one function per check, the facts apart from their judgement.

A check gathers facts through a `Site` and hands them to a pure function, which makes the finding. The registry with
the order of the checks is `rig.bench.doctor.CHECKS`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rig.bench.host import Host, LocalHost
from rig.bench.model import Bench, BenchFile
from rig.deadline import Deadline
from rig.errors import InternalError, RigError

if TYPE_CHECKING:
    from rig.bench.checks.routes import RouteFacts
    from rig.bench.nic import NicState
    from rig.jetson.session import JetsonSession

State = Literal["ok", "warn", "fail", "skipped"]


@dataclass(frozen=True)
class Finding:
    """What a check found. fix: the next step, as a command line where there is one; empty when nothing is to be done.

    skipped: the fact could not be had; `found` then says what it needs.
    """

    state: State
    found: str
    fix: str = ""


def ok(found: str) -> Finding:
    return Finding("ok", found)


def warn(found: str, fix: str) -> Finding:
    """It works, but may spoil a measurement or a later run."""
    return Finding("warn", found, fix)


def fail(found: str, fix: str) -> Finding:
    """No run can work, or none can be trusted."""
    return Finding("fail", found, fix)


def skipped(needs: str) -> Finding:
    return Finding("skipped", f"needs {needs}")


def failure(error: RigError) -> Finding:
    """A finding from an error of one of the rooms, whose sentences are written for the same reader."""
    return fail(error.what + (f" (last seen: {error.seen})" if error.seen else ""), error.hint or "")


class OpenBench(Protocol):
    """What a check needs of a bench in use; `rig.session.Rig` is one."""

    file: BenchFile
    name: str
    bench: Bench
    host: Host

    def jetson(self, deadline: Deadline) -> JetsonSession:
        """The SSH session."""

    def capture_host(self, deadline: Deadline) -> Host:
        """Where the capture runs: the rig's side of the bench, or the Jetson."""


@dataclass
class Site:
    """A bench as the checks see it, filled in as they go. root: the project's folder, records: where runs go.

    opener: brings the bench up, closed with `ends`. opened: None unless this process holds the bench, so that
    connecting to the board's port server or to the Jetson disturbs nobody. bench, host: None until the bench is there.
    session: None until SSH stands.
    """

    root: Path
    records: Path
    file: BenchFile
    name: str
    deadline: Deadline
    opener: AbstractContextManager[OpenBench] | None = None
    ends: ExitStack = field(default_factory=ExitStack)
    opened: OpenBench | None = None
    bench: Bench | None = None
    host: Host | None = None
    session: JetsonSession | None = None
    nics: list[NicState] | None = None
    jetson_state: dict[str, Any] | None = None
    routes: RouteFacts | None = None
    began: tuple[int, int] = (0, 0)
    """CLOCK_REALTIME - CLOCK_MONOTONIC and CLOCK_MONOTONIC, ns, when the examination began; zero: not watched."""

    @classmethod
    def of(cls, opened: OpenBench, session: JetsonSession, root: Path, records: Path, deadline: Deadline) -> Site:
        """A bench in the middle of a run: everything is there."""
        return cls(
            root,
            records,
            opened.file,
            opened.name,
            deadline,
            opened=opened,
            bench=opened.bench,
            host=opened.host,
            session=session,
        )

    def run(self, *argv: str) -> subprocess.CompletedProcess[bytes] | None:
        """Run a program on the rig's side of the bench, or on this machine where there is no bench; None if missing."""
        try:
            return (self.host or LocalHost()).run(argv, self.deadline)
        except InternalError:
            if self.deadline.expired():
                raise
            return None


def listed(words: Sequence[str], most: int = 4) -> str:
    """`a, b, c and 5 more`."""
    shown = ", ".join(words[:most])
    return shown if len(words) <= most else f"{shown} and {len(words) - most} more"
