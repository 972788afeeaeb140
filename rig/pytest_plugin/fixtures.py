"""Fixtures for hand-written tests beside plans; docs/pytest.md shows them at work.

bench       session   the opened bench, shared with the plans of the same invocation
record_dir  function  this test's own folder in the set
board       function  flashed, identified, freshly booted; console in `record_dir/board.log`
jetson      function  SSH session; what dead runs left is swept, the lease is held
capture     function  dumpcap records from here on, into `record_dir/capture.pcapng`
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rig.deadline import Deadline
from rig.errors import CaptureError, PlanError, RigError
from rig.interrupts import Ends
from rig.pytest_plugin.invocation import INVOCATION
from rig.pytest_plugin.verdicts import inconclusive, outcome_so_far, uses_bench, verdict_so_far
from rig.record import to_json, utc_now, write_atomic

if TYPE_CHECKING:
    from rig.board.board import Board
    from rig.capture.recorder import Recorder
    from rig.jetson.session import JetsonSession
    from rig.plan.model import Firmware
    from rig.progress import Progress
    from rig.session import Rig
    from rig.timing.table import FrameTable

SCHEMA = "rig.test/1"
_JETSON_S = 20.0
_TOLD = pytest.StashKey[dict[str, Any]]()
_DIRECTORY = pytest.StashKey[Path]()


@pytest.fixture(scope="session")
def bench(pytestconfig: pytest.Config) -> Rig:
    """The opened bench: `bench.bench` is its file as data, `bench.impaired(rules)` lets the relay misbehave."""
    return pytestconfig.stash[INVOCATION].campaign().rig()


@pytest.fixture
def record_dir(request: pytest.FixtureRequest, bench: Rig) -> Iterator[Path]:
    """A folder `<number>-<test>` in the set; test.json says what ran, whatever else lies in it is the test's."""
    campaign = request.config.stash[INVOCATION].campaign()
    item = request.node
    directory = campaign.runs().new_folder(item.name)
    campaign.progress.run_begins(item.name)
    item.stash[_TOLD] = {
        "schema": SCHEMA,
        "test": item.nodeid,
        "set_id": campaign.runs().set_id,
        "started_utc": utc_now(),
        "bench": bench.bench.model_dump(mode="json"),
    }
    item.stash[_DIRECTORY] = directory
    item.user_properties.append(("record", str(directory)))
    write_atomic(directory / "bench.yaml", bench.text.encode())
    with Ends() as ends:
        ends.callback(_tell_end, item)
        yield directory
    bench.require_whole()


@pytest.fixture
def board(request: pytest.FixtureRequest, bench: Rig, record_dir: Path) -> Iterator[Board]:
    """The board, just reset, running the image of --firmware, else of the marker `firmware`, else variant zero_copy.

    Flashed only where it holds something else, as `flash: if-changed` of a plan.
    """
    from rig.board.escalation import boot_bound_s, flash_programs_bound_s
    from rig.board.image import load_image
    from rig.run import FLASH_S, IDENTITY_S, find_image, flash_progress

    wanted = _firmware(request.node)
    given = request.config.option.firmware
    path = find_image(wanted.variant, Path(given) if given else None)
    image = load_image(path, bench.bench.board.flash.image_address)
    told, progress = request.node.stash[_TOLD], _progress(request)
    with Ends() as ends:
        board = ends.enter_context(bench.board(record_dir / "board.log", time.monotonic_ns()))
        with _phase(progress, "flash") as notes:
            deadline = Deadline.after(FLASH_S + flash_programs_bound_s(board.config, len(image.segments) + 1))
            report = board.flash(image, wanted.flash, deadline, lambda step: progress.update(flash_progress(step)))
            if wanted.flash != "never":
                board.ensure_identity(deadline)
            told["firmware"] = {"file": path.name, "sha256": image.sha256, "flash": asdict(report)}
            notes.append("is on the board already" if report.skipped else f"{report.written / 1024:.1f} KiB written")
        with _phase(progress, "boot") as notes:
            deadline = Deadline.after(boot_bound_s(bench.bench.board) + IDENTITY_S)
            boot = board.reset_and_boot(deadline, progress.update)
            board.prove_identity(image)
            if board.is_ours:
                board.wait_ready(deadline)
            notes.append(boot.line.text[:100] + board.escalation())
        try:
            yield board
        finally:
            told["observations"] = [asdict(one) for one in board.observations()]


@pytest.fixture
def jetson(bench: Rig, record_dir: Path) -> Iterator[JetsonSession]:
    """The SSH session: `run(argv, deadline)`, `start`, `put`, `get`. JetsonError when another rig's run is on it.

    The Jetson's lease is held meanwhile. A test that starts the runner takes it by that: let it use
    `bench.jetson(deadline)`.
    """
    from rig.jetson.runs import hold_lease
    from rig.run import owner

    deadline = Deadline.after(_JETSON_S)
    session = bench.jetson(deadline)
    run_id = f"{record_dir.parent.name}.{record_dir.name}"
    with Ends() as ends:
        ends.enter_context(hold_lease(session, run_id=run_id, owner=owner(), deadline=deadline))
        yield session


class Capture:
    """A running capture of the bench's Ethernet."""

    def __init__(self, recorder: Recorder, path: Path, told: dict[str, Any], fetch_s: float) -> None:
        self.path = path
        self._recorder = recorder
        self._told = told
        self._fetch_s = fetch_s
        self._stopped = False

    def stop(self) -> FrameTable:
        """Wait for the tail, end dumpcap and give every frame, sorted by time.

        A capture that may have lost frames ends the test as INCONCLUSIVE.
        """
        from rig.capture.reader import read_capture
        from rig.collecting import DRAIN_S, STOP_S

        self._stopped = True
        with contextlib.suppress(CaptureError):  # a dumpcap that died is in the report
            self._recorder.drain(Deadline.after(DRAIN_S + self._fetch_s))
        report = self._recorder.stop(Deadline.after(STOP_S + self._fetch_s))
        self._told["capture"] = report.model_dump(mode="json")
        if not report.sound:
            lost = "an unknown number of" if report.dropped is None else str(report.dropped)
            inconclusive(
                f"the capture is not sound: {lost} frames lost, tail {report.drained}"
                + "".join(f"; {fault}" for fault in report.faults)
            )
        return read_capture(self.path)

    def end(self) -> None:
        """Stop if the test has not."""
        if not self._stopped:
            self.stop()


@pytest.fixture
def capture(request: pytest.FixtureRequest, bench: Rig, record_dir: Path) -> Iterator[Capture]:
    """Records until `capture.stop()`, which gives the frames, or the end of the test."""
    from rig.capture.points import capture_point
    from rig.capture.recorder import Recorder, check_capture
    from rig.collecting import FETCH_S
    from rig.run import CAPTURE_S

    path, told = record_dir / "capture.pcapng", request.node.stash[_TOLD]
    deadline = Deadline.after(CAPTURE_S)
    host, point = bench.capture_host(deadline), capture_point(bench.bench.capture)
    with Ends() as ends:
        recorder = ends.enter_context(Recorder(host, point, path))
        with _phase(_progress(request), "capture") as notes:
            links = check_capture(host, point, deadline)
            told["nic"] = bench.nics([link.name for link in links], deadline)
            recorder.start(deadline)
            notes.append(f"dumpcap is recording on {', '.join(link.name for link in links)}")
        running = Capture(recorder, path, told, FETCH_S if point.on_jetson else 0.0)
        yield running
        running.end()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a marker that would be without effect; skip a hand-written test whose bench lacks what it requires."""
    if not uses_bench(item):
        return
    _firmware(item)
    for mark in item.iter_markers("requirement"):
        _refuse_others(mark, ["id"])
    wanted = []
    for mark in item.iter_markers("requires"):
        _refuse_others(mark, ["capability"])
        wanted.append(mark.kwargs["capability"])
    if not wanted:
        return
    rig = item.config.stash[INVOCATION].campaign().rig()
    missing = rig.missing(wanted)
    if missing:
        pytest.skip(f"bench {rig.bench.bench!r} lacks {', '.join(missing)}, which the test requires")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    written = item.stash.get(_TOLD, {}).get("verdict")
    # What goes wrong in a teardown is known only now.
    if call.when == "teardown" and written not in (None, verdict_so_far(item)):
        with contextlib.suppress(RigError):
            _tell_end(item)
    return report


def _tell_end(item: pytest.Item) -> None:
    told = item.stash[_TOLD]
    told |= {"ended_utc": utc_now(), "outcome": outcome_so_far(item), "verdict": verdict_so_far(item)}
    write_atomic(item.stash[_DIRECTORY] / "test.json", to_json(told))


def _firmware(item: pytest.Item) -> Firmware:
    """What the closest marker `firmware` says, with a plan's defaults; PlanError where a plan would be refused too."""
    from pydantic import ValidationError

    from rig.plan.grammar import keys_of
    from rig.plan.model import Firmware

    mark = item.get_closest_marker("firmware")
    if mark is None:
        return Firmware()
    _refuse_others(mark, keys_of(Firmware))
    try:
        return Firmware.model_validate(mark.kwargs)
    except ValidationError as error:
        first = error.errors()[0]
        raise PlanError(
            f"the marker `firmware` cannot have {first['loc'][0]}={first['input']!r}", hint=first["msg"]
        ) from None


def _refuse_others(mark: pytest.Mark, keys: list[str]) -> None:
    """PlanError unless a marker names what it says by one or more of these keys, and by nothing else."""
    from rig.plan.grammar import did_you_mean

    usage = f"write `@pytest.mark.{mark.name}({', '.join(f'{key}=…' for key in keys)})`"
    if mark.args or not mark.kwargs:
        given = f"{mark.args[0]!r} without a name" if mark.args else "nothing"
        raise PlanError(f"the marker `{mark.name}` is given {given}", hint=usage)
    for key in mark.kwargs:
        if key not in keys:
            raise PlanError(f"the marker `{mark.name}` has no `{key}`", hint=f"{did_you_mean(key, keys)}; {usage}")


def _progress(request: pytest.FixtureRequest) -> Progress:
    progress: Progress = request.config.stash[INVOCATION].campaign().progress
    return progress


@contextlib.contextmanager
def _phase(progress: Progress, name: str) -> Iterator[list[str]]:
    """Show a block as a phase; what it puts into the list is the phase's note."""
    began = time.monotonic()
    notes: list[str] = []
    progress.phase_begins(name)
    outcome = "failed"
    try:
        yield notes
        outcome = "ok"
    finally:
        progress.phase_ends(name, time.monotonic() - began, outcome, ", ".join(notes))
