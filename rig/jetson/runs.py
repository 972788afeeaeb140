"""Inference runs on the Jetson: upload the runner, sweep, start, follow its phases, collect its events.

    with JetsonSession(bench.jetson, host, deadline) as session:
        with start_run(session, spec, deadline) as run:
            run.wait_ready(deadline)                # engine loaded and warm; overlaps with flashing and capture start
            run.probe(3, budget)                    # network ready?
            run.go(deadline)                        # capture is ready: warm-up, sentinels, load
            run.wait_done(deadline)
            report = run.collect(record.jetson_events, deadline)

The runner holds the Jetson's lease from start to collection. Leaving the block in any way ends it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import queue
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeAlias

from rig.deadline import Deadline
from rig.errors import JetsonError
from rig.jetson.report import RunnerReport, read_report
from rig.jetson.session import JetsonSession, RemoteProcess
from rig.jetson.spec import RunnerSpec

SILENCE_S: Final = 10.0
"""A ready runner prints a line every second; this long without one means that it or its machine is frozen."""

_MARK = b"@rig "
HOLD_S: Final = 24 * 3600.0
_ENDS: Final = ("done", "stopped", "error")

Watch: TypeAlias = Callable[[Mapping[str, int]], None]


@dataclass(frozen=True)
class Ready:
    """engine: the runner's `engine` facts, empty where nothing is inferred. start_to_ready_ns: in the runner."""

    engine: Mapping[str, Any]
    port: int
    start_to_ready_ns: int
    swept: Mapping[str, Any]


@dataclass(frozen=True)
class ProbeResult:
    """Network probes: how many were sent and answered, and the answered ones' round trips (ns, on the Jetson)."""

    sent: int
    answered: int
    rtt_ns: tuple[int, ...]


@dataclass(frozen=True)
class Sweep:
    """What a sweep found. removed, killed: run ids. A live lease is no result but a JetsonError."""

    removed: tuple[str, ...]
    killed: tuple[str, ...]


def sweep(session: JetsonSession, deadline: Deadline) -> Sweep:
    """Remove what stale runs left behind. JetsonError `Jetson busy` when a live run holds the lease.

    Starting a run sweeps too, under the same lock; this call is for a rig that wants to know before it touches a board.
    """
    found = _command(session, "sweep", "swept", deadline)
    if (lease := found["busy"]) is not None:
        raise _busy("held by {owner} on {host} (run {run_id}) since {since_utc}".format_map(_Known(lease)))
    return Sweep(tuple(found["removed"]), tuple(found["killed"]))


def host_state(session: JetsonSession, deadline: Deadline) -> dict[str, Any]:
    """What the Jetson says of itself: uname, Python, engine and its providers, clocks, temperatures, memory, disk."""
    return _command(session, "state", "state", deadline)


def start_run(session: JetsonSession, spec: RunnerSpec, deadline: Deadline) -> RemoteRun:
    """Start the runner; returns once it holds the lease. JetsonError `Jetson busy` when another run does."""
    process = session.start([*_runner(session, deadline), "run"], deadline)
    run = RemoteRun(session, process, spec.run_id)
    try:
        process.write(spec.to_line(), deadline)
        run.wait_hello(deadline)
    except BaseException:
        run.close()
        raise
    return run


@contextlib.contextmanager
def hold_lease(session: JetsonSession, *, run_id: str, owner: str, deadline: Deadline) -> Iterator[None]:
    """Sweep what dead runs left and hold the Jetson's lease; JetsonError `Jetson busy` when another run does.

    deadline: for taking it. It is let go at the end of the block, or with this process.
    """
    told = {"run_id": run_id, "owner": owner, "host": socket.gethostname(), "deadline_s": HOLD_S}
    process = session.start([*_runner(session, deadline), "hold"], deadline)
    with RemoteRun(session, process, run_id) as holder:
        process.write(json.dumps(told).encode() + b"\n", deadline)
        holder.wait_phase("held", deadline)
        yield


class RemoteRun:
    """A runner at work. Its phases come as lines; each wait takes them up to the one that it needs."""

    def __init__(self, session: JetsonSession, process: RemoteProcess, run_id: str) -> None:
        self.phases: dict[str, dict[str, Any]] = {}
        """Phase → what the runner said with it, for all phases so far."""
        self._session = session
        self._process = process
        self._run_id = run_id
        self._last_line_ns = time.monotonic_ns()
        self._noise = ""
        self._closed = False

    def __enter__(self) -> RemoteRun:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the runner, if it still runs: it sees the end of its input, closes its events and lets the lease go."""
        if self._closed:
            return
        self._closed = True
        if any(phase in self.phases for phase in (*_ENDS, "held")) and self._session.alive:
            # It waits for us; told so, it removes its files and its lease at once, and no sweep has to.
            with contextlib.suppress(JetsonError):
                self._order("bye", Deadline.after(2.0))
                self._process.wait(Deadline.after(2.0))
        self._process.close()

    def wait_hello(self, deadline: Deadline) -> None:
        hello = self._await("hello", deadline)
        if hello["sha256"] != _runner_sha256():
            raise JetsonError(
                f"the runner on {self._session.where} is not the one that was uploaded: its bytes have changed",
                seen=f"SHA-256 {hello['sha256'][:16]}…, expected {_runner_sha256()[:16]}…",
                hint=f"remove {self._session.path()} on the Jetson and check its disk",
            )

    def wait_ready(self, deadline: Deadline) -> Ready:
        """Engine loaded and warm, socket bound."""
        said = self._await("ready", deadline)
        return Ready(said["engine"], said["port"], said["since_start_ns"], self.phases["hello"]["swept"])

    def probe(self, count: int, budget: Deadline) -> ProbeResult:
        """Send probes until `count` are answered or the budget is used up. Only after `wait_ready`."""
        self.phases.pop("probed", None)
        self._order(f"probe {count} {max(1, int(budget.left() * 1000))}", budget)
        said = self._await("probed", Deadline.after(budget.left() + SILENCE_S))
        return ProbeResult(said["sent"], said["answered"], tuple(said["rtt_ns"]))

    def go(self, deadline: Deadline) -> None:
        """The capture is ready: begin warm-up, sentinels and load."""
        self._order("go", deadline)

    def wait_phase(self, phase: str, deadline: Deadline) -> dict[str, Any]:
        """Wait for `warmed-up`, `start-sentinel` and the like; returns what was said with it."""
        return self._await(phase, deadline)

    def wait_done(self, deadline: Deadline, watch: Watch | None = None) -> dict[str, Any]:
        """The end sentinel is out and the events are closed. {"counts", "sentinels", "events"}.

        watch: called about every second with the runner's counts so far; what it raises ends the wait.
        """
        return self._await("done", deadline, watch)

    def abort(self, deadline: Deadline) -> None:
        """Stop early; the events so far can then be collected."""
        if not self._receipt():
            self._order("abort", deadline)
            self._await("stopped", deadline)

    def collect(self, path: Path, deadline: Deadline) -> RunnerReport:
        """Fetch the events into `path`, checked by size and SHA-256, remove the run's files over there, end the runner.

        Also after an error or an abort, as long as the runner could close its events.
        """
        receipt = self._receipt()
        if not receipt:
            raise JetsonError("the runner has left no events to collect", seen=self._last_words())
        events = f"{self.phases['hello']['run_dir']}/events.jsonl"
        self._session.get(events, path, deadline, size=receipt["bytes"], sha256=receipt["sha256"])
        self._order("bye", deadline)
        self._closed = True
        if self._process.wait(deadline) is None:
            raise JetsonError(f"the runner of {self._run_id} did not end after its events were collected")
        self._process.close()
        return read_report(path)

    def _receipt(self) -> dict[str, Any]:
        for phase in _ENDS:
            if phase in self.phases:
                receipt: dict[str, Any] = self.phases[phase].get("events") or {}
                return receipt
        return {}

    def _order(self, line: str, deadline: Deadline) -> None:
        self._process.write(line.encode() + b"\n", deadline)

    def _await(self, phase: str, deadline: Deadline, watch: Watch | None = None) -> dict[str, Any]:
        while phase not in self.phases:
            said = self._next(phase, deadline)
            if said["phase"] == "alive":
                if watch is not None:
                    watch(said.get("counts", {}))
                continue
            self.phases[said["phase"]] = said
            if said["phase"] == phase:
                break
            if said["phase"] == "error":
                raise _runner_error(said, self._session)
            if said["phase"] == "stopped":
                raise JetsonError(f"the runner stopped before `{phase}`: {said['reason']}", seen=self._last_words())
        return self.phases[phase]

    def _next(self, phase: str, deadline: Deadline) -> dict[str, Any]:
        """The runner's next line."""
        while True:
            # Loading an engine can hold Python's lock for long, so silence means something only once it is ready.
            silent_at = self._last_line_ns + int(SILENCE_S * 1e9) if "ready" in self.phases else deadline.at_ns
            until = min(deadline.at_ns, silent_at)
            try:
                line = self._process.lines.get(timeout=max(0.001, (until - time.monotonic_ns()) / 1e9))
            except queue.Empty:
                if deadline.expired():
                    what = f"the runner on {self._session.where} did not reach `{phase}` within {deadline.budget_s:g} s"
                else:
                    what = f"the runner on {self._session.where} has been silent for {SILENCE_S:g} s before `{phase}`"
                hint = "look at the Jetson's load, temperature and console; its own deadline ends the runner there"
                raise JetsonError(what, seen=self._last_words(), hint=hint) from None
            if line is None:
                raise self._ended(phase, deadline)
            self._last_line_ns = time.monotonic_ns()
            said = _parse(line)
            if said is None:
                self._noise = line.decode("utf-8", "replace").strip() or self._noise
            else:
                return said

    def _ended(self, phase: str, deadline: Deadline) -> JetsonError:
        status = self._process.wait(deadline.at_most(2.0))
        if not self._session.alive:
            return JetsonError(
                f"the connection to {self._session.where} was lost before `{phase}`",
                seen=self._last_words(),
                hint="the runner ends by itself; check the Jetson's power, sshd and management link",
            )
        if status == -1:
            return JetsonError(
                f"the runner on {self._session.where} was killed before `{phase}`",
                seen=self._last_words(),
                hint="by hand, for want of memory, or by a reboot: see `journalctl -k` and `uptime` on the Jetson",
            )
        command = f"{self._session.jetson.python} {self._process.argv[1]} state"
        return JetsonError(
            f"the runner on {self._session.where} ended with status {status} before `{phase}`",
            seen=self._last_words(),
            hint=f"run `{command}` on the Jetson to see what it lacks",
        )

    def _last_words(self) -> str:
        last = next(reversed(self.phases), "nothing")
        return self._process.stderr_tail or self._noise or f"last phase: {last}"


class _Known(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"


@cache
def _runner_source() -> bytes:
    return Path(__file__).with_name("runner.py").read_bytes()


@cache
def _runner_sha256() -> str:
    return hashlib.sha256(_runner_source()).hexdigest()


def _runner(session: JetsonSession, deadline: Deadline) -> list[str]:
    """Interpreter and runner on the Jetson, uploaded if this version of it is not there yet."""
    remote = session.path(f"runner-{_runner_sha256()[:16]}.py")
    if not session.has(remote, len(_runner_source()), deadline):
        session.put(_runner_source(), remote, deadline)
    return [session.jetson.python.removeprefix("~/"), remote]


def _command(session: JetsonSession, command: str, phase: str, deadline: Deadline) -> dict[str, Any]:
    result = session.run([*_runner(session, deadline), command], deadline)
    for said in filter(None, map(_parse, result.stdout.split(b"\n"))):
        if said["phase"] == phase:
            return said
        if said["phase"] == "error":
            raise _runner_error(said, session)
    raise JetsonError(
        f"`runner.py {command}` on {session.where} ended with status {result.status} and no answer",
        seen=result.stderr.decode("utf-8", "replace").strip()
        or result.stdout[-500:].decode("utf-8", "replace")
        or None,
        hint=f"check that `{session.jetson.python}` (jetson.python) is a Python 3.6 or later there",
    )


def _parse(line: bytes) -> dict[str, Any] | None:
    """A line of the runner; None for anything else that a login shell prints."""
    if not line.startswith(_MARK):
        return None
    try:
        said = json.loads(line[len(_MARK) :])
    except ValueError:
        return None
    return said if isinstance(said, dict) and isinstance(said.get("phase"), str) else None


def _runner_error(said: Mapping[str, Any], session: JetsonSession) -> JetsonError:
    if said["code"] == "busy":
        return _busy(said["what"].removeprefix("busy: "))
    return JetsonError(f"{said['what']} (on {session.where})", hint=said.get("hint") or None)


def _busy(holder: str) -> JetsonError:
    return JetsonError(f"Jetson busy: {holder}", hint="wait for that run, or end it on its own rig")
