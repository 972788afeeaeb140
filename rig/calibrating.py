"""Calibrates a bench: two runs of echo exchanges, idle and under load, and what follows from them.

The runs are ordinary runs with records of their own, so that their evidence is held to the same rules.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from rig.bench import uncertainty
from rig.bench.calibrate import Calibration, Echoes, clock_error_ns, echoes_of, error_ns, summarise
from rig.capture.points import capture_point
from rig.capture.recorder import check_capture
from rig.capture.settings import capture_settings
from rig.deadline import Deadline
from rig.errors import BenchError
from rig.judging import judge_record
from rig.plan.load import load_plan_bytes
from rig.project import ROOT
from rig.record import VERDICTS, RunRecord, RunSet, controller_identity, utc_now, write_atomic
from rig.recorded import bench_addresses
from rig.run import run_point
from rig.session import Rig
from rig.timing.verdict import Verdict

if TYPE_CHECKING:
    from rig.progress import Progress

SETTINGS_S: Final = 10.0

_PLAN: Final = """\
plan: calibration-{load}
description: Echo exchanges that tell how well the bench measures.
npu: {{first_token: 200 us}}
inference: {{requests: {requests}, infer_tokens: 0, answer_tokens: 16, load: {{closed: {closed}}}}}
flows:
  requests: {{from: jetson, to: board, udp.dstport: 5005, protocol: token-v2}}
  answers: {{from: board, to: jetson, udp.srcport: 5005, protocol: token-v2}}
checks:
  echoes:
    response_time: {{request: requests, response: answers, to: first}}
    limits: {{each: {{max: 1 s}}}}
  nothing-lost:
    loss: {{of: requests, answered_by: answers}}
    limits: {{count: {{max: 0}}}}
"""
_SERIES: Final[tuple[tuple[Literal["idle", "loaded"], int, str], ...]] = (
    # Idle: one exchange at a time, far apart. Loaded: the next leaves at once, several at a time.
    ("idle", 600, "{in_flight: 1, think: 5 ms}"),
    ("loaded", 4000, "{in_flight: 4}"),
)


def calibrate(rig: Rig, records: Path, command: list[str], progress: Progress) -> tuple[Calibration, Path]:
    """Run both series on an opened bench and keep what they give; the calibration and its file.

    Raises BenchError when the evidence of a run is not sound, and whatever a run raises or ends with.
    """
    runs = RunSet.create(records, command)
    echoes = {load: echoes_of_run(_run(rig, runs, load, n, closed, progress)) for load, n, closed in _SERIES}
    series = tuple(summarise(echoes[load], load) for load, _, _ in _SERIES)
    clock_ns, rate_ppm = clock_error_ns(echoes["loaded"])
    point = capture_point(rig.bench.capture)
    deadline = Deadline.after(SETTINGS_S)
    host = rig.capture_host(deadline)
    names = [link.name for link in check_capture(host, point, deadline)]
    idle, loaded = series
    found = Calibration(
        bench=rig.bench.bench,
        date_utc=utc_now(),
        e_ns=error_ns(idle, loaded, clock_ns),
        systematic_ns=idle.median_ns,
        clock_ns=clock_ns,
        rate_ppm=round(rate_ppm, 3),
        turnaround_ns=int(sorted(echoes["loaded"].turnaround)[len(echoes["loaded"]) // 2]),
        series=series,
        settings=capture_settings(host, point, names, deadline),
        controller=controller_identity(ROOT),
        record=str(runs.directory),
    )
    return found, uncertainty.store(found)


def _run(rig: Rig, runs: RunSet, load: str, requests: int, closed: str, progress: Progress) -> RunRecord:
    """One series as a run; BenchError when it did not end well or its evidence is not sound."""
    text = _PLAN.format(load=load, requests=requests, closed=closed)
    plan_file = load_plan_bytes(text.encode(), Path(f"calibration-{load}.plan.yaml"))
    record = run_point(rig, plan_file, plan_file.points[0], runs, progress)
    result, _ = judge_record(record.directory)
    write_atomic(record.directory / VERDICTS, result.to_json().encode())
    bad = next((check for check in result.checks if check.verdict is not Verdict.PASS), None)
    if bad is not None:
        raise BenchError(
            f"the {load} series of the calibration is {bad.verdict}: {bad.reason}",
            seen=bad.seen,
            hint=bad.hint or f"see `rig judge {record.directory}`; the calibration before this one still counts",
        )
    return record


def echoes_of_run(record: RunRecord) -> Echoes:
    """The echoes of one series' capture."""
    from rig.capture.reader import read_capture

    return echoes_of(read_capture(record.capture), bench_addresses(record.info.bench))
