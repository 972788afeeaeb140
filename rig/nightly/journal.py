"""What a night did, line by line, in `<set>/nightly.jsonl`: what the morning page says beside the verdicts, and what a
night that was killed goes on from. The state folder only points to the set of the night that is not over.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

from rig.errors import InternalError
from rig.record import to_json, utc_now, write_atomic

NAME: Final = "nightly.jsonl"
TRIES: Final = 2
"""An attempt that was begun and took the whole night down with it so often is not begun again."""

COMPARISONS: Final = 0
"""In place of a job's turn: no run, but what follows from the plan's runs."""


@dataclass(frozen=True, order=True)
class Job:
    """One point of one plan on one bench. turn: which run of it, for plans with `repeat`.

    COMPARISONS as turn, without a point: the plan's comparisons, once its runs on this bench are over.
    """

    bench: str
    plan: str
    point: str
    turn: int = 1

    @property
    def title(self) -> str:
        return self.plan + (f"[{self.point}]" if self.point else "")

    @property
    def compares(self) -> bool:
        return self.turn == COMPARISONS


@dataclass(frozen=True)
class Attempt:
    """One attempt at a job. side, findings: what `rig.nightly.retries` goes by. record: `<set>/<run>`, None without."""

    job: Job
    number: int
    verdict: str
    sentence: str
    side: str = ""
    findings: tuple[str, ...] = ()
    record: str | None = None


@dataclass(frozen=True)
class Order:
    """What a night was told to do; enough to go on after a reboot."""

    plans: tuple[str, ...]
    benches: tuple[str, ...]
    parallel: int
    budget_s: float
    run_budget_s: float
    quarantine: str | None
    begun_s: float
    """Wall clock: a reboot is part of the night."""


@dataclass
class Night:
    """A journal read back. jobs: what the night is to do, in its order. begun: attempts by job that have started;
    not_run: job → reason; health: bench → faults. unread: lines that another version of the rig wrote.
    """

    order: Order | None = None
    jobs: tuple[Job, ...] = ()
    attempts: list[Attempt] = field(default_factory=list)
    begun: dict[Job, int] = field(default_factory=dict)
    not_run: dict[Job, str] = field(default_factory=dict)
    health: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)
    ended_utc: str = ""

    @property
    def known_jobs(self) -> tuple[Job, ...]:
        """All that this night has to answer for, also what is no longer on its list since it went on after a reboot."""
        made = (attempt.job for attempt in self.attempts)
        return tuple(dict.fromkeys((*self.jobs, *self.begun, *made, *self.not_run)))

    def of(self, job: Job) -> list[Attempt]:
        return [attempt for attempt in self.attempts if attempt.job == job]


class Journal:
    """Appends events; each is on disk before the call returns, whole or not at all to a reader."""

    def __init__(self, directory: Path) -> None:
        path = directory / NAME
        try:
            self._stream: IO[bytes] = path.open("ab")
        except OSError as error:
            raise InternalError(f"cannot write {path}: {error.strerror}") from error
        if path.stat().st_size and path.read_bytes()[-1:] != b"\n":
            self._stream.write(b"\n")  # the line in which the last night was killed

    def write(self, event: str, **content: Any) -> None:
        line = json.dumps({"event": event, "utc": utc_now(), **content}, sort_keys=True, ensure_ascii=False)
        # A lone surrogate, from a log or a file's name, must end neither the night nor its page.
        self._stream.write(line.encode(errors="replace") + b"\n")
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def begin(self, order: Order, jobs: Iterable[Job]) -> None:
        """Also when a night goes on: its list may have changed. The list tells a reader what a night cut off left."""
        self.write("begun", order=asdict(order), jobs=[asdict(job) for job in jobs])

    def attempt_begins(self, job: Job, number: int) -> None:
        self.write("attempt-begins", job=asdict(job), number=number)

    def attempt_ends(self, attempt: Attempt) -> None:
        self.write("attempt", **asdict(attempt))

    def leave_out(self, job: Job, reason: str) -> None:
        self.write("not-run", job=asdict(job), reason=reason)

    def health(self, bench: str, faults: Sequence[str]) -> None:
        """What the examination of a bench found wrong with it; empty: nothing."""
        self.write("health", bench=bench, faults=list(faults))

    def note(self, sentence: str) -> None:
        self.write("note", sentence=sentence)

    def end(self) -> None:
        self.write("ended")

    def close(self) -> None:
        self._stream.close()


def read_journal(directory: Path) -> Night:
    """The journal of a set; an empty one where there is none. A line that was cut by a crash is left out, one that
    holds something else than this version of the rig writes is in `unread`.
    """
    night = Night()
    try:
        text = (directory / NAME).read_bytes()
    except FileNotFoundError:
        return night
    except OSError as error:
        raise InternalError(f"cannot read {directory / NAME}: {error.strerror}") from error
    for number, event in _events(text):
        try:
            _apply(night, event)
        except (AttributeError, KeyError, TypeError, ValueError):
            night.unread.append(number)
    return night


def _events(text: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield number, event


def _apply(night: Night, event: dict[str, Any]) -> None:
    match event.get("event"):
        case "begun":
            order = event["order"]
            order |= {"plans": tuple(order["plans"]), "benches": tuple(order["benches"])}
            night.order = Order(**order | {"begun_s": float(order["begun_s"])})
            night.jobs = tuple(Job(**job) for job in event["jobs"])
            for job in night.jobs:  # where the night went on, what was left out is looked at again
                night.not_run.pop(job, None)
        case "attempt-begins":
            job = Job(**event["job"])
            night.begun[job] = night.begun.get(job, 0) + 1
        case "attempt":
            fields = {name: event[name] for name in ("number", "verdict", "sentence", "side", "record")}
            night.attempts.append(Attempt(Job(**event["job"]), findings=tuple(event["findings"]), **fields))
        case "not-run":
            night.not_run[Job(**event["job"])] = event["reason"]
        case "health":
            night.health[event["bench"]] = tuple(event["faults"])
        case "note":
            night.notes.append(event["sentence"])
        case "ended":
            night.ended_utc = event["utc"]


class Unfinished:
    """The pointer to the night that is not over, and the lock that lets only one go on at a time.

    Context manager; raises InternalError while another process has the night.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pointer = folder / "unfinished.json"
        self._lock: int | None = None

    def __enter__(self) -> Unfinished:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock or 0)
            raise InternalError(
                "another `rig nightly` is at work",
                hint="wait for it; two nights at once need two state folders (XDG_STATE_HOME)",
            ) from error
        except OSError as error:
            raise InternalError(
                f"cannot use the state folder {self._folder}: {error.strerror}", hint="set XDG_STATE_HOME"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            os.close(self._lock)

    def directory(self) -> Path | None:
        """The set of the unfinished night; None when there is none, or its folder is gone."""
        try:
            found = Path(json.loads(self._pointer.read_bytes())["set"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found if found.is_dir() else None

    def set(self, directory: Path) -> None:
        write_atomic(self._pointer, to_json({"set": str(directory.absolute())}))

    def clear(self) -> None:
        self._pointer.unlink(missing_ok=True)
