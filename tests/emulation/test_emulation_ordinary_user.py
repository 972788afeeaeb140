"""The emulated bench of a user without privileges and without /dev/net/tun, its Jetson as capture point."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from emulated_files import ROOT

from rig.record import load_run

pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else"),
]

USER = 60_001
BECOME = (
    "[ ! -d /dev/net ] || mount -t tmpfs none /dev/net || exit 77\n"
    f'exec setpriv --reuid {USER} --regid {USER} --clear-groups --inh-caps=-all --bounding-set=-all "$@"'
)
BENCH = """\
bench: emulated
profile: emulated
uncertainty: {declared: 50 us}
emulation: {capture: jetson}
"""
PLAN = """\
plan: seen-from-the-jetson
inference: {requests: 50, timeout: 20 s, infer_tokens: 0, load: {closed: {in_flight: 1}}}
flows:
  requests: {from: jetson, to: board, udp.dstport: 5005, protocol: token-v2}
  answers: {from: board, to: jetson, udp.srcport: 5005, protocol: token-v2}
checks:
  no-loss: {loss: {of: requests, answered_by: answers}, limits: {count: {max: 0}}}
"""
ASK_JETSON = """\
import sys
from pathlib import Path
from rig.deadline import Deadline
from rig.session import Rig
with Rig.of(Path(sys.argv[1])) as rig:
    session = rig.jetson(Deadline.after(20))
    for command in ("grep -E ^(Uid|Cap(Inh|Prm|Eff|Amb)) /proc/self/status", "ip link set eth0 down"):
        done = session.run(command.split(), Deadline.after(20))
        print(done.status, *done.stdout.decode().split())
"""


@dataclass(frozen=True)
class Ordinary:
    """A copy of the project that belongs to an ordinary user, who runs it."""

    folder: Path

    def python(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        own = {"HOME": str(self.folder), "PYTHONPATH": str(self.folder), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        return subprocess.run(
            ["unshare", "--mount", "sh", "-c", BECOME, "sh", sys.executable, *map(str, arguments)],
            cwd=self.folder,
            env=own,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="module")
def ordinary() -> Iterator[Ordinary]:
    # pytest's own temporary folders are closed to others.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("rig", "firmware/build", "models/build"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "obj"))
        (folder / "bench.yaml").write_text(BENCH)
        (folder / "seen.plan.yaml").write_text(PLAN)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, USER, USER)
        folder.chmod(0o755)
        ordinary = Ordinary(folder)
        tried = ordinary.python("-c", "import os, numpy; print(os.getuid(), *os.listdir('/dev/net'))")
        if tried.returncode != 0:
            pytest.skip(f"another user cannot run the interpreter here: {tried.stderr.strip()}")
        assert tried.stdout == f"{USER}\n"
        yield ordinary


def test_a_run_captured_on_the_jetson_passes(ordinary: Ordinary) -> None:
    done = ordinary.python(
        *("-m", "rig.cli", "run", "seen.plan.yaml", "--bench", "bench.yaml", "--record-dir", "records")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [record] = ordinary.folder.glob("records/*/*/run.json")
    capture = load_run(record.parent).capture
    assert capture["where"].startswith("jetson@")
    assert capture["frames"] > 100


def test_the_jetsons_user_may_capture_and_nothing_else(ordinary: Ordinary) -> None:
    done = ordinary.python("-c", ASK_JETSON, "bench.yaml")
    assert done.returncode == 0, done.stderr
    status, down = done.stdout.splitlines()
    net_raw = f"{1 << 13:016x}"
    sets = f"CapInh: {1 << 12 | 1 << 13:016x} CapPrm: {net_raw} CapEff: {net_raw} CapAmb: {net_raw}"
    assert status == f"0 Uid: {USER} {USER} {USER} {USER} {sets}"
    assert not down.startswith("0")
