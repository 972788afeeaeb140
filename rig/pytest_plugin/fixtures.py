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
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rig.deadline import Deadline
from rig.errors import CaptureError
from rig.pytest_plugin.invocation import INVOCATION
from rig.pytest_plugin.verdicts import inconclusive, uses_bench, verdict_so_far
from rig.record import to_json, utc_now, write_atomic

if TYPE_CHECKING:
    from rig.board.board import Board
    from rig.capture.recorder import Recorder
    from rig.jetson.session import JetsonSession
    from rig.progress import Progress
    from rig.session import Rig
    from rig.timing.table import FrameTable

SCHEMA = "rig.test/1"
DEFAULT_VARIANT = "zero_copy"
_JETSON_S = 20.0
_TOLD = pytest.StashKey[dict[str, Any]]()


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
    told = item.stash[_TOLD] = {
        "schema": SCHEMA,
        "test": item.nodeid,
        "set_id": campaign.runs().set_id,
        "started_utc": utc_now(),
        "bench": bench.bench.model_dump(mode="json"),
    }
    item.user_properties.append(("record", str(directory)))
    write_atomic(directory / "bench.yaml", bench.text.encode())
    yield directory
    told |= {"ended_utc": utc_now(), "verdict": verdict_so_far(item)}
    write_atomic(directory / "test.json", to_json(told))
    bench.require_whole()


@pytest.fixture
def board(request: pytest.FixtureRequest, bench: Rig, record_dir: Path) -> Iterator[Board]:
    """The board, running the firmware of the marker `firmware` (else --firmware, else variant zero_copy), just reset.

    Flashed only where it holds something else, as `flash: if-changed` of a plan.
    """
    from rig.board.escalation import boot_bound_s
    from rig.board.image import load_image
    from rig.run import FLASH_S, IDENTITY_S, find_image, flash_progress

    marker = request.node.get_closest_marker("firmware")
    wanted = marker.kwargs if marker else {}
    given = request.config.option.firmware
    path = find_image(wanted.get("variant", DEFAULT_VARIANT), Path(given) if given else None)
    image = load_image(path, bench.bench.board.flash.image_address)
    told, progress = request.node.stash[_TOLD], _progress(request)
    with bench.board(record_dir / "board.log", time.monotonic_ns()) as board:
        with _phase(progress, "flash") as notes:
            deadline = Deadline.after(FLASH_S)
            mode = wanted.get("flash", "if-changed")
            report = board.flash(image, mode, deadline, lambda step: progress.update(flash_progress(step)))
            if mode != "never":
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
    with hold_lease(session, run_id=run_id, owner=owner(), deadline=deadline):
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
    with Recorder(host, point, path) as recorder:
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
    """Skip a hand-written test whose bench lacks what it requires."""
    wanted = [str(mark.kwargs.get("capability", "")) for mark in item.iter_markers("requires")]
    if not wanted or not uses_bench(item):
        return
    if not all(wanted):
        pytest.fail("write `@pytest.mark.requires(capability='…')`: the marker names no capability", pytrace=False)
    rig = item.config.stash[INVOCATION].campaign().rig()
    missing = rig.missing(wanted)
    if missing:
        pytest.skip(f"bench {rig.bench.bench!r} lacks {', '.join(missing)}, which the test requires")


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
