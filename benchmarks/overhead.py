"""How long the rig itself takes: bringing a bench up, and a warm run beside its traffic.

    ./bench python benchmarks/overhead.py            ten times each
    ./bench python benchmarks/overhead.py --times 3

Bench up: from nothing to sshd accepting, board running, relay forwarding. Overhead: wall time of one run in a session
whose bench is up, image flashing included (`flash: always`), minus its `traffic` phase.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rig.bench.load import load_bench
from rig.campaign import Campaign
from rig.emulation.bench import open_bench
from rig.plan.load import load_plan_bytes
from rig.progress import SilentProgress
from rig.project import DEFAULT_BENCH
from rig.record import load_run

PLAN = b"""\
plan: overhead
firmware: {variant: zero_copy, flash: always}
inference: {requests: 300, load: {closed: {in_flight: 1}}}
flows:
  requests: {from: jetson, to: board, udp.dstport: 5005, protocol: token-v2}
  answers: {from: board, to: jetson, udp.srcport: 5005, protocol: token-v2}
checks:
  no-loss:
    loss: {of: requests, answered_by: answers}
    limits: {count: {max: 0}}
"""


def row(name: str, seconds: Sequence[float], limit: float) -> None:
    ordered = sorted(seconds)
    print(
        f"{name:<34} n={len(ordered):<3} min {ordered[0]:6.3f} s  median {statistics.median(ordered):6.3f} s  "
        f"max {ordered[-1]:6.3f} s  (goal: median at most {limit:g} s)"
    )


def bench_up(times: int) -> list[float]:
    file = load_bench(DEFAULT_BENCH)
    took = []
    for _ in range(times):
        began = time.monotonic()
        with open_bench(file, instance="benchmark"):
            took.append(time.monotonic() - began)
    return took


def warm_runs(times: int, folder: Path) -> tuple[list[float], dict[str, list[float]]]:
    plan_file = load_plan_bytes(PLAN, Path("overhead.plan.yaml"))
    overhead: list[float] = []
    phases: dict[str, list[float]] = {}
    with Campaign(DEFAULT_BENCH, folder, [], SilentProgress(), instance="benchmark") as campaign:
        for attempt in range(times + 1):
            began = time.monotonic()
            judged = campaign.run(plan_file, plan_file.points[0])
            wall = time.monotonic() - began
            if judged.record is None or not judged.outcome.green:
                raise SystemExit(f"a run went wrong, so nothing is measured: {judged.outcome.sentence}")
            if attempt == 0:
                continue  # the first one brings the bench up and connects
            done = {phase.name: phase.duration_ns / 1e9 for phase in load_run(judged.record).phases}
            overhead.append(wall - done["traffic"])
            for name, seconds in done.items():
                phases.setdefault(name, []).append(seconds)
            phases.setdefault("judging and the rest", []).append(wall - sum(done.values()))
    return overhead, phases


def main() -> None:
    parser = argparse.ArgumentParser(description="How long the rig itself takes.")
    parser.add_argument("--times", type=int, default=10, help="repetitions of each (Default: 10)")
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = str(Path(folder, "state"))
        bench_up(1)  # makes keys and flash file
        row("bench up", bench_up(times), 1.0)
        overhead, phases = warm_runs(times, Path(folder, "records"))
        row("warm run, wall minus traffic", overhead, 5.0)
        for name, seconds in phases.items():
            print(f"  {name:<32} median {statistics.median(seconds):6.3f} s")


if __name__ == "__main__":
    main()
