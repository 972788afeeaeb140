"""Judging what belongs to a whole set, from its records: comparisons, and the Jetson's decoding of a run."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from rig.jetson.decoding import read_decoding
from rig.judging import judge_comparisons, set_comparisons
from rig.plan.load import load_plan_bytes
from rig.record import RunInfo, to_json
from rig.timing.verdict import CheckResult, PointResult, Verdict

PLAN = """\
plan: old-and-new
firmware: {variant: copy}
flows:
  answers: {from: board, to: jetson, udp.srcport: 5005, protocol: token-v2}
checks:
  time: {gap: {of: answers}, limits: {p50: {max: 5 ms}}}
matrix: {firmware.variant: [copy, zero_copy]}
repeat: 5
comparisons:
  faster: {of: time, a: variant-copy, b: variant-zero_copy, difference: {max: -1 us}}
  shown: {of: time, statistic: mean, a: variant-copy, b: variant-zero_copy}
"""


def a_result(value: int) -> PointResult:
    check = CheckResult("time", "gap", Verdict.PASS, "", compared={"p50": value, "mean": value})
    return PointResult("old-and-new", "", "emulated", 0, Verdict.PASS, (check,))


def a_set(folder: Path, values: list[tuple[str, int]]) -> list[tuple[Path, PointResult]]:
    runs = []
    for number, (point, value) in enumerate(values, 1):
        directory = folder / f"{number:03d}-old-and-new-{point}"
        directory.mkdir()
        (directory / "plan.yaml").write_text(PLAN)
        info = RunInfo("", "", "testplans/x.plan.yaml", "an-sha", point, "", "old-and-new", outcome="completed")
        (directory / "run.json").write_bytes(to_json(asdict(info)))
        runs.append((directory, a_result(value)))
    return runs


def test_comparisons_of_a_set_are_judged_from_its_records(tmp_path: Path) -> None:
    values = [("variant-copy", 10_000), ("variant-zero_copy", 8_000)] * 5
    (compared,) = set_comparisons(a_set(tmp_path, values))
    assert [(check.check, str(check.verdict)) for check in compared.checks] == [("faster", "PASS"), ("shown", "SKIP")]
    (limit,) = compared.check("faster").limits
    assert limit.spec.place == "testplans/x.plan.yaml:10"
    assert json.loads(compared.to_json())["checks"][0]["n"] == 5


def test_live_and_offline_say_the_same(tmp_path: Path) -> None:
    values = [("variant-copy", 10_000 + i) for i in range(5)] + [("variant-zero_copy", 10_003 - i) for i in range(5)]
    runs = a_set(tmp_path, values)
    plan_file = load_plan_bytes(PLAN.encode(), Path("testplans/x.plan.yaml"))
    live = judge_comparisons(plan_file, [(point, result) for (point, _), (_, result) in zip(values, runs, strict=True)])
    assert [live.to_json()] == [compared.to_json() for compared in set_comparisons(runs)]


def test_runs_of_one_point_are_no_comparison(tmp_path: Path) -> None:
    assert set_comparisons(a_set(tmp_path, [("variant-copy", 10_000)] * 3)) == []


def test_decoding_is_read_from_the_runners_events(tmp_path: Path) -> None:
    events = [
        {"event": "spec", "t_ns": 1, "spec": {}},
        {"event": "request", "t_ns": 2, "request_id": 9, "warmup": True, "pre_start_ns": 5, "token_ns": [6]},
        {"event": "request", "t_ns": 3, "request_id": 1, "warmup": False, "pre_start_ns": 10, "token_ns": [13, 17]},
        {"event": "request", "t_ns": 4, "request_id": 2, "warmup": False},
        {"event": "request", "t_ns": 5, "request_id": 3, "warmup": False, "pre_start_ns": 20, "token_ns": [21]},
    ]
    path = tmp_path / "jetson.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    found = read_decoding(path)
    assert (found.request_id.tolist(), found.start_ns.tolist()) == ([1, 3], [10, 20])
    assert (found.begin.tolist(), found.token_ns.tolist()) == ([0, 2, 3], [13, 17, 21])
