"""Run record and set on disk: the only thing that the live and the offline half of the rig share.

    captures/<set>/set.json                 who ran what, where
    captures/<set>/<run>/run.json           everything the gate and a reader need beside the capture
    captures/<set>/<run>/plan.yaml          the plan file as it was, byte for byte; run.json names the point
    captures/<set>/<run>/bench.yaml         the bench as it was resolved
    captures/<set>/<run>/capture.pcapng board.log jetson.jsonl telemetry.jsonl
    captures/<set>/<run>/verdicts.json      the live verdict; judging again never writes here

Files are written atomically (temporary name, fsync, rename), so a killed run leaves whole files or none.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rig.errors import InternalError

SCHEMA = "rig.run/1"
SET_SCHEMA = "rig.set/1"
VERDICTS = "verdicts.json"
COMPARISONS = "comparisons-"
RESERVE = 1 << 18
"""Bytes held back for the end of a record: run.json and the verdicts take a tenth of it."""


def write_atomic(path: Path, content: bytes) -> None:
    """Write `content` so that a reader, or a crash, sees the old file or the new one and nothing between."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        raise no_room(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)  # still there after an error, and after an interrupt


def no_room(path: Path, error: OSError) -> InternalError:
    """What to say of a file that cannot be written."""
    return InternalError(
        f"cannot write {path}: {error.strerror}", hint="make room, or choose another folder with --record-dir"
    )


def to_json(value: Any) -> bytes:
    """The one JSON spelling of this project: sorted keys, two spaces, final newline."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file, hex, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass
class Phase:
    """One phase of a run. `start_ns` counts from the start of the run."""

    name: str
    start_ns: int
    duration_ns: int
    budget_ns: int
    outcome: str
    """`ok`, `failed` or `skipped`."""
    note: str = ""
    warnings: list[str] = field(default_factory=list)


@dataclass
class RunInfo:
    """The content of run.json. Times in ns, `*_utc` as ISO 8601; docs/record.md documents every field."""

    run_id: str
    set_id: str
    plan_file: str
    plan_sha256: str
    point: str
    expanded_sha256: str
    plan_name: str
    schema: str = SCHEMA
    attempt: int = 1
    started_utc: str = ""
    ended_utc: str = ""
    outcome: str = "running"
    """`running` (never finished), `completed`, `error` or `interrupted`."""
    error: dict[str, Any] | None = None
    bench: dict[str, Any] = field(default_factory=dict)
    controller: dict[str, Any] = field(default_factory=dict)
    firmware: dict[str, Any] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)
    phases: list[Phase] = field(default_factory=list)
    capture: dict[str, Any] = field(default_factory=dict)
    nic: dict[str, Any] = field(default_factory=dict)
    clock: dict[str, Any] = field(default_factory=dict)
    board: dict[str, Any] = field(default_factory=dict)
    jetson: dict[str, Any] = field(default_factory=dict)
    impairment: list[dict[str, Any]] = field(default_factory=list)
    relay: dict[str, Any] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)


class RunRecord:
    """The directory of one run while it is written. It holds room back so that a full disk can still be told of."""

    def __init__(self, directory: Path, info: RunInfo) -> None:
        self.directory = directory
        self._reserve = directory / ".reserve"
        self.info = info
        self.capture = directory / "capture.pcapng"
        self.board_log = directory / "board.log"
        self.jetson_events = directory / "jetson.jsonl"
        self.telemetry = directory / "telemetry.jsonl"

    def save(self) -> None:
        """Write run.json as it is now; called after every phase, so that a killed run can be read."""
        write_atomic(self.directory / "run.json", to_json(asdict(self.info)))

    def hold_room(self) -> None:
        """Take RESERVE bytes of the disk until `seal`; InternalError when they are not there."""
        try:
            with self._reserve.open("wb") as stream:
                os.posix_fallocate(stream.fileno(), 0, RESERVE)
        except OSError as error:
            raise no_room(self._reserve, error) from error

    def seal(self, outcome: str) -> None:
        """Note the end, and size and checksum of every file, then save, into the room that was held back."""
        self._reserve.unlink(missing_ok=True)
        self.info.outcome = outcome
        self.info.ended_utc = utc_now()
        self.info.files = {
            path.name: {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
            for path in sorted(self.directory.iterdir())
            if path.is_file() and path.name not in ("run.json", VERDICTS) and not path.name.startswith(".")
        }
        self.save()


class RunSet:
    """All runs of one invocation, which may have several workers that each hold one of these."""

    def __init__(self, directory: Path, set_id: str) -> None:
        self.directory = directory
        self.set_id = set_id

    @classmethod
    def create(cls, base: Path, command: list[str], set_id: str | None = None) -> RunSet:
        """Make `base/<set id>/`, under a new id, or join the set `set_id`, which is made if it is not there yet."""
        joins = set_id is not None
        set_id = set_id or new_set_id()
        directory = base / set_id
        try:
            directory.mkdir(parents=True, exist_ok=joins)
        except OSError as error:
            raise InternalError(
                f"cannot make the record folder {directory}: {error.strerror}",
                hint="choose a folder that can be written with --record-dir",
            ) from error
        with _locked(directory):
            if not (directory / "set.json").exists():
                write_atomic(
                    directory / "set.json",
                    to_json({"schema": SET_SCHEMA, "set_id": set_id, "started_utc": utc_now(), "command": command}),
                )
        return cls(directory, set_id)

    def new_folder(self, label: str) -> Path:
        """Make the set's next folder, `<number>-<label>`; numbers tell the order, among all workers."""
        name = "".join(c if c.isalnum() or c in "=._+-" else "-" for c in label)
        try:
            with _locked(self.directory):
                taken = [int(folder.name.partition("-")[0]) for folder in self.directory.glob("[0-9][0-9][0-9]*-*")]
                folder = self.directory / f"{max(taken, default=0) + 1:03d}-{name}"[:120]
                folder.mkdir()
        except OSError as error:
            raise InternalError(
                f"cannot make a run's folder in {self.directory}: {error.strerror}",
                hint="if the folder was removed while its runs went on, start them again",
            ) from error
        return folder

    def new_run(self, info: RunInfo, plan_text: bytes, bench_text: str) -> RunRecord:
        """Make the next run's directory with its inputs already in it."""
        directory = self.new_folder(info.plan_name + (f"-{info.point}" if info.point else ""))
        info.run_id, info.set_id, info.started_utc = f"{self.set_id}/{directory.name}", self.set_id, utc_now()
        write_atomic(directory / "plan.yaml", plan_text)
        write_atomic(directory / "bench.yaml", bench_text.encode())
        record = RunRecord(directory, info)
        record.hold_room()
        record.save()
        return record


def load_run(directory: Path) -> RunInfo:
    """Read run.json back; raises InternalError when it is missing, damaged or of another schema."""
    path = directory / "run.json"
    hint = "name a run folder (captures/<set>/<run>), a set folder, or a capture with --plan"
    try:
        data = json.loads(path.read_bytes())
        if data.get("schema") != SCHEMA:
            raise InternalError(f"{path}: schema {data.get('schema')!r} is not {SCHEMA!r}", hint=hint)
        phases = [Phase(**phase) for phase in data.pop("phases")]
        return _sound(RunInfo(**data, phases=phases))
    except OSError as error:
        raise InternalError(f"cannot read {path}: {error.strerror}", hint=hint) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InternalError(f"{path} is not a run record: {error}", hint=hint) from error


def _sound(info: RunInfo) -> RunInfo:
    """`info`; TypeError where a field is of another kind than it declares. What lies deeper is not looked at."""
    for one in fields(info):
        declared, value = str(one.type), getattr(info, one.name)
        kind = {"str": str, "int": int}.get(declared) or (list if declared.startswith("list") else dict)
        if not isinstance(value, kind) and not (value is None and declared.endswith("None")):
            raise TypeError(f"`{one.name}` is no {kind.__name__}")
    return info


def comparisons_file(directory: Path, plan: str, bench: str) -> Path:
    """Where a set keeps what was judged of a plan's comparisons on one bench; neither name has a dot in it."""
    return directory / f"{COMPARISONS}{plan}.{bench}.json"


def from_here(path: Path) -> Path:
    """Relative inside the current directory, else absolute: a line that is copied works either way."""
    path = path.resolve()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def set_folders(records: Path) -> tuple[list[Path], list[Path]]:
    """The folders below `records` in the order of their names: those that this user can read, and the others, such as
    the `lost+found` of a disk."""
    with os.scandir(records) as entries:
        found = [records / name for name in sorted(entry.name for entry in entries if entry.is_dir())]
    readable = {path: os.access(path, os.R_OK | os.X_OK, effective_ids=True) for path in found}
    return [path for path in found if readable[path]], [path for path in found if not readable[path]]


def runs_of(path: Path) -> list[Path]:
    """The run folders that `path` names: itself, or those of a set, in order."""
    if (path / "run.json").is_file():
        return [path]
    runs = (run.parent for run in path.glob("*/run.json"))
    return sorted(runs, key=lambda run: (len(run.name.partition("-")[0]), run.name))  # 1000 comes after 999


def new_set_id() -> str:
    """Ids sort by time and do not collide between machines."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}"


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One worker of a set at a time. The kernel drops the lock with the process."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def utc_now() -> str:
    """Now as `2026-01-31T12:00:00.123Z`."""
    now = time.time_ns()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**9)) + f".{now // 10**6 % 1000:03d}Z"


def controller_identity(root: Path) -> Mapping[str, Any]:
    """Version, commit and dirty flag of the controller's own source; commit is None outside a git checkout."""
    from importlib.metadata import version

    def git(*args: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(root), *args], capture_output=True, text=True, timeout=5, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    status = git("status", "--porcelain", "--untracked-files=no")
    return {"version": version("rig"), "commit": git("rev-parse", "HEAD"), "dirty": bool(status)}
