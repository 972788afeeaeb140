"""Every way a bench can end, and what is left then: nothing."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from emulated_files import ROOT, bench_file

from rig.deadline import Deadline
from rig.emulation.bench import EmulatedBench, open_bench, status
from rig.emulation.state import BenchState
from rig.errors import BenchError, InternalError
from rig.plan.model import Impairment

pytestmark = pytest.mark.bench

CONTROLLER = """
import sys, time
from pathlib import Path
from emulated_files import bench_file
from rig.emulation.bench import open_bench, serve
def ready(bench):
    bench.host.spawn(["sleep", "1000"], stdout=Path("/dev/null"), stderr=Path("/dev/null"))
    print("ready", flush=True)
if sys.argv[1] == "serve":
    serve(bench_file(), on_ready=ready)
else:
    with open_bench(bench_file()) as bench:
        ready(bench)
        input()
"""


class Controller:
    """A controller process of its own with a bench, and all processes of that bench."""

    def __init__(self, mode: str) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", CONTROLLER, mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=ROOT,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        self.stdin, self._stdout = self.process.stdin, self.process.stdout
        assert self._stdout.readline() == b"ready\n"
        launcher = next(pid for pid in pids() if parent_of(pid) == self.process.pid)
        init = next(pid for pid in pids() if parent_of(pid) == launcher)
        inside = [pid for pid in pids() if namespace_of(pid, "pid") == namespace_of(init, "pid")]
        self.members = [launcher, *inside]
        self.network_namespaces = {namespace_of(pid, "net") for pid in inside}
        self._handles = [os.pidfd_open(pid) for pid in self.members]

    def left_after(self, seconds: float) -> list[int]:
        """Processes of the bench that have not ended within `seconds`, counted as waits of at most 10 ms.

        So the time for which a busy host keeps this very process waiting does not count.
        """
        left = dict(zip(self._handles, self.members, strict=True))
        waits = round(seconds / 0.01)
        while left:
            ended = select.select([*left], [], [], 0.01 if waits else 0)[0]
            for handle in ended:
                del left[handle]
            if not ended and not waits:
                break
            waits -= not ended
        return [*left.values()]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.stdin.close()
        self._stdout.close()
        for handle in self._handles:
            os.close(handle)


def pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def parent_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def namespace_of(pid: int, kind: str) -> str:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/{kind}").readlink())
    return ""


def named_namespaces() -> list[str]:
    return sorted(entry.name for entry in Path("/run/netns").iterdir()) if Path("/run/netns").is_dir() else []


@pytest.fixture
def served(own_state: Path) -> Iterator[Controller]:
    made = Controller("serve")
    yield made
    made.close()


def test_bench_is_private_namespaces_with_all_its_parts_inside(served: Controller) -> None:
    names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in served.members]
    assert sorted(names) == sorted(
        ["rig-launcher", "rig-bench", "rig-relay", "rig-serial", "qemu-system-arm", "sshd", "sleep"]
    )
    assert len(served.network_namespaces) == 2
    assert namespace_of(os.getpid(), "net") not in served.network_namespaces


@pytest.mark.parametrize(
    ("mode", "signum"),
    [
        ("private", signal.SIGKILL),
        ("private", signal.SIGTERM),
        ("private", signal.SIGHUP),
        ("serve", signal.SIGKILL),
        ("serve", signal.SIGINT),
    ],
)
def test_nothing_is_left_within_a_second_of_a_killed_controller(
    own_state: Path, mode: str, signum: signal.Signals
) -> None:
    controller = Controller(mode)
    try:
        kill_and_look(controller, own_state, signum)
    finally:
        controller.close()


def kill_and_look(controller: Controller, own_state: Path, signum: signal.Signals) -> None:
    names = named_namespaces()
    controller.process.send_signal(signum)
    assert controller.left_after(1.0) == []
    controller.process.wait()
    assert not [pid for pid in pids() if namespace_of(pid, "net") in controller.network_namespaces]
    assert named_namespaces() == names
    assert str(own_state) not in Path("/proc/self/mountinfo").read_text()
    assert list((own_state / "rig" / "under-test" / "run").iterdir()) == []
    address = BenchState.of("under-test", None).control_address.replace("\0", "@")
    assert address not in Path("/proc/net/unix").read_text()
    with open_bench(bench_file()):  # and the next controller finds a free bench
        pass


def test_orderly_end_leaves_nothing(own_state: Path) -> None:
    controller = Controller("private")
    try:
        controller.stdin.write(b"\n")
        controller.stdin.flush()
        assert controller.process.wait(10) == 0
        assert controller.left_after(0.0) == [], "the bench must be gone before close() returns"
    finally:
        controller.close()


def test_killed_launcher_takes_the_bench_along(own_state: Path) -> None:
    controller = Controller("private")
    try:
        os.kill(controller.members[0], signal.SIGKILL)
        assert controller.left_after(1.0) == []
    finally:
        controller.close()


def test_two_benches_side_by_side_do_not_see_each_other(own_state: Path) -> None:
    with open_bench(bench_file(), instance="a") as first, open_bench(bench_file(), instance="b") as second:
        assert first.bench.board.serial.port != second.bench.board.serial.port
        first.set_link(False)
        carriers = [
            bench.host.run(["cat", "/sys/class/net/board-port/carrier"], Deadline.after(5)).stdout
            for bench in (first, second)
        ]
        assert carriers == [b"0\n", b"1\n"]
        assert first.bench.jetson.host_key != second.bench.jetson.host_key


def test_second_controller_is_told_who_has_the_bench(own_state: Path) -> None:
    controller = Controller("private")
    try:
        with pytest.raises(BenchError, match=rf"busy: held by pid {controller.process.pid} \(.*\) since \d{{4}}-"):
            open_bench(bench_file())
        assert status(bench_file()).state == "in-use"
        assert controller.left_after(0.0) == controller.members, "the first controller's bench must not be harmed"
    finally:
        controller.close()
    assert controller.process.returncode == -signal.SIGKILL


def test_bench_must_be_opened_from_the_main_thread(own_state: Path) -> None:
    caught: list[Exception] = []

    def work() -> None:
        try:
            open_bench(bench_file())
        except InternalError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "not the main one" in str(caught[0])


def test_missing_boot_rom_is_named_before_anything_starts(own_state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rig.emulation.bench.ROM", own_state / "rom.elf")
    with pytest.raises(InternalError, match=r"boot ROM .* is missing"):
        open_bench(bench_file())


def test_emulator_that_cannot_start_is_reported_with_its_last_words(
    own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = own_state.parent / "rom.elf"
    broken.mkdir()
    monkeypatch.setattr("rig.emulation.bench.ROM", broken)
    with pytest.raises(InternalError, match="did not start") as caught:
        open_bench(bench_file())
    assert "qemu-system-arm" in (caught.value.seen or "")


def test_served_bench_is_joined_and_outlives_who_joined(served: Controller) -> None:
    for _ in range(2):
        with open_bench(bench_file()) as bench:
            assert bench.joined
            assert bench.host.run(["echo", "hello"], Deadline.after(5)).stdout == b"hello\n"
    assert status(bench_file()).state == "up"
    assert served.left_after(0.0) == served.members


def test_what_a_client_started_and_set_ends_with_it(served: Controller, tmp_path: Path) -> None:
    goodbye = 'trap "echo asked to stop; exit" TERM; echo running; sleep 999 & wait'
    rule = Impairment.model_validate({"loss": "100 %"})
    with open_bench(bench_file()) as watching:
        with open_bench(bench_file()) as bench:
            bench.host.spawn(["sh", "-c", goodbye], stdout=tmp_path / "out", stderr=tmp_path / "err")
            await_true(lambda: (tmp_path / "out").read_text() == "running\n")
            bench.set_impairment([rule])
            bench.lines.set_boot(True)
            bench.lines.set_reset(True)
            bench.set_link(False)
            assert "999" in processes(watching)
        await_true(lambda: "999" not in processes(watching))
        now = watching.status()
        assert (tmp_path / "out").read_text() == "running\nasked to stop\n"
        assert (now["boot0"], now["in_reset"], now["link"], now["power"]) == (False, False, True, True)
        assert "1000" in processes(watching), "the other controller's process must not be harmed"


def test_client_whose_bench_ends_is_told_so(served: Controller) -> None:
    with open_bench(bench_file()) as bench:
        child = bench.host.spawn(["sleep", "1000"], stdout=Path("/dev/null"), stderr=Path("/dev/null"))
        served.process.kill()
        assert child.wait(Deadline.after(5)) == -signal.SIGKILL
        with pytest.raises(InternalError, match="has ended while it was in use"):
            bench.relay_counters()


@pytest.mark.skipif(os.getuid() != 0, reason="needs a second user")
def test_other_users_cannot_join(served: Controller) -> None:
    script = (
        "import socket, sys\n"
        "sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); sock.connect('\\0' + sys.argv[1])\n"
        "sock.settimeout(10); print(sock.recv(10))"
    )
    address = BenchState.of("under-test", None).control_address[1:]
    command = ["/usr/bin/python3", "-I", "-S", "-c", script, address]
    done = subprocess.run(
        command, user=65534, group=65534, extra_groups=[], capture_output=True, text=True, check=False
    )
    assert done.stdout == "b''\n", "the bench must hang up at once" + done.stderr
    assert status(bench_file()).state == "up"


def test_serving_twice_is_refused(served: Controller) -> None:
    from rig.emulation.bench import serve

    with pytest.raises(BenchError, match="busy: held by pid"):
        serve(bench_file())


def test_bench_that_is_down_is_said_to_be_down(own_state: Path) -> None:
    assert status(bench_file()).state == "down"
    assert not own_state.exists(), "asking must not make anything"


def processes(bench: EmulatedBench) -> str:
    return bench.host.run(["ps", "-eo", "args"], Deadline.after(5)).stdout.decode()


def await_true(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
