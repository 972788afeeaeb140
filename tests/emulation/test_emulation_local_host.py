"""Programs on the rig's own machine: their output, their end, and that none outlives the controller."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rig.bench.host import LocalHost
from rig.deadline import Deadline
from rig.errors import InternalError

ROOT = Path(__file__).resolve().parents[2]


def test_run_gives_status_and_both_outputs() -> None:
    done = LocalHost().run(["sh", "-c", "echo out; echo err >&2; exit 3"], Deadline.after(10))
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_large_output_is_whole() -> None:
    done = LocalHost().run(["head", "-c", "3000000", "/dev/zero"], Deadline.after(10))
    assert done.stdout == bytes(3_000_000)


def test_missing_program_is_named() -> None:
    with pytest.raises(InternalError, match="no-such-program"):
        LocalHost().run(["no-such-program"], Deadline.after(1))


def test_late_program_is_killed_with_its_children_and_its_last_words_are_told() -> None:
    with pytest.raises(InternalError, match=r"did not end within 0\.3 s") as caught:
        LocalHost().run(["sh", "-c", "echo working >&2; sleep 1000 & echo $! >&2; wait"], Deadline.after(0.3))
    grandchild = int(caught.value.seen or 0)
    assert wait_gone(grandchild)


def test_spawned_child_appends_to_its_files_and_reports_its_end(tmp_path: Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    out.write_text("before\n")
    child = LocalHost().spawn(["sh", "-c", "echo after; read x; exit 4"], stdout=out, stderr=err)
    assert child.wait(Deadline.after(10)) == 4
    assert out.read_text() == "before\nafter\n"
    child.send_signal(signal.SIGTERM)


def test_wait_gives_up_at_the_deadline_and_signals_reach_the_child(tmp_path: Path) -> None:
    child = LocalHost().spawn(["sleep", "1000"], stdout=tmp_path / "out", stderr=tmp_path / "err")
    assert child.poll() is None
    assert child.wait(Deadline.after(0.01)) is None
    child.send_signal(signal.SIGINT)
    assert child.wait(Deadline.after(10)) == -signal.SIGINT


def test_child_dies_with_a_killed_controller() -> None:
    script = (
        "from pathlib import Path\nfrom rig.bench.host import LocalHost\n"
        "null = Path('/dev/null')\nchild = LocalHost().spawn(['sleep', '1000'], stdout=null, stderr=null)\n"
        "print(child.pid, flush=True)\ninput()\n"
    )
    controller = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    assert controller.stdout is not None
    assert controller.stdin is not None
    pid = int(controller.stdout.readline())
    controller.kill()
    controller.wait()
    controller.stdout.close()
    controller.stdin.close()
    assert wait_gone(pid)


def test_connect_reaches_a_listener_and_raises_when_there_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with LocalHost().connect(address, Deadline.after(5)) as sock:
            assert sock.getpeername() == address
    with pytest.raises(ConnectionRefusedError):
        LocalHost().connect(address, Deadline.after(5))


def wait_gone(pid: int) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], 5.0)[0])
    finally:
        os.close(fd)
