"""What one pytest process holds: which bench it uses, the set that its records go to, and the campaign over both.

Of an invocation with several workers, the controlling process chooses and each worker holds its own.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

from rig.board.image import IMAGES
from rig.errors import BenchError, Fault
from rig.interrupts import ENDINGS, interrupt
from rig.record import new_set_id

if TYPE_CHECKING:
    from rig.campaign import Campaign
    from rig.plan.together import PlanNames

INVOCATION = pytest.StashKey["Invocation"]()


@dataclass(frozen=True)
class BenchChoice:
    """A bench file for one worker. instance: tells several emulated benches of one file apart."""

    file: str
    instance: str | None = None


class Invocation:
    """Made when pytest has read its configuration; opens nothing before `campaign` is asked for."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._campaign: Campaign | None = None
        self._handlers: dict[int, Any] = {}
        self._interrupted = self._interruptible = False
        self.on_further_interrupt: Callable[[], None] = lambda: None
        given: dict[str, Any] | None = getattr(config, "workerinput", {}).get("rig")
        self.bench: BenchChoice | None = BenchChoice(given["bench"], given["instance"]) if given else None
        self.set_id: str = given["set_id"] if given else new_set_id()

    def choose_benches(self, workers: int) -> list[BenchChoice]:
        """The bench of this process (`workers` 0), or one for each worker.

        Raises BenchError with every fault of the bench files named, UsageError when number and kind do not fit.
        """
        firmware = self._config.option.firmware
        if firmware is not None and not (Path(firmware).is_file() and Path(firmware).suffix in IMAGES):
            raise pytest.UsageError(f"--firmware {firmware}: not an existing {', '.join(IMAGES)} file")
        benches = choose(self._named(), workers)
        self.bench = benches[0]
        return benches

    def campaign(self) -> Campaign:
        """The campaign; made when the first item needs it."""
        if self._campaign is None:
            from rig.campaign import Campaign
            from rig.pytest_plugin.reporting import progress_of

            assert self.bench is not None
            firmware = self._config.option.firmware
            self._campaign = Campaign(
                Path(self.bench.file),
                self.records,
                ["pytest", *map(str, self._config.invocation_params.args)],
                progress_of(self._config),
                firmware=Path(firmware) if firmware else None,
                instance=self.bench.instance,
                set_id=self.set_id,
            )
        return self._campaign

    @functools.cached_property
    def plan_names(self) -> PlanNames:
        """Those of the plans collected so far."""
        from rig.plan.together import PlanNames

        return PlanNames()

    @property
    def records(self) -> Path:
        """The folder of all sets."""
        from rig.project import ROOT

        named = self._config.option.record_dir
        return Path(named).absolute() if named else ROOT / "captures"

    @property
    def set_directory(self) -> Path:
        """The folder of this invocation's set; it exists once a run has begun."""
        return self.records / self.set_id

    def close(self) -> None:
        """Release the bench; harmless when it was never opened."""
        if self._campaign is not None:
            self._campaign.close()

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Around tests and their teardown: every interrupt has its effect there, not only the first one."""
        self._interruptible = True
        try:
            yield
        finally:
            self._interruptible = False

    def take_signals(self) -> None:
        """pytest tears down on KeyboardInterrupt only; CI cancels with SIGTERM, a lost terminal sends SIGHUP."""
        if threading.current_thread() is not threading.main_thread():
            return
        for signum in ENDINGS:
            if signal.getsignal(signum) is not signal.SIG_IGN:  # nohup means it
                self._handlers[signum] = signal.signal(signum, self._interrupt)

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        # A further interrupt cuts a teardown short. Between pytest's own last steps it would only break them.
        if not self._interrupted or self._interruptible:
            self._interrupted = True
            interrupt(signum, frame)
        self.on_further_interrupt()

    def give_signals_back(self) -> None:
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)
        self._handlers.clear()

    def _named(self) -> list[str]:
        environment = os.environ.get("RIG_BENCH")
        return self._config.option.bench or ([environment] if environment else [])


def choose(named: Sequence[str], workers: int) -> list[BenchChoice]:
    """Give each worker its bench: as many files as workers, or one emulated bench, of which each gets an instance.

    workers: 0 without pytest-xdist. Raises BenchError for a faulty file, UsageError for a number that does not fit.
    """
    from rig.project import DEFAULT_BENCH

    if not named and workers <= 1:
        return [BenchChoice(str(DEFAULT_BENCH))]
    from rig.bench.load import load_bench

    files = list(named) or [str(DEFAULT_BENCH)]
    loaded = []
    faults: list[Fault] = []
    for file in files:
        try:
            loaded.append(load_bench(Path(file)))
        except BenchError as error:
            if not error.faults:
                raise
            faults += error.faults
    if faults:
        raise BenchError("bench files have faults", faults=faults)
    names = [one.bench for one in loaded]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise pytest.UsageError(f"--bench names bench {', '.join(map(repr, twice))} more than once")
    if len(files) == max(workers, 1):
        return [BenchChoice(file) for file in files]
    if len(files) == 1 and loaded[0].emulation is not None:
        return [BenchChoice(files[0], f"w{number}") for number in range(workers)]
    benches = f"{len(files)} {'bench is' if len(files) == 1 else 'benches are'} named ({', '.join(names)})"
    if workers == 0:
        raise pytest.UsageError(f"{benches} for one process: add -n {len(files)}, so that each gets a worker")
    raise pytest.UsageError(
        f"{benches} for {workers} workers (-n {workers}); each worker needs a bench of its own: "
        f"name {workers} with --bench, or run with -n {len(files)}"
    )
