"""A private network namespace with a veth pair, and a Host that runs programs in it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rig.deadline import Deadline
from rig.errors import InternalError

# Lives in the namespace and ends with its stdin: one JSON object a line, frames (hex) to send or a command to run.
_INSIDE = '''
import json, socket, subprocess, sys, threading, time
open("/proc/sys/net/ipv6/conf/default/disable_ipv6", "w").write("1")
batch = """
link set lo up
link add send0 address 02:00:00:00:00:aa type veth peer name seen0 address 02:00:00:00:00:bb
link add spare0 address 02:00:00:00:00:cc type veth peer name spare1 address 02:00:00:00:00:cc
link set send0 up
link set seen0 up
"""
subprocess.run(["ip", "-batch", "-"], input=batch.encode(), check=True)
for name in ("send0", "seen0"):  # the kernel tells of a carrier late
    while b"state UP" not in subprocess.check_output(["ip", "link", "show", name]):
        time.sleep(0.01)
packet = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
packet.bind(("send0", 0))
def babble(every_s, count):
    for _ in range(count):
        packet.send(b"\\xff" * 12 + b"\\x88\\xb5" + b"babble" * 10)
        time.sleep(every_s)
print("up", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    if "frames" in order:
        frames = [bytes.fromhex(frame) for frame in order["frames"]]
        for _ in range(order["times"]):
            for frame in frames:
                packet.send(frame)
    elif "babble" in order:
        every_s, count = order["babble"]
        threading.Thread(target=babble, args=(every_s, count), daemon=True).start()
    else:
        subprocess.run(order["run"], check=True)
    print("done", flush=True)
'''


class NamespaceChild:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self, deadline: Deadline) -> int | None:
        try:
            return self._process.wait(deadline.left())
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, signum: int) -> None:
        self._process.send_signal(signum)


class NamespaceHost:
    """A Host whose programs run in the namespace of a process; `user` runs them as that uid without capabilities."""

    def __init__(self, pid: int) -> None:
        self.prefix = ["nsenter", "--target", str(pid), "--net"]
        if os.geteuid() != 0:
            self.prefix += ["--user", "--preserve-credentials"]
        self.user: int | None = None

    def _argv(self, argv: Sequence[str]) -> list[str]:
        drop = []
        if self.user is not None:
            drop = ["setpriv", f"--reuid={self.user}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
        return [*self.prefix, *drop, *argv]

    def spawn(self, argv: Sequence[str], *, stdout: Path, stderr: Path) -> NamespaceChild:
        with stdout.open("ab") as out, stderr.open("ab") as err:
            return NamespaceChild(subprocess.Popen(self._argv(argv), stdin=subprocess.DEVNULL, stdout=out, stderr=err))

    def run(self, argv: Sequence[str], deadline: Deadline) -> subprocess.CompletedProcess[bytes]:
        if shutil.which(argv[0]) is None:
            raise InternalError(f"{argv[0]} is not installed")
        return subprocess.run(
            self._argv(argv), stdin=subprocess.DEVNULL, capture_output=True, timeout=deadline.left(), check=False
        )

    def connect(self, address: tuple[str, int], deadline: Deadline) -> socket.socket:
        raise NotImplementedError


class Segment:
    """The veth pair send0 – seen0: frames sent here are what a recorder on seen0 must show."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.host = NamespaceHost(process.pid)

    def send(self, *frames: bytes, times: int = 1) -> None:
        self._order({"frames": [frame.hex() for frame in frames], "times": times})

    def ip(self, *words: str) -> None:
        self._order({"run": ["ip", *words]})

    def babble(self, *, every_s: float, count: int) -> None:
        """Foreign frames from now on, until the namespace ends."""
        self._order({"babble": [every_s, count]})

    def _order(self, order: dict[str, object]) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"


@pytest.fixture
def segment() -> Iterator[Segment]:
    for tool in ("unshare", "nsenter", "ip", "dumpcap"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
    process = subprocess.Popen(
        [*unshare, sys.executable, "-c", _INSIDE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        if process.stdout.readline() != "up\n":
            pytest.skip(f"no private network namespace here: {process.stderr.read().strip()[-200:]}")
        yield Segment(process)
    finally:
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorder that waits longer than a busy host keeps dumpcap off its processor."""
    monkeypatch.setattr("rig.capture.recorder.QUIET_S", 4.0)


@pytest.fixture
def drained_by_sentinel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorder whose drain is over with the end sentinel only."""
    monkeypatch.setattr("rig.capture.recorder.QUIET_S", 60.0)


@pytest.fixture(scope="session")
def samples() -> Path:
    """The public sample captures, where they are."""
    named = os.environ.get("RIG_SAMPLES")
    folder = Path(named) if named else Path(__file__).parents[3] / "shared" / "samples" / "captures"
    if not folder.is_dir():
        pytest.skip(f"no public sample captures in {folder} (set RIG_SAMPLES)")
    return folder
