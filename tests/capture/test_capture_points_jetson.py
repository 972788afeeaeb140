"""Capture point `jetson`: what the keeper over there guarantees, what comes back over SSH. Real sshd and keeper."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rig.bench.model import CapturePoint, Jetson
from rig.capture import jetson_host, keeper
from rig.capture.jetson_host import JetsonHost
from rig.capture.points import capture_point
from rig.capture.recorder import Recorder, check_capture
from rig.deadline import Deadline
from rig.errors import CaptureError, InternalError, JetsonError
from rig.jetson.session import JetsonSession

sys.path.append(str(Path(__file__).parents[1] / "jetson"))
from jetson_far_side import SSHD, LocalHost, jetson_at, start_sshd, stop_sshd

KEEPER = Path(keeper.__file__)
LO = capture_point(CapturePoint(point="jetson", interface="lo"))


# --- the keeper by itself ---------------------------------------------------------------------------------------------


class Kept:
    """keeper.py on this machine, spoken to as the rig does."""

    def __init__(self, base: Path, script: str, largest_file: int = resource.RLIM_INFINITY) -> None:
        self.process = subprocess.Popen(
            [sys.executable, KEEPER, base, "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # a line that waits in a buffer of ours would not wake `select`
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY)),
        )
        self.said: list[dict[str, Any]] = []

    def order(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def wait_for(self, event: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        while not any(one["event"] == event for one in self.said):
            assert select.select([self.process.stdout], [], [], 30)[0], f"no {event}: {self.said}"
            line = self.process.stdout.readline()
            assert line, f"ended without {event}: {self.said}"
            self.said.append(json.loads(line.removeprefix(b"@rig ")))
        return next(one for one in self.said if one["event"] == event)


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Callable[..., Kept]]:
    started: list[Kept] = []

    def start(script: str, **limits: int) -> Kept:
        started.append(Kept(tmp_path / "captures", script, **limits))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
        for stream in (one.process.stdin, one.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def folders(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "captures").iterdir() if path.name != "guard")


def test_the_keeper_runs_on_the_python_of_jetpack_4() -> None:
    ast.parse(KEEPER.read_text(), feature_version=(3, 6))


def test_the_output_is_kept_and_announced_with_size_and_checksum(keep: Callable[[str], Kept]) -> None:
    kept = keep("printf hello; echo complaint >&2")
    ended = kept.wait_for("ended")
    assert (ended["status"], ended["bytes"], ended["sha256"]) == (0, 5, hashlib.sha256(b"hello").hexdigest())
    assert Path(kept.wait_for("kept")["output"]).read_bytes() == b"hello"
    assert kept.wait_for("stderr")["line"] == "complaint"
    assert ended["clock"]["samples"] >= 2
    assert abs(ended["clock"]["largest_step_ns"]) < 10**9


def test_a_signal_reaches_the_program_and_its_status_comes_back(keep: Callable[[str], Kept]) -> None:
    kept = keep("trap 'printf tail; exit 3' INT; echo up >&2; while :; do sleep 0.05; done")
    kept.wait_for("stderr")
    kept.order(f"signal {int(signal.SIGINT)}")
    ended = kept.wait_for("ended")
    assert (ended["status"], ended["bytes"]) == (3, 4)


@pytest.mark.parametrize("end", ["bye", "end of file", "SIGTERM", "SIGHUP"])
def test_any_end_of_the_rig_ends_the_program_and_removes_what_it_wrote(
    keep: Callable[[str], Kept], tmp_path: Path, end: str
) -> None:
    kept = keep("exec sleep 60")
    pid = kept.wait_for("started")["pid"]
    assert len(folders(tmp_path)) == 1
    if end == "bye":
        kept.order("bye")
    elif end == "end of file":
        assert kept.process.stdin is not None
        kept.process.stdin.close()
    else:
        kept.process.send_signal(getattr(signal, end))
    assert kept.process.wait(30) == 0
    assert gone(pid)
    assert folders(tmp_path) == []


@pytest.mark.parametrize("script", ["exec sleep 60", "trap '' INT; exec sleep 60"])
def test_silence_of_the_rig_ends_it_and_a_program_that_ignores_sigint_too(tmp_path: Path, script: str) -> None:
    source = KEEPER.read_text()
    for patient, impatient in (("SILENCE_S = 60.0", "SILENCE_S = 0.2"), ("GRACE_S = 2.0", "GRACE_S = 0.2")):
        assert patient in source
        source = source.replace(patient, impatient)
    process = subprocess.Popen(
        [sys.executable, "-c", source, tmp_path / "captures", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    said = process.stdout.read()
    assert process.wait(30) == 0
    process.stdin.close()
    process.stdout.close()
    started = next(json.loads(line[5:]) for line in said.splitlines() if b'"started"' in line)
    assert gone(started["pid"])
    assert folders(tmp_path) == []


def test_a_killed_keeper_takes_its_program_along_and_the_next_one_cleans_up(
    keep: Callable[[str], Kept], tmp_path: Path
) -> None:
    first = keep("exec sleep 60")
    pid = first.wait_for("started")["pid"]
    first.process.kill()
    wait_until(lambda: gone(pid))
    assert len(folders(tmp_path)) == 1
    second = keep("exec sleep 60")
    second.wait_for("started")
    assert folders(tmp_path) == [Path(second.wait_for("kept")["output"]).parent.name]


def test_a_left_over_program_that_only_notices_when_it_writes_is_swept(
    keep: Callable[[str], Kept], tmp_path: Path
) -> None:
    # As dumpcap with file capabilities, which loses its parent-death signal: here the shell's child does.
    first = keep("setsid sh -c 'echo $$ >&2; exec sleep 60' & exec sleep 60")
    pid = first.wait_for("started")["pid"]
    lock = Path(first.wait_for("kept")["output"]).with_name("lock")
    stray = int(first.wait_for("stderr")["line"])
    first.process.kill()
    wait_until(lambda: gone(pid))
    # The sweep goes by the number in the lock and by the start time that tells it from a reused one.
    lock.write_text(f"{stray} {keeper.process_start(stray)}")
    keep("exec sleep 60").wait_for("started")
    wait_until(lambda: gone(stray))


def test_a_living_keeper_s_folder_is_left_alone(keep: Callable[[str], Kept], tmp_path: Path) -> None:
    first = keep("exec sleep 60")
    pid = first.wait_for("started")["pid"]
    keep("exec sleep 60").wait_for("started")
    assert len(folders(tmp_path)) == 2
    assert not gone(pid)


def test_a_full_disk_is_a_fault_and_what_fitted_is_announced(keep: Callable[..., Kept]) -> None:
    assert keep("head -c 100000 /dev/zero").wait_for("ended")["bytes"] == 100_000
    limited = keep("head -c 100000 /dev/zero", largest_file=4096)
    assert "cannot keep the capture" in limited.wait_for("fault")["what"]
    assert limited.wait_for("ended")["bytes"] == 4096


# --- over SSH ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jetson(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jetson]:
    if SSHD is None:
        pytest.skip("needs OpenSSH's sshd")
    folder = tmp_path_factory.mktemp("sshd")
    server = start_sshd(folder)
    yield jetson_at(server, folder / "work")
    stop_sshd(server)


@pytest.fixture
def session(jetson: Jetson) -> Iterator[JetsonSession]:
    with JetsonSession(jetson, LocalHost(), Deadline.after(30)) as opened:
        yield opened


@pytest.fixture
def host(session: JetsonSession) -> Iterator[JetsonHost]:
    opened = JetsonHost(session)
    yield opened
    opened.close()


def test_output_stays_there_until_it_is_fetched_and_then_is_the_same(host: JetsonHost, tmp_path: Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    child = host.spawn(["sh", "-c", "head -c 3000000 /dev/urandom; echo done >&2"], stdout=out, stderr=err)
    assert child.wait(Deadline.after(30)) == 0
    assert err.read_text() == "done\n"
    assert out.stat().st_size == 0
    host.fetch(Deadline.after(30))
    assert child.announced is not None
    assert hashlib.sha256(out.read_bytes()).hexdigest() == child.announced["sha256"]
    assert child.mismatch() is None
    host.fetch(Deadline.after(30))
    assert out.stat().st_size == 3_000_000


def test_fetching_in_pieces_while_it_grows_gives_the_whole(host: JetsonHost, tmp_path: Path) -> None:
    out = tmp_path / "out"
    next_piece = tmp_path / "next"
    os.mkfifo(next_piece)
    script = f"while read word; do printf 0123456789; done < {next_piece}"
    child = host.spawn(["sh", "-c", script], stdout=out, stderr=tmp_path / "err")
    with os.fdopen(os.open(next_piece, os.O_RDWR), "w", buffering=1) as order:  # waits for no reader
        for pieces in range(1, 5):
            order.write("go on\n")
            end = time.monotonic() + 30
            while out.stat().st_size < 10 * pieces:
                assert time.monotonic() < end
                host.fetch(Deadline.after(30))
            assert out.stat().st_size == 10 * pieces
    assert child.wait(Deadline.after(30)) == 0
    host.fetch(Deadline.after(30))
    assert out.read_bytes() == b"0123456789" * 4
    assert child.mismatch() is None


def test_a_copy_that_differs_is_told(host: JetsonHost, tmp_path: Path) -> None:
    child = host.spawn(["sh", "-c", "printf 0123456789"], stdout=tmp_path / "out", stderr=tmp_path / "err")
    child.wait(Deadline.after(30))
    assert child.announced is not None
    child.announced["sha256"] = "00" * 32
    host.fetch(Deadline.after(30))
    assert "arrived with 10 bytes" in str(child.mismatch())


def test_a_missing_program_is_named_with_the_machine(host: JetsonHost, tmp_path: Path) -> None:
    with pytest.raises(InternalError, match=r"cannot start 'no-such-tool' on .*127\.0\.0\.1") as spawned:
        host.spawn(["no-such-tool"], stdout=tmp_path / "out", stderr=tmp_path / "err")
    assert "No such file" in spawned.value.what
    with pytest.raises(InternalError, match="cannot start 'no-such-tool' on"):
        host.run(["no-such-tool"], Deadline.after(30))


def test_a_lost_connection_ends_the_program_over_there_and_is_an_error_here(
    session: JetsonSession, tmp_path: Path
) -> None:
    host = JetsonHost(session)
    child = host.spawn(["sleep", "60"], stdout=tmp_path / "out", stderr=tmp_path / "err")
    pid = child.pid
    assert child.poll() is None
    session.close()
    wait_until(lambda: gone(pid))

    def noticed() -> bool:
        try:
            child.poll()
        except JetsonError as error:
            return "was lost" in error.what
        return False

    wait_until(noticed)


def test_closing_leaves_nothing_on_the_jetson(host: JetsonHost, session: JetsonSession, tmp_path: Path) -> None:
    child = host.spawn(["sleep", "60"], stdout=tmp_path / "out", stderr=tmp_path / "err")
    host.close()
    assert gone(child.pid)
    captures = Path(session.jetson.work_dir) / "captures"
    assert [path.name for path in captures.iterdir()] == ["guard"]


def fake_dumpcap(folder: Path, script: str) -> None:
    path = folder / "dumpcap"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def with_dumpcap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Puts a dumpcap of one's own first in the Jetson's PATH."""
    monkeypatch.setattr(jetson_host, "_SHELL", ("sh", "-c", f'PATH="{tmp_path}:$PATH" exec "$@"', "sh"))
    return lambda script: fake_dumpcap(tmp_path, script)


def test_a_user_who_may_not_capture_there_is_told_what_to_do_there(
    host: JetsonHost, with_dumpcap: Callable[[str], None]
) -> None:
    with_dumpcap('echo "dumpcap: You don\'t have permission to capture on that device" >&2; exit 1')
    with pytest.raises(CaptureError, match="this user may not capture on lo of") as caught:
        check_capture(host, LO, Deadline.after(30))
    hint = str(caught.value.hint)
    assert hint.startswith(f"on {host.where}: sudo setcap cap_net_raw,cap_net_admin=eip")


def test_a_jetson_without_dumpcap_is_told_how_to_get_it(host: JetsonHost, with_dumpcap: Callable[[str], None]) -> None:
    with_dumpcap("exit 127")
    with pytest.raises(CaptureError, match="dumpcap could not be started of") as caught:
        check_capture(host, LO, Deadline.after(30))
    assert f"on {host.where}: sudo apt-get install" in str(caught.value.hint)


def test_an_interface_that_the_jetson_lacks_is_named(host: JetsonHost) -> None:
    point = capture_point(CapturePoint(point="jetson", interface="mgbe7"))
    with pytest.raises(CaptureError, match="there is no interface 'mgbe7'"):
        check_capture(host, point, Deadline.after(30))


@pytest.mark.skipif(os.geteuid() != 0, reason="captures on this machine's loopback")
def test_a_connection_lost_in_mid_capture_leaves_a_report_and_no_exception(
    session: JetsonSession, tmp_path: Path
) -> None:
    with Recorder(JetsonHost(session), LO, tmp_path / "capture.pcapng") as recorder:
        recorder.start(Deadline.after(30))
        session.close()
        with pytest.raises(JetsonError):
            wait_until(lambda: recorder.check() is not None)
        report = recorder.stop(Deadline.after(30))
    assert report.ended == "died"
    assert any("was lost" in fault for fault in report.faults)
    assert not report.sound
    assert not list(tmp_path.glob("*.stderr"))
