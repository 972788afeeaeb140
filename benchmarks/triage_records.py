"""Make run records with known causes on the emulated bench, and see what triage calls them: a confusion matrix.

    python benchmarks/triage_records.py make  DIR [--seeds 1 2 3]     # runs the bench; about 4 s a record
    python benchmarks/triage_records.py score DIR                     # exit code 1 below the bounds

The name of a record's folder begins with its true cause. What the emulated bench cannot impose by itself (a capture
that loses frames, a clock that steps, a switch that mirrors twice) is done to a copy of a healthy record's capture.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
PORT = {"udp.dstport": 5005}
BACK = {"udp.srcport": 5005}

RIGHT_FIRST, CLASSES_RIGHT = 0.95, 0.80


@dataclass(frozen=True)
class Scenario:
    """cause: what triage must say. inference, impairment, npu, variant: of the plan. bench: impairment of the bench
    file, there from the start. during: what is done to the bench while packets flow. derive: what is done to a copy of
    the record."""

    cause: str
    inference: dict[str, Any]
    impairment: tuple[dict[str, Any], ...] = ()
    npu: tuple[tuple[str, Any], ...] = ()
    variant: str = "zero_copy"
    bench: tuple[dict[str, Any], ...] = ()
    during: Callable[[Any], None] | None = None
    derive: Callable[[Path, int], None] | None = None


def closed(requests: int = 300, **more: Any) -> dict[str, Any]:
    return {"mode": "request", "requests": requests, "load": {"closed": {"in_flight": 1}}, **more}


def paced(requests: int = 250, every: str = "8 ms", **more: Any) -> dict[str, Any]:
    load = {"open": {"every": every, "overrun": "100 %"}}
    return {"mode": "request", "requests": requests, "timeout": "300 ms", "load": load, **more}


def _unplug(rig: Any) -> None:
    time.sleep(0.5)
    rig._emulated.set_link(False)
    time.sleep(0.4)
    rig._emulated.set_link(True)


def _reset(rig: Any) -> None:
    time.sleep(0.5)
    rig._emulated.lines.set_reset(True)
    time.sleep(0.05)
    rig._emulated.lines.set_reset(False)


def _rewritten(record: Path, keep: Callable[[int, int], int | None], copies: int = 1) -> None:
    from rig.triage.pcapng_writer import Target, rewrite

    capture = record / "capture.pcapng"
    with tempfile.TemporaryFile() as copy:
        rewrite(capture, [Target(copy)], retime=keep, copies=copies)
        copy.seek(0)
        capture.write_bytes(copy.read())


def _lose_frames(record: Path, seed: int) -> None:
    chance = random.Random(seed)
    _rewritten(record, lambda number, time_ns: None if number > 12 and chance.random() < 0.04 else time_ns)


def _step_clock(record: Path, seed: int) -> None:
    step = random.Random(seed).choice([5, 20, -8]) * 1_000_000
    info = json.loads((record / "run.json").read_text())
    middle = info["capture"]["frames"] // 2
    _rewritten(record, lambda number, time_ns: time_ns + (step if number > middle else 0))
    info["clock"]["largest_step_ns"] = abs(step)
    (record / "run.json").write_text(json.dumps(info))


def _mirror_twice(record: Path, seed: int) -> None:
    del seed
    places = itertools.count()
    _rewritten(record, lambda number, time_ns: time_ns, copies=2)
    _rewritten(record, lambda number, time_ns: time_ns + next(places) % 2 * 2_000)


SCENARIOS: dict[str, Scenario] = {
    "healthy-closed": Scenario("none", closed(400)),
    "healthy-paced": Scenario("none", paced()),
    "healthy-four-in-flight": Scenario("none", closed(300, load={"closed": {"in_flight": 4}})),
    "healthy-tokens": Scenario(
        "none", closed(200, answer_tokens=32), npu=(("tokens_per_datagram", 8), ("per_token", "100 us"))
    ),
    "healthy-push": Scenario("none", {"mode": "push", "requests": 150, "load": {"open": {"every": "10 ms"}}}),
    "delay-both": Scenario("path-delay", closed(200), ({"direction": "both", "delay": "4 ms"},)),
    "delay-to": Scenario("path-delay-to-board", closed(200), ({"direction": "to-board", "delay": "6 ms"},)),
    "delay-from": Scenario(
        "path-delay-from-board", paced(), ({"direction": "from-board", "delay": "5 ms", "select": BACK},)
    ),
    "jitter-to": Scenario(
        "path-jitter-to-board", closed(200), ({"direction": "to-board", "jitter": "9 ms", "select": PORT},)
    ),
    "jitter-from": Scenario(
        "path-jitter-from-board", paced(every="12 ms"), ({"direction": "from-board", "jitter": "8 ms", "select": BACK},)
    ),
    "loss-to": Scenario("path-loss-to-board", paced(), ({"direction": "to-board", "loss": "5 %", "select": PORT},)),
    "loss-from": Scenario(
        "path-loss-from-board", paced(), ({"direction": "from-board", "loss": "6 %", "select": BACK},)
    ),
    "loss-every": Scenario(
        "path-loss-from-board",
        closed(200, timeout="200 ms"),
        ({"direction": "from-board", "loss": "100 %", "select": {**BACK, "every": 25}},),
    ),
    "copies-to": Scenario(
        "path-copies-to-board", closed(200), ({"direction": "to-board", "duplicate": "10 %", "select": PORT},)
    ),
    "copies-from": Scenario(
        "path-copies-from-board", closed(200), ({"direction": "from-board", "duplicate": "10 %", "select": BACK},)
    ),
    "reorder-to": Scenario(
        "path-reordering-to-board",
        closed(300, load={"closed": {"in_flight": 4}}),
        ({"direction": "to-board", "reorder": "15 %", "select": PORT},),
    ),
    "reorder-from": Scenario(
        "path-reordering-from-board",
        closed(200, answer_tokens=32),
        ({"direction": "from-board", "reorder": "10 %", "select": BACK},),
        npu=(("tokens_per_datagram", 8),),
    ),
    "rate-from": Scenario(
        "path-rate-from-board",
        closed(150, answer_tokens=64),
        ({"direction": "from-board", "rate": "512 kbit/s"},),
        npu=(("tokens_per_datagram", 16),),
    ),
    "rate-to": Scenario(
        "path-rate-to-board", closed(150, prompt_tokens=200), ({"direction": "to-board", "rate": "1 Mbit/s"},)
    ),
    "mute": Scenario("board-silent", paced(150, warmup=0), variant="fault_mute"),
    "crash": Scenario("board-crash", paced(200, warmup=0), variant="fault_crash"),
    "reset": Scenario("board-reboot", paced(250), during=_reset),
    "starved": Scenario("jetson-starved", paced(150, "4 ms", infer_tokens=24)),
    "healthy-late-arp": Scenario(  # The runner asks before the load, which then does not wait for it.
        "none",
        closed(100, warmup=0),
        bench=({"direction": "from-board", "delay": "400 ms", "select": {"ethertype": 2054}},),
    ),
    "unplugged": Scenario("link-down", paced(250), during=_unplug),
    "capture-loss": Scenario("capture-loss", paced(), derive=_lose_frames),
    "clock-step": Scenario("clock-step", closed(200), derive=_step_clock),
    "mirrored-twice": Scenario("capture-copies", closed(200), derive=_mirror_twice),
}


def plan_text(name: str, scenario: Scenario, seed: int) -> str:
    """The scenario as a plan: tight enough to turn red where something is wrong, and no tighter."""
    push = scenario.inference["mode"] == "push"
    flows = {"answers": {"from": "board", "to": "jetson", "udp.srcport": 5005, "protocol": "token-v2"}}
    checks: dict[str, Any] = {
        "no-duplicates": {"duplicates": {"of": "answers"}, "limits": {"count": {"max": 0}}},
        "in-order": {"reordering": {"of": "answers"}, "limits": {"count": {"max": 0}}},
    }
    if not push:
        flows["requests"] = {"from": "jetson", "to": "board", "udp.dstport": 5005, "protocol": "token-v2"}
        asked = {"request": "requests", "response": "answers", "match": "request_id", "to": "last"}
        checks["answer-time"] = {"response_time": asked, "limits": {"p50": {"max": "12 ms"}}}
        checks["no-loss"] = {"loss": {"of": "requests", "answered_by": "answers"}, "limits": {"count": {"max": 0}}}
    plan: dict[str, Any] = {
        "plan": name,
        "description": f"Scenario {name}, seed {seed}.",
        "firmware": {"variant": scenario.variant},
        "inference": scenario.inference,
        "flows": flows,
        "checks": checks,
    }
    if scenario.npu:
        plan["npu"] = dict(scenario.npu)
    if scenario.impairment:
        plan["requires"] = ["link-relay"]
        plan["impairment"] = [{**rule, "seed": seed} for rule in scenario.impairment]
    return yaml.safe_dump(plan, sort_keys=False)


def make(folder: Path, seeds: list[int], only: list[str]) -> None:
    from rig.campaign import Campaign
    from rig.plan.load import load_plan
    from rig.progress import TextProgress

    folder.mkdir(parents=True, exist_ok=True)
    chosen = {name: scenario for name, scenario in SCENARIOS.items() if not only or name in only}
    by_bench: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for name, scenario in chosen.items():
        by_bench[tuple(map(json.dumps, scenario.bench))].append(name)
    with tempfile.TemporaryDirectory() as scratch:
        for number, (bench, names) in enumerate(by_bench.items()):
            file = yaml.safe_load((ROOT / "benches" / "emulated.yaml").read_text())
            file["bench"] = f"triage-{number}"
            file["emulation"]["impairment"] = [json.loads(rule) for rule in bench]
            file["network_ready"] = {"budget": "5 s", "probes": 3}
            path = Path(scratch) / f"{number}.yaml"
            path.write_text(yaml.safe_dump(file))
            for seed in seeds:
                with Campaign(path, Path(scratch) / "records", sys.argv, TextProgress(sys.stdout)) as campaign:
                    for name in names:
                        plan = Path(scratch) / f"{name}-{seed}.plan.yaml"
                        plan.write_text(plan_text(name, chosen[name], seed))
                        plan_file = load_plan(plan)
                        with _meanwhile(campaign, chosen[name].during):
                            judged = campaign.run(plan_file, plan_file.points[0])
                        assert judged.record is not None, judged.outcome.sentence
                        target = folder / f"{chosen[name].cause}~{name}~{seed}"
                        shutil.rmtree(target, ignore_errors=True)
                        shutil.copytree(judged.record, target)
                        derive = chosen[name].derive
                        if derive is not None:
                            derive(target, seed)


@contextlib.contextmanager
def _meanwhile(campaign: Any, act: Callable[[Any], None] | None) -> Iterator[None]:
    """Let `act` happen to the bench while the run's packets flow."""
    rig = campaign.rig()
    if act is None:
        yield
        return
    usual = rig.impaired

    @contextlib.contextmanager
    def impaired(rules: list[Any]) -> Iterator[None]:
        doing = threading.Thread(target=act, args=(rig,))
        with usual(rules):
            doing.start()
            try:
                yield
            finally:
                doing.join()

    rig.impaired = impaired
    try:
        yield
    finally:
        rig.impaired = usual


def score(folder: Path) -> int:
    """Print both confusion matrices; 1 when they are below the bounds or a healthy run is called faulty."""
    from rig.triage.case import case_of_capture, case_of_record
    from rig.triage.diagnosis import diagnose, picture_of

    records = sorted(path for path in folder.iterdir() if (path / "run.json").exists())
    right, alone_right = Counter[str](), Counter[str]()
    total = Counter[str]()
    accused = []
    for record in records:
        truth = record.name.split("~")[0]
        found = diagnose(case_of_record(record)).first
        alone = diagnose(case_of_capture(record / "capture.pcapng")).first
        said = found.name if found and found.rule.fault else "none"
        said_alone = alone.name if alone and alone.rule.fault else "none"
        total[truth] += 1
        right[truth] += said == truth
        alone_right[truth] += picture_of(said_alone) == picture_of(truth)
        if truth == "none" and (said, said_alone) != ("none", "none"):
            accused.append(record.name)
        mark = " " if said == truth and picture_of(said_alone) == picture_of(truth) else "!"
        print(f"{mark} {record.name:<48} record: {said:<28} capture alone: {said_alone}")
    share, alone_share = right.total() / total.total(), alone_right.total() / total.total()
    print(f"\n{right.total()} of {total.total()} right first with the record: {share:.1%}")
    print(f"{alone_right.total()} of {total.total()} right by wire picture with the capture alone: {alone_share:.1%}")
    print(f"healthy runs called faulty: {', '.join(accused) or 'none'}")
    return int(share < RIGHT_FIRST or alone_share < CLASSES_RIGHT or bool(accused))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("folder", type=Path)
    making.add_argument("--seeds", type=int, nargs="+", default=[1])
    making.add_argument("--only", nargs="*", default=[])
    scoring = commands.add_parser("score")
    scoring.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "make":
        make(arguments.folder, arguments.seeds, arguments.only)
        return 0
    return score(arguments.folder)


if __name__ == "__main__":
    sys.exit(main())
