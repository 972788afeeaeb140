"""One controller per bench, and the second one is told who is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rig.bench.lease import BenchLease, state_folder
from rig.errors import BenchError

HOLD = """\
import sys
from rig.bench.lease import BenchLease
with BenchLease("b1"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def hold() -> subprocess.Popen[str]:
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_second_controller_is_told_who_holds_the_bench_and_since_when() -> None:
    holder = hold()
    try:
        with pytest.raises(BenchError) as caught, BenchLease("b1"):
            pass
        assert f"pid {holder.pid}" in caught.value.what
        assert "since 20" in caught.value.what
        with BenchLease("b2"):
            pass
    finally:
        holder.communicate("")


def test_lease_of_a_killed_controller_is_free_at_once() -> None:
    holder = hold()
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    with BenchLease("b1"):
        pass


def test_lease_is_free_after_leaving_and_keeps_no_old_holder() -> None:
    with BenchLease("b1"):
        pass
    assert (state_folder("b1") / "lease").read_text() == ""
