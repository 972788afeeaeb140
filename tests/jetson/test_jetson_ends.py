"""Ends of every kind: no runner outlives its rig, its deadline or its lease, and the next sweep leaves nothing."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jetson_far_side import LocalHost, Peer, Sshd, bench_with, inference, jetson_at, stop_sshd

from rig.bench.model import Jetson
from rig.deadline import Deadline
from rig.errors import JetsonError
from rig.jetson import runner
from rig.jetson.report import iterate_events, read_report
from rig.jetson.runs import RemoteRun, hold_lease, start_run, sweep
from rig.jetson.session import JetsonSession
from rig.jetson.spec import RunnerSpec, make_spec

LONG = {"requests": 1_000_000, "warmup": 0, "load": {"open": {"every": "2 ms"}}}


def spec_of(jetson: Jetson, peer: Peer, run_id: str = "run-1", **changes: Any) -> RunnerSpec:
    return make_spec(inference(**(LONG | changes)), bench_with(jetson, peer.port), run_id=run_id, owner="tester")


@contextmanager
def running(jetson: Jetson, peer: Peer, run_id: str = "run-1") -> Iterator[RemoteRun]:
    """A run in the middle of its load."""
    deadline = Deadline.after(30)
    with JetsonSession(jetson, LocalHost(), deadline) as session:
        with start_run(session, spec_of(jetson, peer, run_id), deadline) as run:
            run.wait_ready(deadline)
            run.go(deadline)
            run.wait_phase("start-sentinel", deadline)
            yield run


def pid_of(run: RemoteRun) -> int:
    return int(run.phases["hello"]["pid"])


def wait_gone(pid: int, seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while runner.process_start(pid) is not None:
        assert time.monotonic() < until, f"process {pid} is still there"
        time.sleep(0.01)


def sweep_now(jetson: Jetson) -> Any:
    with JetsonSession(jetson, LocalHost(), Deadline.after(20)) as session:
        return sweep(session, Deadline.after(20))


def local_runner(folder: Path, spec: RunnerSpec, **options: Any) -> subprocess.Popen[bytes]:
    """The runner as sshd would start it, without the SSH between."""
    folder.mkdir(exist_ok=True)
    copy = folder / "runner-local.py"
    copy.write_bytes(Path(runner.__file__).read_bytes())
    process = subprocess.Popen(
        [sys.executable, copy, "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )
    assert process.stdin is not None
    process.stdin.write(spec.to_line())
    process.stdin.flush()
    return process


def read_phase(process: subprocess.Popen[bytes], *phases: str) -> dict[str, Any]:
    assert process.stdout is not None
    for line in process.stdout:
        said: dict[str, Any] = json.loads(line.partition(b" ")[2])
        if said["phase"] in phases:
            return said
    assert process.stderr is not None
    raise AssertionError(f"the runner ended before {phases}: {process.stderr.read().decode()}")


def test_leaving_the_block_ends_the_runner_with_its_events_closed(jetson: Jetson, peer: Peer) -> None:
    with running(jetson, peer) as run:
        pid = pid_of(run)
    wait_gone(pid)
    work = Path(jetson.work_dir)
    assert not (work / "lease.json").exists()
    report = read_report(work / "runs" / "run-1" / "events.jsonl")
    assert (report.complete, report.reason) == (True, "parent gone")
    assert sweep_now(jetson).removed == ("run-1",)
    assert list((work / "runs").iterdir()) == []


def test_killed_rig_ends_the_runner_and_the_next_sweep_removes_its_files(
    jetson: Jetson, peer: Peer, tmp_path: Path
) -> None:
    program = tmp_path / "first_rig.py"
    program.write_text(
        f"import sys; sys.path[:0] = [{str(Path(__file__).parent)!r}]\n"
        "import test_jetson_ends as t, json\n"
        "from rig.bench.model import Jetson\n"
        "class Board: port = int(sys.argv[2])\n"
        "with t.running(Jetson.model_validate_json(sys.argv[1]), Board()) as run:\n"
        "    print(t.pid_of(run), flush=True); sys.stdin.read()\n"
    )
    rig = subprocess.Popen(
        [sys.executable, program, jetson.model_dump_json(), str(peer.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert rig.stdout is not None
    pid = int(rig.stdout.readline())
    assert runner.process_start(pid) is not None
    rig.send_signal(signal.SIGKILL)
    rig.communicate()
    wait_gone(pid)
    assert sweep_now(jetson).removed == ("run-1",)
    assert list((Path(jetson.work_dir) / "runs").iterdir()) == []


def test_killed_sshd_is_reported_and_ends_the_runner(own_sshd: Sshd, peer: Peer, tmp_path: Path) -> None:
    jetson = jetson_at(own_sshd, tmp_path / "work")
    with running(jetson, peer) as run:
        pid = pid_of(run)
        stop_sshd(own_sshd)
        with pytest.raises(JetsonError, match=r"connection to .* was lost before `done`"):
            run.wait_done(Deadline.after(20))
    wait_gone(pid)


def test_killed_runner_is_reported_with_its_status(jetson: Jetson, peer: Peer) -> None:
    with running(jetson, peer) as run:
        os.kill(pid_of(run), signal.SIGKILL)
        with pytest.raises(JetsonError, match="was killed before `done`"):
            run.wait_done(Deadline.after(20))
    assert (Path(jetson.work_dir) / "lease.json").exists()
    assert sweep_now(jetson).removed == ("run-1",)
    assert not (Path(jetson.work_dir) / "lease.json").exists()


def test_frozen_runner_is_noticed_by_its_silence(jetson: Jetson, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(jetson, peer) as run:
        pid = pid_of(run)
        os.kill(pid, signal.SIGSTOP)
        monkeypatch.setattr("rig.jetson.runs.SILENCE_S", 1.5)
        try:
            with pytest.raises(JetsonError, match=r"silent for 1\.5 s"):
                run.wait_done(Deadline.after(30))
        finally:
            os.kill(pid, signal.SIGCONT)
    wait_gone(pid)


def test_second_rig_is_told_who_holds_the_jetson(jetson: Jetson, peer: Peer) -> None:
    with running(jetson, peer, "first") as first:
        with pytest.raises(JetsonError, match=r"Jetson busy: held by tester on .* \(run first\) since 20"):
            sweep_now(jetson)
        with pytest.raises(JetsonError, match=r"Jetson busy: held by tester"):
            with running(jetson, peer, "second"):
                pass
        assert runner.process_start(pid_of(first)) is not None
        assert (Path(jetson.work_dir) / "runs" / "first" / "events.jsonl").exists()
        assert not (Path(jetson.work_dir) / "runs" / "second").exists()


def test_a_test_without_a_run_holds_the_lease_too(jetson: Jetson, peer: Peer) -> None:
    deadline = Deadline.after(20)
    with JetsonSession(jetson, LocalHost(), deadline) as session:
        with hold_lease(session, run_id="set.001-by-hand", owner="tester", deadline=deadline):
            with pytest.raises(
                JetsonError, match=r"Jetson busy: held by tester on .* \(run set\.001-by-hand\) since 20"
            ):
                with running(jetson, peer, "second"):
                    pass
            with pytest.raises(JetsonError, match=r"Jetson busy: held by tester"):
                with hold_lease(session, run_id="third", owner="other", deadline=deadline):
                    pass
        with running(jetson, peer, "fourth"):  # let go as soon as the block is left
            pass


def test_sweep_ends_a_frozen_runner_and_only_that_process(
    jetson: Jetson, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(jetson, peer) as run:
        pid = pid_of(run)
        os.kill(pid, signal.SIGSTOP)
        lease_path = Path(jetson.work_dir) / "lease.json"
        lease = json.loads(lease_path.read_text())
        lease["heartbeat_ns"] -= 60_000_000_000
        lease_path.write_text(json.dumps(lease))
        found = sweep_now(jetson)
        assert (found.killed, found.removed) == (("run-1",), ("run-1",))
        wait_gone(pid)


def test_lease_of_a_pid_that_was_used_again_is_stale_and_its_process_is_left_alone(jetson: Jetson, peer: Peer) -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        identity = runner.process_identity(bystander.pid)
        identity |= {"start_time": identity["start_time"] - 1, "run_id": "old", "owner": "o", "host": "h"}
        identity["heartbeat_ns"] = time.monotonic_ns()
        work = Path(jetson.work_dir)
        (work / "runs" / "old").mkdir(parents=True)
        (work / "runs" / "old" / "pid.json").write_text(json.dumps(identity))
        (work / "lease.json").write_text(json.dumps(identity))
        assert sweep_now(jetson).removed == ("old",)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"pid": "x"}', '{"heartbeat_ns": "soon"}', "\xff\x00"])
def test_unreadable_lease_is_stale(jetson: Jetson, content: str) -> None:
    work = Path(jetson.work_dir)
    work.mkdir()
    (work / "lease.json").write_text(content, encoding="latin-1")
    sweep_now(jetson)
    assert not (work / "lease.json").exists()


def test_lost_lease_stops_the_runner(jetson: Jetson, peer: Peer) -> None:
    with running(jetson, peer) as run:
        (Path(jetson.work_dir) / "lease.json").unlink()
        with pytest.raises(JetsonError, match="lease lost"):
            run.wait_done(Deadline.after(20))


def test_sigterm_closes_the_events_and_ends(jetson: Jetson, peer: Peer, tmp_path: Path) -> None:
    with running(jetson, peer) as run:
        os.kill(pid_of(run), signal.SIGTERM)
        with pytest.raises(JetsonError, match="signal 15"):
            run.wait_done(Deadline.after(20))
        wait_gone(pid_of(run))
    report = read_report(Path(jetson.work_dir) / "runs" / "run-1" / "events.jsonl")
    assert (report.complete, report.reason) == (True, "signal 15")
    assert report.count("requests_sent") > 0


def test_own_deadline_ends_the_runner(jetson: Jetson, peer: Peer, tmp_path: Path) -> None:
    deadline = Deadline.after(20)
    values = spec_of(jetson, peer).__dict__ | {"deadline_s": 1.0}

    def to_its_end(run: RemoteRun) -> None:  # on a busy host the second is over before it is ready
        run.wait_ready(deadline)
        run.go(deadline)
        run.wait_done(deadline)

    with JetsonSession(jetson, LocalHost(), deadline) as session:
        with start_run(session, RunnerSpec(**values), deadline) as run:
            with pytest.raises(JetsonError, match="deadline"):
                to_its_end(run)
            report = run.collect(tmp_path / "events", deadline)
    assert (report.complete, report.reason) == (True, "deadline")


def test_full_disk_ends_the_run_and_is_named(jetson: Jetson, peer: Peer, tmp_path: Path) -> None:
    def limit() -> None:  # stands for a full disk: writes beyond it fail with EFBIG
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    process = local_runner(tmp_path / "work", spec_of(jetson, peer), preexec_fn=limit)
    try:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
        said = read_phase(process, "error", "done", "stopped")
        assert (said["phase"], said["code"]) == ("error", "disk")
        assert "events.jsonl: File too large" in said["what"]
    finally:
        process.communicate()


def test_work_folder_without_permission_is_named(sshd: Sshd, peer: Peer, tmp_path: Path, host: LocalHost) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("not a folder")  # root passes any mode, so a file stands where the folder should be
    deadline = Deadline.after(20)
    with JetsonSession(jetson_at(sshd, blocked), host, deadline) as session:
        with pytest.raises(JetsonError, match=str(blocked)):
            sweep(session, deadline)


@pytest.mark.parametrize("line", [b"\n", b"{}\n", b"nonsense\n", b'{"run_id": "../up"}\n', b'{"run_id": 7}\n', b""])
def test_unusable_spec_is_refused_before_anything_is_touched(tmp_path: Path, line: bytes) -> None:
    copy = tmp_path / "runner.py"
    copy.write_bytes(Path(runner.__file__).read_bytes())
    done = subprocess.run([sys.executable, copy, "run"], input=line, capture_output=True, check=False)
    assert b'"code": "spec"' in done.stdout
    assert done.returncode == 2
    assert done.stderr == b""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runner.py"]


def test_events_of_a_killed_runner_can_still_be_read(jetson: Jetson, peer: Peer, tmp_path: Path) -> None:
    process = local_runner(tmp_path / "work", spec_of(jetson, peer))
    assert process.stdin is not None
    process.stdin.write(b"go\n")
    process.stdin.flush()
    path = tmp_path / "work" / "runs" / "run-1" / "events.jsonl"
    read_phase(process, "start-sentinel")
    until = time.monotonic() + 30
    while path.stat().st_size < 20_000:
        assert time.monotonic() < until
        time.sleep(0.02)
    process.kill()
    process.communicate()
    with path.open("ab") as stream:
        stream.write(b'{"event":"requ')  # as a crash leaves it
    assert any(event["event"] == "request" for event in iterate_events(path))
    report = read_report(path)
    assert (report.complete, report.reason) == (False, "cut")
