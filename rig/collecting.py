"""The end of a run: the capture is stopped, the far ends are asked, and all of it is brought into the record."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rig.deadline import Deadline
from rig.errors import InternalError, RigError
from rig.phases import Phases
from rig.record import RunRecord, write_atomic

if TYPE_CHECKING:
    from rig.board.board import Board
    from rig.board.report import Observation
    from rig.capture.clock import ClockWatch
    from rig.capture.recorder import Recorder
    from rig.jetson.runs import RemoteRun
    from rig.session import Rig

DRAIN_S = 5.0
STOP_S = 10.0
"""For dumpcap to end and the interfaces to be accounted for."""
FETCH_S = 120.0
"""For a capture that was recorded on the Jetson."""
COLLECT_S = 60.0
ANSWER_S = 5.0
"""For the board's counters and telemetry."""
BRING_HOME_S = DRAIN_S + STOP_S + FETCH_S + COLLECT_S


def bring_home(
    rig: Rig,
    board: Board,
    recorder: Recorder,
    clock: ClockWatch,
    runner: RemoteRun,
    record: RunRecord,
    phases: Phases,
    budget: Deadline,
) -> None:
    """Stop the capture and fetch whatever there is, after success and after failure alike."""
    info = record.info
    fetch_s = FETCH_S if rig.bench.capture.point == "jetson" else 0.0
    with phases.phase("drain", min(DRAIN_S + STOP_S + fetch_s, budget.left())) as phase:
        end_answered = bool(runner.phases.get("end-sentinel", {}).get("answered"))
        with contextlib.suppress(RigError):
            recorder.drain(phase.deadline.at_most(DRAIN_S + fetch_s), end_answered=end_answered)
        report = recorder.stop(phase.deadline)
        clock.stop()
        info.clock = recorder.clock or clock.summary()
        info.capture = report.model_dump(mode="json")
        phase.note = f"{report.frames} frames, {'?' if report.dropped is None else report.dropped} dropped"
    with phases.phase("collect", min(COLLECT_S, budget.left())) as phase:
        info.relay = rig.relay_counters()
        observed = all_observations(info.board.get("observations", []), board.observations())
        info.board["observations"] = observed
        runner.abort(phase.deadline)
        collected = runner.collect(record.jetson_events, phase.deadline)
        if board.is_ours and info.board.get("boot"):
            _ask_board(board, record, phase.deadline.at_most(ANSWER_S))
        rig.require_whole()
        phase.note = f"runner: {collected.reason}" + (f", {len(observed)} board events" if observed else "")


def all_observations(recorded: Sequence[dict[str, Any]], seen: Sequence[Observation]) -> list[dict[str, Any]]:
    """What is in the record already (`no-boot`, which ended the run) and what the board has seen, once each, in order.

    A FAULT line and the banner after it may come in one read, and then have one time.
    """
    added = [one for one in map(asdict, seen) if one not in recorded]
    return sorted([*recorded, *added], key=lambda one: one["t_ns"])


def _ask_board(board: Board, record: RunRecord, deadline: Deadline) -> None:
    """Counters and telemetry. A console that no longer answers is an observation of the board, for `alive` to judge."""
    from rig.board.console import ConsoleSilentError
    from rig.board.report import Observation
    from rig.board.serial_port import BoardLostError

    try:
        record.info.board["counters"] = board.counters(deadline)
        telemetry = board.telemetry(deadline)
    except (BoardLostError, InternalError):
        raise
    except RigError as error:
        record.info.board["silent"] = error.what
        if isinstance(error, ConsoleSilentError):
            detail = f"the board has fallen silent: {error.what}"
            silent = Observation("silent", detail, time.monotonic_ns())
            record.info.board["observations"].append(asdict(silent))
        return
    record.info.board["telemetry_dropped"] = telemetry.dropped
    lines = (json.dumps(asdict(event), sort_keys=True) + "\n" for event in telemetry.events)
    write_atomic(record.telemetry, "".join(lines).encode())
