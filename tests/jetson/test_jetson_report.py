"""Specs made from plans, and reports read from events, without any connection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jetson_far_side import bench_with, inference

from rig.bench.model import Jetson
from rig.errors import JetsonError, PlanError
from rig.jetson.report import iterate_events, read_report, report_of
from rig.jetson.spec import RunnerSpec, make_spec, traffic_bound_s

JETSON = Jetson(host="j", user="u", host_key="k", bench_address="10.0.0.2")


def spec_of(**changes: Any) -> RunnerSpec:
    return make_spec(inference(**changes), bench_with(JETSON, 5005), run_id="r", owner="o")


def write(path: Path, *events: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps({"t_ns": 0} | event) + "\n" for event in events))
    return path


def request(intended: int, send: int, post_end: int = 0, warmup: bool = False) -> dict[str, Any]:
    return {
        "event": "request",
        "intended_ns": intended,
        "send_ns": send,
        "post_end_ns": post_end,
        "warmup": warmup,
    }


def test_open_and_closed_load_become_numbers() -> None:
    opened = spec_of(load={"open": {"every": "5 ms"}})
    assert (opened.every_ns, opened.in_flight, opened.think_ns) == (5_000_000, 1, 0)
    closed = spec_of(load={"closed": {"in_flight": 4, "think": "2 ms"}})
    assert (closed.every_ns, closed.in_flight, closed.think_ns) == (0, 4, 2_000_000)


def test_model_is_named_only_where_something_is_inferred() -> None:
    assert spec_of(infer_tokens=2).model == "~/models/sensor-lm.onnx"
    assert spec_of(infer_tokens=0).model is None
    push = spec_of(mode="push", infer_tokens=2, load={"open": {"every": "5 ms"}})
    assert (push.model, push.infer_tokens) == (None, 0)


def test_spec_is_one_line() -> None:
    line = spec_of().to_line()
    assert line.count(b"\n") == 1
    assert json.loads(line)["board"] == ["127.0.0.1", 5005]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"prompt_tokens": 355}, "at most 354"),
        ({"mode": "push"}, "needs an interval"),
        ({"mode": "push", "protocol": "token-v1", "load": {"open": {"every": "5 ms"}}}, "needs protocol token-v2"),
    ],
)
def test_what_cannot_be_sent_is_a_fault_of_the_plan(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        spec_of(**changes)


def test_traffic_bound_covers_a_board_that_never_answers() -> None:
    lost_one_by_one = inference(requests=100, timeout="1 s", load={"closed": {"in_flight": 1}})
    assert traffic_bound_s(lost_one_by_one) >= 100
    scheduled = inference(requests=1000, timeout="1 s", load={"open": {"every": "20 ms"}})
    assert 21 <= traffic_bound_s(scheduled) < 60


def test_lateness_is_judged_against_half_a_period(tmp_path: Path) -> None:
    events = [request(1000 * i, 1000 * i + late) for i, late in enumerate((0, 500, 501, 10, 2000))]
    events[4]["post_end_ns"] = 4001
    events.append(request(0, 99_999, warmup=True))
    path = write(tmp_path / "e", {"event": "spec", "spec": {"every_ns": 1000}}, *events)
    schedule = read_report(path).schedule
    assert schedule is not None
    assert (schedule.sends, schedule.late, schedule.late_by_pipeline) == (5, 2, 1)
    assert (schedule.p50_ns, schedule.p99_ns, schedule.worst_ns) == (500, 2000, 2000)


def test_clock_step_and_throttling_are_seen(tmp_path: Path) -> None:
    host = {
        "event": "host",
        "when": "start",
        "cooling": {"c0:pwm-fan": "3", "c1:gpu": "0"},
        "over_current": {"oc1": "0"},
    }
    after = {
        "event": "host",
        "when": "end",
        "cooling": {"c0:pwm-fan": "3", "c1:gpu": "2"},
        "over_current": {"oc1": "5"},
    }
    path = write(
        tmp_path / "e",
        host,
        {"event": "clock", "t_ns": 100, "realtime_ns": 5_100},
        {"event": "clock", "t_ns": 200, "realtime_ns": 9_200},
        host | {"when": "run", "cooling": {"c0:pwm-fan": "3", "c1:gpu": "1"}},
        after,
    )
    report = read_report(path)
    assert report.clock_step_ns == 4_000
    assert report.throttled == (
        "oc1 went from 0 to 5",
        "cooling device c1:gpu at state 1 during the run",
        "cooling device c1:gpu at state 2 at the end",
    )


def test_fallback_is_flagged(tmp_path: Path) -> None:
    path = write(tmp_path / "e", {"event": "engine", "provider": "CPUExecutionProvider", "fallback": True})
    assert read_report(path).fallback
    assert read_report(path).provider == "CPUExecutionProvider"


def test_cut_last_line_is_left_out_and_a_bad_one_inside_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "e", {"event": "end", "reason": "done", "counts": {"answered": 3}})
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"event": "req')
    assert read_report(path).count("answered") == 3
    path.write_bytes(b"[1]\n" + whole)
    with pytest.raises(JetsonError, match=":1: not an event"):
        read_report(path)


def test_empty_file_is_an_incomplete_run(tmp_path: Path) -> None:
    report = read_report(write(tmp_path / "e"))
    assert (report.complete, report.reason, report.schedule) == (False, "cut", None)


def test_answers_are_passed_over_unread_and_change_nothing(tmp_path: Path) -> None:
    text = write(tmp_path / "sound.jsonl", request(10, 11), {"event": "end", "reason": "done"}).read_text()
    answer = json.dumps({"event": "answer", "request_id": 1}, separators=(",", ":"))
    whole = tmp_path / "whole.jsonl"
    whole.write_text(f"{answer}\n{text}{answer}\n")
    assert read_report(whole) == report_of(iterate_events(whole))
    whole.write_text(f"{answer[:-1]}\n{text}")
    assert read_report(whole).complete
