"""Run after run in one controller: nothing grows, and the same plan gets the same verdict each time.

Two runs by default; the soak tier goes on for an hour (`RIG_SOAK_S` seconds, if set).
"""

from __future__ import annotations

import gc
import os
import resource
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from provoked import namespaces_of_bench

from rig.campaign import Campaign
from rig.deadline import Deadline
from rig.plan.load import load_plan
from rig.progress import SilentProgress
from rig.project import DEFAULT_BENCH, ROOT
from rig.timing.verdict import Verdict

pytestmark = pytest.mark.bench

HOUR_S = 3600.0
SETTLING = 5
"""Runs after which caches are full: growth counts from here."""
RSS_MIB = 24
"""What the allocator may keep in an hour; a leak of one capture a run would be hundreds of MiB."""


@dataclass(frozen=True)
class Usage:
    """processes: inside the bench and of this controller; files: in the state folder and scratch, records aside."""

    processes: int
    threads: int
    descriptors: int
    namespaces: int
    mounts: int
    files: int
    rss_mib: float

    def outgrown_by(self, later: Usage) -> dict[str, float]:
        """What grew, and by how much."""
        grown = {name: asdict(later)[name] - before for name, before in asdict(self).items()}
        return {name: by for name, by in grown.items() if by > (RSS_MIB if name == "rss_mib" else 0)}

    @classmethod
    def now(cls, *folders: Path) -> Usage:
        from controlled import processes_in

        gc.collect()
        names = namespaces_of_bench()
        inside = processes_in(names)
        children = sum(len(path.read_text().split()) for path in Path("/proc/self/task").glob("*/children"))
        every = {link for pid in [os.getpid(), *inside] for link in namespaces_of(pid)}
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(
            processes=len(inside) + children,
            threads=len(list(Path("/proc/self/task").iterdir())),
            descriptors=len(list(Path("/proc/self/fd").iterdir())),
            namespaces=len(every),
            mounts=len(Path("/proc/self/mountinfo").read_text().splitlines()),
            files=sum(1 for folder in folders for path in folder.rglob("*") if path.is_file()),
            rss_mib=pages * resource.getpagesize() / 2**20,
        )


def namespaces_of(pid: int) -> list[str]:
    """None of a process that has ended, or (to others than root) of one that has changed its user."""
    try:
        return [str(link.readlink()) for link in Path(f"/proc/{pid}/ns").iterdir()]
    except OSError:
        return []


@pytest.mark.soak
def test_run_after_run_nothing_grows_and_no_verdict_flickers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeats: Callable[[int, int], int], write_plan, capsys
) -> None:
    state, scratch = tmp_path / "state", tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("TMPDIR", str(scratch))
    plans = [
        load_plan(ROOT / "testplans" / name)
        for name in ("zero-copy-latency.plan.yaml", "push-latency.plan.yaml", "copy-latency.plan.yaml")
    ]
    tolerant = load_plan(write_plan("tolerant", requests=600))
    soak_s = float(os.environ.get("RIG_SOAK_S", HOUR_S)) * repeats(0, 1)
    verdicts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    first: Usage | None = None
    last: Usage | None = None
    before_all = Usage.now(state, scratch)
    began = time.monotonic()
    with Campaign(DEFAULT_BENCH, tmp_path / "records", ["soak"], SilentProgress()) as campaign:
        count = 0
        while count < 2 or time.monotonic() - began < soak_s:
            plan = plans[count % len(plans)] if soak_s else tolerant
            judged = campaign.run(plan, plan.points[0])
            verdicts[str(judged.verdict)] += 1
            for check in judged.result.checks:
                if not judged.outcome.green and check.verdict is not Verdict.PASS:
                    reasons[f"{judged.title} {check.check} {check.verdict}: {check.reason}"] += 1
            assert judged.record is not None
            if judged.outcome.green:  # a disk full of captures is no leak of the controller
                (judged.record / "capture.pcapng").unlink()
            count += 1
            last = Usage.now(state, scratch)
            if count == (SETTLING if soak_s else 1):
                first = last
        assert first is not None
        assert last is not None
        settling = Deadline.after(30)  # a thread of the last run may be about to end
        while first.outgrown_by(last) and not settling.expired():
            time.sleep(0.1)
            last = Usage.now(state, scratch)
    ended = Usage.now(state, scratch)
    with capsys.disabled():
        print(f"\n{count} runs in {time.monotonic() - began:.0f} s: {dict(verdicts)}")
        for reason, times in reasons.items():
            print(f"  {times} x {reason}")
        print(f"  after run {SETTLING if soak_s else 1}: {asdict(first)}\n  after run {count}: {asdict(last)}")
    # Beside other tests the machine may be too busy for sound evidence; a soak has it for itself.
    assert set(verdicts) <= ({"PASS"} if soak_s else {"PASS", "INCONCLUSIVE"})
    assert first.outgrown_by(last) == {}
    assert ended.processes <= before_all.processes
    assert list(scratch.iterdir()) == []
