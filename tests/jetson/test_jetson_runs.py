"""Runs over a real sshd against a UDP peer: what reaches the board, what the events say, what the report sums up."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from jetson_far_side import LocalHost, Peer, bench_with, find_python36, inference, jetson_at, v2

from rig.bench.model import Jetson
from rig.deadline import Deadline
from rig.errors import JetsonError
from rig.jetson.report import RunnerReport, iterate_events
from rig.jetson.runs import host_state, start_run, sweep
from rig.jetson.session import JetsonSession
from rig.jetson.spec import RunnerSpec, make_spec

RUN_ID = "20260131T120000Z-a1b2c3.001-zero-copy-latency-firmware.variant=zero_copy-npu.first_token=" + "2-ms" * 16
"""As long, and with such characters, as the runs of a matrix have."""

LEDGER = ("requests_sent", "answered", "answers_received", "unexpected", "timeouts")

Events = list[dict[str, Any]]
Execute = Callable[..., tuple[RunnerReport, Events]]


@pytest.fixture
def execute(jetson: Jetson, host: LocalHost, peer: Peer, tmp_path: Path) -> Execute:
    """Run a plan's inference to its end; the report and the events."""

    def run_it(**changes: Any) -> tuple[RunnerReport, Events]:
        deadline = Deadline.after(30)
        spec = make_spec(inference(**changes), bench_with(jetson, peer.port), run_id=RUN_ID, owner="tester")
        path = tmp_path / "jetson.jsonl"
        with JetsonSession(jetson, host, deadline) as session, start_run(session, spec, deadline) as run:
            run.wait_ready(deadline)
            run.go(deadline)
            run.wait_done(deadline)
            report = run.collect(path, deadline)
        return report, list(iterate_events(path))

    return run_it


def with_answers(execute: Execute, count: int, **changes: Any) -> tuple[RunnerReport, Events]:
    """A run with so many answers in time: on a busy host some are later than a short time-out, and it is run again."""
    for _ in range(9):
        report, events = execute(**changes)
        if report.count("answered") == count:
            break
    return report, events


def endless(jetson: Jetson, peer: Peer) -> RunnerSpec:
    """A run `r` that is ended before it has sent all."""
    load = inference(requests=100_000, load={"open": {"every": "1 ms"}})
    return make_spec(load, bench_with(jetson, peer.port), run_id="r", owner="o")


def of(events: Events, kind: str, *, warmup: bool | None = None) -> Events:
    return [e for e in events if e["event"] == kind and (warmup is None or e["warmup"] is warmup)]


def test_closed_load_counts_and_stamps(execute: Execute, peer: Peer) -> None:
    report, events = execute(requests=6, warmup=2, answer_tokens=500, prompt_tokens=8)
    assert report.complete
    assert report.reason == "done"
    assert report.sentinels == {"start": True, "end": True}
    assert {name: report.count(name) for name in LEDGER} == {
        "requests_sent": 6,
        "answered": 6,
        "answers_received": 12,  # 500 tokens come in two datagrams
        "unexpected": 0,  # an answer is complete with its last datagram, not with its first
        "timeouts": 0,
    }
    assert (report.count("warmup_sent"), report.count("warmup_answered")) == (2, 2)
    assert report.boot_ids == (peer.boot_id,)
    assert report.board_counters["end"]["rx_requests"] == 8
    assert [e["request_id"] for e in of(events, "request", warmup=False)] == [1, 2, 3, 4, 5, 6]
    for event in of(events, "request"):
        stages = [event[name] for name in ("pre_start_ns", "pre_end_ns", "post_end_ns", "send_ns", "sent_ns")]
        assert stages == sorted(stages)
        assert event["intended_ns"] is None
    for event in of(events, "answer"):
        assert event["kernel_ns"] is None or event["kernel_ns"] <= event["recv_ns"] + 1_000_000
    order = [e["event"] + str(e.get("kind", "")) for e in events if e["event"] in ("request", "sentinel")]
    # A sentinel whose answer is late on a busy host is repeated.
    assert [kind for kind, _ in itertools.groupby(order)] == ["request", "sentinelstart", "request", "sentinelend"]
    assert len(of(events, "request", warmup=True)) == order.index("sentinelstart") == 2


def test_board_sees_request_as_the_contract_says(execute: Execute, peer: Peer) -> None:
    execute(requests=2, warmup=0, answer_tokens=33, prompt_tokens=5)
    for (_, (request_id, answer_tokens, zero, tokens)), expected_id in zip(peer.requests, (1, 2), strict=True):
        assert (request_id, answer_tokens, zero, len(tokens)) == (expected_id, 33, 0, 5)
    assert [kind for kind, _ in itertools.groupby(peer.sentinels)] == [1, 2]


def test_closed_load_keeps_its_number_in_flight(execute: Execute) -> None:
    _, events = execute(requests=8, warmup=0, load={"closed": {"in_flight": 3, "think": "5 ms"}})
    flight = 0
    most = 0
    for event in events:
        if event["event"] == "request":
            flight += 1
        elif event["event"] == "answer":
            flight -= 1
        most = max(most, flight)
    assert most <= 3
    sends = [e["send_ns"] for e in of(events, "request")]
    answers = [e["recv_ns"] for e in of(events, "answer")]
    for send, answer in zip(sends[3:], answers, strict=False):
        assert send - answer >= 5_000_000


def test_open_load_follows_its_schedule_without_drift(execute: Execute) -> None:
    report, events = execute(requests=40, warmup=0, load={"open": {"every": "2 ms"}})
    intended = [e["intended_ns"] for e in of(events, "request")]
    assert {b - a for a, b in itertools.pairwise(intended)} == {2_000_000}
    lateness = sorted(e["send_ns"] - e["intended_ns"] for e in of(events, "request"))
    assert lateness[0] >= 0, "nothing leaves before its time"
    assert report.schedule is not None
    assert (report.schedule.sends, report.schedule.every_ns) == (40, 2_000_000)
    assert report.schedule.worst_ns == lateness[-1]
    assert report.schedule.late == sum(value > 1_000_000 for value in lateness)


def test_pipeline_has_the_period_before_its_time(execute: Execute) -> None:
    _, events = execute(requests=3, warmup=0, load={"open": {"every": "150 ms"}})
    requests = of(events, "request")
    for before, after in itertools.pairwise(requests):
        assert before["sent_ns"] <= after["pre_start_ns"]
    for request in requests:
        late_ns = request["send_ns"] - request["intended_ns"]
        assert request["pre_start_ns"] < request["intended_ns"] or late_ns > 50_000_000, "it began when it was due"


def test_open_load_does_not_wait_for_answers(execute: Execute, peer: Peer) -> None:
    peer.fate = lambda request_id: "drop"
    report, events = execute(requests=20, warmup=0, timeout="300 ms", load={"open": {"every": "1 ms"}})
    assert report.count("requests_sent") == 20
    assert report.count("timeouts") == 20
    order = [e["event"] for e in events if e["event"] in ("request", "timeout")]
    assert order.index("timeout") > 1, "the sends did not wait for the time-outs"


def test_lost_late_and_doubled_answers_are_told_apart(execute: Execute, peer: Peer) -> None:
    fates = {2: "drop", 3: "twice", 4: "error"}
    peer.fate = lambda request_id: fates.get(request_id, "answer")
    report, events = execute(requests=5, warmup=0, timeout="2 s")
    counted = ("answered", "timeouts", "duplicates", "board_errors", "answers_received", "answers_unique")
    assert [report.count(name) for name in counted] == [4, 1, 1, 1, 5, 4]
    assert [e["request_id"] for e in of(events, "timeout")] == [2]


def test_answers_from_strangers_and_garbage_are_counted_and_ignored(execute: Execute, peer: Peer) -> None:
    stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def disturb(kind: int, attempt: int) -> bool:
        if kind == 1:
            stranger.sendto(v2(2, 3, 1, 1, 1, b""), peer.last_sender)
            peer.socket.sendto(b"T2 but nothing else", peer.last_sender)
        return True

    peer.sentinel_answered = disturb
    with stranger:
        report, _ = execute(requests=3, warmup=0)
    assert (report.count("strangers"), report.count("malformed"), report.count("answered")) == (1, 1, 3)


def test_unanswered_sentinel_is_a_finding_not_an_error(execute: Execute, peer: Peer) -> None:
    peer.sentinel_answered = lambda kind, attempt: kind == 2 and attempt == 3
    report, events = execute(requests=2, warmup=0)
    assert report.sentinels == {"start": False, "end": True}
    assert report.count("answered") == 2
    kinds = [e["kind"] for e in of(events, "sentinel")]
    assert kinds[:20] == ["start"] * 20
    assert set(kinds[20:]) == {"end"}
    assert len(kinds[20:]) >= 3, "more on a busy host, where the third one's answer is late"
    sequences = [e["sequence"] for e in of(events, "sentinel")]
    assert sequences == sorted(set(sequences))


def test_warm_up_gives_a_dead_board_up(execute: Execute, peer: Peer) -> None:
    peer.fate = lambda request_id: "drop"
    report, _ = execute(requests=1, warmup=50, timeout="20 ms")
    assert (report.count("warmup_sent"), report.count("warmup_timeouts")) == (3, 3)
    assert (report.count("requests_sent"), report.count("timeouts")) == (1, 1)


def test_closed_load_ends_when_the_board_is_gone(execute: Execute, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rig.jetson.spec.GIVE_UP_S", 0.1)
    peer.fate = lambda request_id: "drop" if request_id > 4 else "answer"
    load = {"closed": {"in_flight": 2}}
    report, events = with_answers(execute, 4, requests=10_000, warmup=0, timeout="20 ms", load=load)
    assert (report.complete, report.reason, report.sentinels) == (True, "done", {"start": True, "end": True})
    assert report.count("answered") == 4
    assert 40 <= report.count("timeouts") == report.count("requests_sent") - 4 < 9_996
    (gave_up,) = of(events, "gave-up")
    assert gave_up["t_ns"] - gave_up["heard_ns"] >= 100_000_000
    assert gave_up["heard_ns"] >= of(events, "answer")[-1]["recv_ns"]


def test_closed_load_goes_on_while_some_requests_are_answered(
    execute: Execute, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rig.jetson.spec.GIVE_UP_S", 0.0)
    peer.fate = lambda request_id: "answer" if request_id % 20 == 0 else "drop"  # 19 in a row are lost
    report, events = with_answers(execute, 3, requests=60, warmup=0, timeout="20 ms")
    assert (report.count("requests_sent"), report.count("timeouts")) == (60, 57)
    assert not of(events, "gave-up")


def test_waiting_for_the_end_shows_the_counts_so_far(
    jetson: Jetson, host: LocalHost, peer: Peer, tmp_path: Path
) -> None:
    class SeenError(Exception):
        pass

    def watch(counts: Mapping[str, int]) -> None:
        if counts.get("answered", 0) > 10:
            raise SeenError

    deadline = Deadline.after(30)
    with JetsonSession(jetson, host, deadline) as session, start_run(session, endless(jetson, peer), deadline) as run:
        run.wait_ready(deadline)
        run.go(deadline)
        with pytest.raises(SeenError):
            run.wait_done(deadline, watch)
        run.abort(deadline)
        assert run.collect(tmp_path / "events", deadline).reason == "aborted by the rig"


def test_push_mode_listens_for_the_boards_own_datagrams(execute: Execute, peer: Peer) -> None:
    peer.pushes = 7
    report, events = execute(mode="push", requests=7, warmup=1, load={"open": {"every": "10 ms"}})
    assert (report.count("answers_received"), report.count("requests_sent")) == (7, 0)
    assert len(of(events, "answer", warmup=False)) == 7
    assert report.engine == {}


def test_push_mode_ends_when_pushes_are_missing(execute: Execute, peer: Peer) -> None:
    peer.pushes = 3
    report, _ = execute(mode="push", requests=5, warmup=0, timeout="1 s", load={"open": {"every": "5 ms"}})
    assert report.complete
    assert report.count("answers_unique") == 3


def test_token_v1_answers_are_complete_when_all_their_tokens_are_there(execute: Execute, peer: Peer) -> None:
    peer.chunk = 100
    report, events = execute(protocol="token-v1", requests=4, warmup=1, answer_tokens=250, prompt_tokens=6)
    assert (report.count("answered"), report.count("answers_received")) == (4, 12)
    assert sum(e["tokens"] for e in of(events, "answer", warmup=False)) == 1000
    assert [request[:2] for _, request in peer.requests[1:]] == [(1, 250), (2, 250), (3, 250), (4, 250)]


def test_inference_is_real_and_its_stages_are_stamped(execute: Execute, peer: Peer, model: Path) -> None:
    report, events = execute(requests=4, warmup=1, infer_tokens=3, prompt_tokens=8)
    assert report.provider == "CPUExecutionProvider"
    assert not report.fallback
    assert report.engine["vocab"] == 512
    for event in of(events, "request"):
        stages = ["pre_end_ns", "prefill_start_ns", "first_token_ns", "decode_end_ns", "post_end_ns", "send_ns"]
        assert [event[name] for name in stages] == sorted(event[name] for name in stages)
        assert len(event["token_ns"]) == 3
    sent = [tokens for _, (_, _, _, tokens) in peer.requests]
    assert all(token < 512 for tokens in sent for token in tokens)
    assert len({tokens[-3:] for tokens in sent}) > 1, "what was decoded depends on the prompt and is sent"


def test_missing_model_is_named(jetson: Jetson, host: LocalHost, peer: Peer) -> None:
    deadline = Deadline.after(20)
    spec = make_spec(
        inference(infer_tokens=1, model="no-such-model"), bench_with(jetson, peer.port), run_id="r", owner="o"
    )
    with JetsonSession(jetson, host, deadline) as session, start_run(session, spec, deadline) as run:
        with pytest.raises(JetsonError, match=r"no model file .*no-such-model\.onnx") as caught:
            run.wait_ready(deadline)
    assert "models/build.py" in str(caught.value.hint)
    assert list((Path(jetson.work_dir) / "runs").iterdir()) == []


def test_bench_address_that_is_not_there_is_named(jetson: Jetson, host: LocalHost, peer: Peer) -> None:
    deadline = Deadline.after(20)
    elsewhere = jetson.model_copy(update={"bench_address": "192.0.2.1"})
    spec = make_spec(inference(), bench_with(elsewhere, peer.port), run_id="r", owner="o")
    with JetsonSession(jetson, host, deadline) as session, start_run(session, spec, deadline) as run:
        with pytest.raises(JetsonError, match=r"bench address 192\.0\.2\.1"):
            run.wait_ready(deadline)


def test_probes_tell_whether_the_network_is_ready(jetson: Jetson, host: LocalHost, peer: Peer) -> None:
    deadline = Deadline.after(20)
    peer.sentinel_answered = lambda kind, attempt: attempt > 1  # the first is lost, as to ARP
    spec = make_spec(inference(), bench_with(jetson, peer.port), run_id="r", owner="o")
    with JetsonSession(jetson, host, deadline) as session, start_run(session, spec, deadline) as run:
        run.wait_ready(deadline)
        ready = run.probe(3, Deadline.after(10))
        assert (ready.answered, len(ready.rtt_ns)) == (3, 3)
        assert ready.sent == len(peer.sentinels) >= 4
        peer.sentinel_answered = lambda kind, attempt: False
        silent = run.probe(1, Deadline.after(1))
        assert silent.answered == 0
        assert silent.sent >= 1
    assert set(peer.sentinels) == {3}


def test_aborted_run_can_be_collected(jetson: Jetson, host: LocalHost, peer: Peer, tmp_path: Path) -> None:
    deadline = Deadline.after(20)
    with JetsonSession(jetson, host, deadline) as session, start_run(session, endless(jetson, peer), deadline) as run:
        run.wait_ready(deadline)
        run.go(deadline)
        run.wait_phase("start-sentinel", deadline)
        run.abort(deadline)
        report = run.collect(tmp_path / "events", deadline)
    assert report.complete
    assert report.reason == "aborted by the rig"
    assert not (Path(jetson.work_dir) / "runs" / "r").exists()


def test_runner_is_uploaded_once_and_nothing_of_a_run_stays(execute: Execute, jetson: Jetson, host: LocalHost) -> None:
    execute(requests=1, warmup=0)
    work = Path(jetson.work_dir)
    (uploaded,) = work.glob("runner-*.py")
    written = uploaded.stat().st_mtime_ns
    execute(requests=1, warmup=0)
    assert uploaded.stat().st_mtime_ns == written
    assert sorted(path.name for path in work.rglob("*")) == ["lock", uploaded.name, "runs"]


def test_damaged_runner_on_the_jetson_is_noticed(execute: Execute, jetson: Jetson) -> None:
    execute(requests=1, warmup=0)
    (uploaded,) = Path(jetson.work_dir).glob("runner-*.py")
    uploaded.write_bytes(uploaded.read_bytes().replace(b"HEARTBEAT_S = 1.0", b"HEARTBEAT_S = 2.0"))
    with pytest.raises(JetsonError, match="bytes have changed"):
        execute(requests=1, warmup=0)


def test_whole_run_on_python_3_6(sshd: Any, host: LocalHost, peer: Peer, tmp_path: Path) -> None:
    python = find_python36()
    if python is None:
        pytest.skip("no Python 3.6 on this machine")
    deadline = Deadline.after(30)
    jetson = jetson_at(sshd, tmp_path / "work", python=python)
    spec = make_spec(inference(requests=5, warmup=1), bench_with(jetson, peer.port), run_id="r", owner="o")
    with JetsonSession(jetson, host, deadline) as session, start_run(session, spec, deadline) as run:
        run.wait_ready(deadline)
        assert run.phases["hello"]["python"].startswith("3.6.")
        run.go(deadline)
        run.wait_done(deadline)
        report = run.collect(tmp_path / "events", deadline)
    assert (report.reason, report.count("answered")) == ("done", 5)


def test_host_state_says_what_the_engine_offers(jetson: Jetson, host: LocalHost) -> None:
    with JetsonSession(jetson, host, Deadline.after(20)) as session:
        state = host_state(session, Deadline.after(20))
    assert state["uname"][0] == "Linux"
    assert state["disk_free_bytes"] > 0
    assert state["memory_kib"]["MemTotal"] > 0
    assert "CPUExecutionProvider" in state.get("providers", ["CPUExecutionProvider"])


def test_wrong_interpreter_is_named(sshd: Any, host: LocalHost, tmp_path: Path) -> None:
    jetson = jetson_at(sshd, tmp_path / "work", python="/no/such/python3")
    with JetsonSession(jetson, host, Deadline.after(20)) as session:
        with pytest.raises(JetsonError, match="status 127") as caught:
            sweep(session, Deadline.after(20))
    assert "/no/such/python3" in str(caught.value)


def test_words_of_a_plan_reach_no_shell(jetson: Jetson, host: LocalHost, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    words = ["printf", "%s\\n", f"$(touch {trap})", f"; touch {trap} #", "`id`", "a b", "'", '"', "\\", "*"]
    with JetsonSession(jetson, host, Deadline.after(20)) as session:
        result = session.run(words, Deadline.after(20))
    assert result.stdout.decode().split("\n") == words[2:]
    assert not trap.exists()
