"""However a run ends, nothing of it stays, what it wrote can be read, and the next one passes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rig.capture.reader import read_capture
from rig.record import load_run, runs_of

pytestmark = pytest.mark.bench

GONE_S = 10.0


def processes_that_mention(folder: Path) -> list[str]:
    """Command lines of living processes that hold the bench's state folder in them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in command and entry.name != str(os.getpid()):
            found.append(f"{entry.name}: {command[:160]}")
    return found


@pytest.mark.parametrize("phase", ["flash", "traffic"])
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda end: end.name)
def test_a_run_that_is_ended_leaves_nothing_but_its_record(
    end: signal.Signals, phase: str, place, write_plan, tmp_path: Path
) -> None:
    plan = write_plan("long", requests=20_000)
    records = tmp_path / "records"
    process = subprocess.Popen(
        [sys.executable, "-m", "rig.cli", "run", str(plan), "--record-dir", str(records)],
        env=place.environment(),
        cwd=Path(__file__).resolve().parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    before = {"flash": "preflight", "traffic": "network"}[phase]
    for line in process.stdout:
        if line.startswith(f"  {before}"):
            break
    if phase == "traffic":
        [capture] = records.glob("*/*/capture.pcapng")
        while capture.stat().st_size < 50_000:
            assert process.poll() is None
            time.sleep(0.01)
    process.send_signal(end)
    rest = process.stdout.read()
    status = process.wait(timeout=60)
    deadline = time.monotonic() + GONE_S
    while (left := processes_that_mention(place.folder / "state")) and time.monotonic() < deadline:
        time.sleep(0.05)  # only SIGKILL leaves something to wait for: the kernel ends the bench's namespaces
    assert left == []

    [record] = [run for set_dir in records.iterdir() for run in runs_of(set_dir)]
    info = load_run(record)
    assert "Traceback" not in rest
    if end is signal.SIGKILL:
        assert info.outcome == "running"
    else:
        assert status == 130, rest
        assert info.outcome == "interrupted"
        assert info.ended_utc
    if phase == "traffic":
        assert len(read_capture(record / "capture.pcapng")) > 100
    judged = place.rig("judge", record)
    assert judged.returncode == 4, judged.stdout + judged.stderr
    assert "INCONCLUSIVE" in judged.stdout


def test_the_next_run_on_that_bench_passes(place, write_plan) -> None:
    done = place.rig("run", write_plan("after"), "--record-dir", place.records)
    assert done.returncode == 0, done.stdout + done.stderr
