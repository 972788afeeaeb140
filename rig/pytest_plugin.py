"""pytest collects `*.plan.yaml`: one item per check, one run shared by the checks of a point.

    testplans/zero-copy-latency.plan.yaml::zero-copy-latency::answer-time
    testplans/copy-vs-zero-copy.plan.yaml::copy-vs-zero-copy[variant=copy]::no-loss

FAIL fails in the call phase, so JUnit counts a failure. INCONCLUSIVE and ERROR fail in the set-up phase, so JUnit
counts an error. The property `verdict` and the first word of the text say which.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

from rig.errors import RigError

if TYPE_CHECKING:
    from rig.campaign import Campaign, Judged
    from rig.plan.load import PlanFile, Point

SUFFIX = ".plan.yaml"
_STATE = pytest.StashKey["_State"]()
_JUDGED = pytest.StashKey["Judged"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rig", "hardware-in-the-loop rig")
    group.addoption(
        "--bench",
        metavar="FILE",
        default=os.environ.get("RIG_BENCH"),
        help="bench file (Env: RIG_BENCH, Default: benches/emulated.yaml)",
    )
    group.addoption(
        "--firmware", metavar="IMAGE", help="flash this image (.elf, .hex, .bin) instead of the plan's variant"
    )
    group.addoption("--record-dir", metavar="DIR", help="folder for run records (Default: captures)")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STATE] = _State(config)
    if config.option.bench:
        from rig.bench.load import load_bench

        try:
            load_bench(Path(config.option.bench))
        except RigError as error:
            raise pytest.UsageError(str(error)) from error


def pytest_unconfigure(config: pytest.Config) -> None:
    state = config.stash.get(_STATE, None)
    if state is not None:
        state.close()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.name.endswith(SUFFIX):
        return PlanCollector.from_parent(parent, path=file_path)
    return None


class PlanCollector(pytest.File):
    """One plan file."""

    def collect(self) -> Iterator[pytest.Collector]:
        from rig.plan.load import load_plan
        from rig.run import title

        shown = self.path
        with contextlib.suppress(ValueError):
            shown = self.path.relative_to(self.config.rootpath)
        try:
            plan_file = load_plan(self.path if shown == self.path else Path(os.path.relpath(self.path)))
        except RigError as error:
            raise self.CollectError(str(error)) from error
        for point in plan_file.points:
            yield PointCollector.from_parent(self, name=title(plan_file, point), plan_file=plan_file, point=point)


class PointCollector(pytest.Collector):
    """One point of a plan: the run that its checks share."""

    def __init__(self, *, plan_file: PlanFile, point: Point, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan_file = plan_file
        self.point = point

    def collect(self) -> Iterator[pytest.Item]:
        for name in [*self.point.plan.checks, "alive"]:
            yield CheckItem.from_parent(self, name=name)

    def judged(self) -> Judged:
        """The run's verdicts; runs on first use."""
        if _JUDGED not in self.stash:
            campaign = self.config.stash[_STATE].campaign()
            self.stash[_JUDGED] = campaign.run(self.plan_file, self.point)
        return self.stash[_JUDGED]


class CheckItem(pytest.Item):
    """One check of one point."""

    parent: PointCollector

    def setup(self) -> None:
        from rig.timing.expectation import outcome_of_check
        from rig.timing.rendering import render_check
        from rig.timing.verdict import Verdict

        judged = self.parent.judged()
        result = next((check for check in judged.result.checks if check.check == self.name), None)
        if result is None:
            # `alive` is not judged where there was no run, or no console to observe.
            pytest.skip(judged.outcome.sentence if judged.record is None else "no console was observed")
        self.user_properties.append(("verdict", str(result.verdict)))
        if judged.record is not None:
            self.user_properties.append(("record", str(judged.record)))
        if result.verdict is Verdict.SKIP:
            pytest.skip(result.reason)
        self._outcome = outcome_of_check(result, self.parent.point.plan.expect)
        self._text = render_check(result)
        if judged.record is not None:
            self._text += f"\n  record: {os.path.relpath(judged.record)}"
        if not self._outcome.green and result.verdict in (Verdict.ERROR, Verdict.INCONCLUSIVE):
            pytest.fail(self._text, pytrace=False)

    def runtest(self) -> None:
        if not self._outcome.green:
            if not self._text.startswith("FAIL"):
                self._text = f"FAIL {self.name}: {self._outcome.sentence}\n{self._text}"
            pytest.fail(self._text, pytrace=False)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        line = self.parent.point.position("checks", self.name)[0] if self.name != "alive" else 1
        return self.path, line - 1, f"{self.parent.name}::{self.name}"


class _State:
    """What one pytest session holds: the campaign, opened when the first plan's item runs."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._campaign: Campaign | None = None
        self._handlers: dict[int, Any] = {}

    def campaign(self) -> Campaign:
        if self._campaign is None:
            from rig.campaign import Campaign
            from rig.session import DEFAULT_BENCH, ROOT

            option = self._config.option
            for signum in (signal.SIGTERM, signal.SIGHUP):
                self._handlers[signum] = signal.signal(signum, _interrupt)
            self._campaign = Campaign(
                Path(option.bench) if option.bench else DEFAULT_BENCH,
                Path(option.record_dir) if option.record_dir else ROOT / "captures",
                ["pytest", *map(str, self._config.invocation_params.args)],
                _PytestProgress(self._config),
                firmware=Path(option.firmware) if option.firmware else None,
                instance=os.environ.get("PYTEST_XDIST_WORKER"),
            )
        return self._campaign

    @property
    def done(self) -> list[Judged]:
        return self._campaign.done if self._campaign else []

    @property
    def directory(self) -> Path | None:
        return self._campaign.directory if self._campaign else None

    def close(self) -> None:
        if self._campaign is not None:
            self._campaign.close()
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """pytest tears down on KeyboardInterrupt only; CI cancels with SIGTERM, a lost terminal sends SIGHUP."""
    raise KeyboardInterrupt(signal.Signals(signum).name)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    state = config.stash.get(_STATE, None)
    if state is None or not state.done:
        return
    from rig.summary import summary_lines

    terminalreporter.section("runs")
    for line in summary_lines(state.done, terminalreporter.hasmarkup):
        terminalreporter.write_line(line)
    if state.directory is not None:
        terminalreporter.write_line(f"records: {os.path.relpath(state.directory)}")


class _PytestProgress:
    """A line per phase with -v, the running phase in place on a terminal, nothing in a log."""

    def __init__(self, config: pytest.Config) -> None:
        from rig.progress import SilentProgress, TextProgress

        self._capture = config.pluginmanager.getplugin("capturemanager")
        reporter = config.pluginmanager.getplugin("terminalreporter")
        wanted = reporter is not None and (
            reporter.verbosity > 0 or (sys.__stdout__ is not None and sys.__stdout__.isatty())
        )
        self._inner = TextProgress(reporter._tw) if wanted and reporter is not None else SilentProgress()

    def run_begins(self, title: str) -> None:
        with self._shown():
            self._inner.run_begins("\n" + title)

    def phase_begins(self, name: str) -> None:
        with self._shown():
            self._inner.phase_begins(name)

    def update(self, text: str) -> None:
        with self._shown():
            self._inner.update(text)

    def phase_ends(self, name: str, seconds: float, outcome: str, note: str) -> None:
        with self._shown():
            self._inner.phase_ends(name, seconds, outcome, note)

    def _shown(self) -> contextlib.AbstractContextManager[None]:
        if self._capture is None:
            return contextlib.nullcontext()
        shown: contextlib.AbstractContextManager[None] = self._capture.global_and_fixture_disabled()
        return shown
