"""A bench in use by this process: lease, rig-side host, control lines and the SSH connection, for all its runs.

Opened once per invocation, since bringing a bench up and connecting cost more than a run's own overhead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rig.bench.host import Host, LocalHost
from rig.bench.lease import BenchLease, state_folder
from rig.bench.load import hardware_bench, load_bench
from rig.bench.model import Bench, BenchFile
from rig.bench.nic_settings import JOURNAL
from rig.deadline import Deadline
from rig.errors import InternalError, PlanError
from rig.interrupts import Ends, held_back

if TYPE_CHECKING:
    from rig.board.board import Board
    from rig.emulation.bench import EmulatedBench
    from rig.jetson.session import JetsonSession
    from rig.plan.model import Impairment

NIC_S = 10.0
"""For putting the NICs back when the bench is released."""


class Rig:
    """Context manager around one bench. Must be entered from the main thread (emulated benches end with it)."""

    def __init__(self, file: BenchFile, text: str, *, instance: str | None = None) -> None:
        self.file = file
        self.text = text
        self.bench: Bench
        self.host: Host
        self._instance = instance
        self.name = file.bench if instance is None else f"{file.bench}.{instance}"
        """Names lease and state folder of this bench, or of one of several instances of it."""
        self._emulated: EmulatedBench | None = None
        self._jetson: JetsonSession | None = None
        self._nic_journal = state_folder(self.name) / JOURNAL
        self._nics_in_use = False
        self._stack = contextlib.ExitStack()

    @classmethod
    def of(cls, path: Path, *, instance: str | None = None) -> Rig:
        """The bench that a bench file describes; raises BenchError with every fault of the file."""
        return cls(load_bench(path), path.read_text(encoding="utf-8"), instance=instance)

    def __enter__(self) -> Rig:
        with Ends() as stack:
            stack.enter_context(BenchLease(self.name))
            if self.file.emulation is not None:
                from rig.emulation.bench import open_bench

                self._emulated = stack.enter_context(open_bench(self.file, instance=self._instance))
                self.bench, self.host = self._emulated.bench, self._emulated.host
            else:
                self.bench, self.host = hardware_bench(self.file), LocalHost()
            stack.callback(self._disconnect)
            stack.callback(self._put_nics_back)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with held_back():
            self._stack.close()

    def jetson(self, deadline: Deadline) -> JetsonSession:
        """The SSH session; connected on first use and again after it was lost."""
        from rig.jetson.session import JetsonSession

        if self._jetson is not None and not self._jetson.alive:
            self._disconnect()
        if self._jetson is None:
            session = JetsonSession(self.bench.jetson, self.host, deadline)
            self._jetson = session.__enter__()
        return self._jetson

    def capture_host(self, deadline: Deadline) -> Host:
        """Where the capture runs: the rig's side of the bench, at capture point `jetson` the Jetson."""
        if self.bench.capture.point != "jetson":
            return self.host
        from rig.capture.jetson_host import JetsonHost

        return JetsonHost(self.jetson(deadline))

    def board(self, log: Path, start_ns: int) -> Board:
        """The board with its serial port open, logging to `log` until it is closed."""
        from rig.board.board import Board

        return Board.open(
            self.bench.board,
            peer=self.bench.jetson.bench_address,
            log=log,
            start_ns=start_ns,
            emulated=self._emulated.lines if self._emulated else None,
        )

    def nics(self, named: Sequence[str], deadline: Deadline) -> dict[str, Any]:
        """State of the NICs on the measured path for run.json; what the bench file disables is off from here on.

        named: the capturing interfaces. Put back when the bench is released, not after each run: an EEE change makes
        the link negotiate anew. What a killed run has left is put back first.
        """
        from rig.bench.nic_settings import NicSettings, segment_record

        settings = NicSettings(self.capture_host(deadline), self._nic_journal)
        if not self._nics_in_use:
            settings.restore(deadline)
            self._nics_in_use = True
        return segment_record(settings, named, self.bench.nic.disable, deadline)

    def _put_nics_back(self) -> None:
        from rig.bench.nic_settings import put_back

        if self._nics_in_use and self._nic_journal.exists():
            deadline = Deadline.after(NIC_S)
            put_back(lambda: self.capture_host(deadline), self._nic_journal, deadline)

    @contextlib.contextmanager
    def impaired(self, rules: list[Impairment]) -> Iterator[None]:
        """The plan's impairments on top of the bench's own, gone again at the end."""
        if not rules:
            yield
            return
        if self._emulated is None:
            raise PlanError(
                f"the plan has `impairment:` and bench {self.bench.bench!r} has no link relay",
                hint="add `requires: [link-relay]` to the plan, so that it is skipped on such benches",
            )
        own = self.file.emulation.impairment if self.file.emulation else []
        self._emulated.set_impairment([*own, *rules])
        try:
            yield
        finally:
            self._emulated.set_impairment(own)

    def relay_counters(self) -> dict[str, Any]:
        """What the relay has done so far; empty on hardware."""
        return self._emulated.relay_counters() if self._emulated else {}

    def require_whole(self) -> None:
        """InternalError when part of the emulated bench has ended: what was measured is then no fault of the board."""
        ended = dict(self._emulated.status()["ended_parts"]) if self._emulated else {}
        ended.pop("sshd", None)  # a Jetson that is gone speaks for itself
        if ended:
            what = ", ".join(f"{name} (status {status})" for name, status in sorted(ended.items()))
            raise InternalError(
                f"a part of the emulated bench ended by itself: {what}",
                hint="killed by hand or for want of memory? See `dmesg`, then run again",
            )

    def missing(self, requires: list[str]) -> list[str]:
        """Capabilities that a plan requires and this bench does not list."""
        return [name for name in requires if name not in self.bench.capabilities]

    def _disconnect(self) -> None:
        if self._jetson is not None:
            self._jetson.close()
            self._jetson = None
