"""What a person sees: the phase that runs now, a line per phase with -v, and the table of runs at the end.

A run travels from where it was made to where it is shown on the report of one test, so a worker's runs are shown too.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict
from typing import Any

import pytest

from rig.progress import ERASE, REDRAW_S, live_line, phase_line, warning_line
from rig.pytest_plugin.invocation import INVOCATION
from rig.record import from_here
from rig.summary import Row, table_lines

_TOLD = pytest.StashKey[list[tuple[Row, list[str]]]]()
"""Rows that the next report of an item carries, each with the lines of its phases."""
_VIEW = pytest.StashKey["_View"]()
_SHOWN = pytest.StashKey["_Shown"]()


def progress_of(config: pytest.Config) -> _View:
    """The view of this process's runs, to be handed to what makes them."""
    return config.stash.setdefault(_VIEW, _View(config))


def shown_with(item: pytest.Item, row: Row, phases: Sequence[str] = ()) -> None:
    """Let the next report of `item` carry a line of the table, and the phases of the run that it is about."""
    item.stash.setdefault(_TOLD, []).append((row, list(phases)))


class _View:
    """Progress of a run. `lines`: of its phases so far.

    On a terminal the running phase takes the place of pytest's own line and gives it back. With -v every phase leaves
    a line. A worker of pytest-xdist has no terminal: its lines are printed when its report has come.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.lines: list[str] = []
        self._config = config
        self._capture = config.pluginmanager.getplugin("capturemanager")
        self._reporter = config.pluginmanager.getplugin("terminalreporter")
        # Not asked of the stream: pytest may be capturing it at this moment.
        self._live = self._reporter is not None and bool(self._reporter.isatty)
        self._verbose = self._reporter is not None and config.option.verbose > 0
        self._title = self._phase = ""
        self._shown_at = 0.0
        self._warned: set[str] = set()

    def run_begins(self, title: str) -> None:
        self._title, self.lines = title, []
        if self._verbose:
            with self._screen():
                self._reporter.ensure_newline()
                self._reporter.write_line(title)

    def phase_begins(self, name: str) -> None:
        self._phase, self._shown_at = name, 0.0
        self.update("…")

    def update(self, text: str) -> None:
        if self._live and time.monotonic() - self._shown_at >= REDRAW_S:
            self._shown_at = time.monotonic()
            self._draw(live_line(self._phase, text if self._verbose else f"{text}  ({self._title})"))

    def phase_ends(self, name: str, seconds: float, outcome: str, note: str) -> None:
        line = phase_line(name, seconds, outcome, note)
        self.lines.append(line)
        if self._live:
            self._draw(ERASE + ("" if self._verbose else self._interrupted_line()))
        if self._verbose:
            with self._screen():
                self._reporter.write_line(line)

    def warn(self, text: str) -> None:
        line = warning_line(text)
        self.lines.append(line)
        if self._reporter is not None and text not in self._warned:
            self._warned.add(text)
            with self._screen():
                self._reporter.ensure_newline()
                self._reporter.write_line(line)

    def _interrupted_line(self) -> str:
        return str(getattr(self._config.get_terminal_writer(), "_current_line", ""))

    def _draw(self, text: str) -> None:
        assert sys.__stdout__ is not None
        with self._screen():
            sys.__stdout__.write(text)
            sys.__stdout__.flush()

    @contextlib.contextmanager
    def _screen(self) -> Generator[None]:
        """pytest's capturing stands aside. A terminal that was closed must not end the run in mid-phase."""
        shown = self._capture.global_and_fixture_disabled() if self._capture else contextlib.nullcontext()
        with contextlib.suppress(OSError), shown:
            yield


class _Shown:
    """The runs whose reports have come, in this process or from workers."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.plan_checks = 0
        self.passed = 0

    @property
    def only_skips(self) -> bool:
        return self.plan_checks > 0 and not self.passed


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SHOWN] = _Shown()
    config.pluginmanager.register(_Collector(config), "rig-reports")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    told = item.stash.get(_TOLD, [])
    if told:
        del item.stash[_TOLD]
        titled = len(told) > 1
        lines = [line for row, phases in told if phases for line in ([row.title] if titled else []) + phases]
        if lines:
            report.sections.append(("rig phases", "\n".join(lines)))
        report.rig_runs = [{"row": asdict(row), "phases": phases} for row, phases in told]  # type: ignore[attr-defined]
    return report


class _Collector:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._shown = config.stash[_SHOWN]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for told in getattr(report, "rig_runs", []):
            self._shown.rows.append(Row(**told["row"]))
            if hasattr(report, "node") and self._config.option.verbose > 0 and told["phases"]:
                self._print(told["row"]["title"], told["phases"])
        self._shown.plan_checks += report.when == "setup" and ".plan.yaml::" in report.nodeid
        self._shown.passed += report.when == "call" and report.passed

    def _print(self, title: str, phases: list[str]) -> None:
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            for line in (title, *phases):
                reporter.write_line(line)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        # Nothing but skips is not success.
        if exitstatus == pytest.ExitCode.OK and self._shown.only_skips:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    shown = config.stash[_SHOWN]
    directory = config.stash[INVOCATION].set_directory
    if not shown.rows and not directory.is_dir():
        return
    terminalreporter.section("runs")
    if shown.rows:
        for line in table_lines(shown.rows, terminalreporter.hasmarkup):
            terminalreporter.write_line(line)
    if shown.only_skips and not terminalreporter.stats.keys() & {"failed", "error"}:
        terminalreporter.write_line("no check was judged: nothing but skips is not success")
    if directory.is_dir():
        terminalreporter.write_line(f"records: {from_here(directory)}")
