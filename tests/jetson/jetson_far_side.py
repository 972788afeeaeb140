"""The far side of this room's tests: a real sshd with keys of its own, and a UDP peer in the board's place."""

from __future__ import annotations

import getpass
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rig.bench.model import Bench, Jetson
from rig.deadline import Deadline
from rig.plan.model import Inference

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
REPO = Path(__file__).resolve().parents[2]


@dataclass
class Sshd:
    """A running sshd: its port, its public host key line, the key that may log in, and its folder."""

    directory: Path
    port: int
    host_key: str
    user_key: Path
    process: subprocess.Popen[bytes]


def generate_key(path: Path, kind: str = "ed25519") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", path, "-C", "test"], check=True)
    return path


def start_sshd(directory: Path, *, host_key_type: str = "ed25519") -> Sshd:
    host_key = generate_key(directory / "host_key", host_key_type)
    user_key = generate_key(directory / "user_key")
    (directory / "authorized_keys").write_bytes(user_key.with_suffix(".pub").read_bytes())
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # privilege separation folder of a root sshd
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = directory / "sshd_config"
    config.write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {host_key}\nAuthorizedKeysFile {directory}/authorized_keys\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\nStrictModes no\nUsePAM no\nPidFile none\n"
        "UseDNS no\nSubsystem sftp internal-sftp\n"
    )
    assert SSHD is not None
    argv = [SSHD, "-D", "-e", "-f", str(config)]
    if setpriv := shutil.which("setpriv"):
        argv = [setpriv, "--pdeathsig", "KILL", *argv]  # a killed test run leaves no server behind
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(argv, stderr=log)
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError((directory / "log").read_text()) from None
            time.sleep(0.01)
    return Sshd(directory, port, " ".join(host_key.with_suffix(".pub").read_text().split()[:2]), user_key, process)


def stop_sshd(server: Sshd) -> None:
    """End the listener and every session process below it."""
    for pid in [*descendants(server.process.pid), server.process.pid]:
        try:
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    server.process.wait(30)


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for stat_file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat_file.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat_file.parent.name))
    found, open_pids = [], [pid]
    while open_pids:
        below = children.get(open_pids.pop(), [])
        found += below
        open_pids += below
    return found


class LocalHost:
    """The part of rig.bench.host.Host that a session needs."""

    def connect(self, address: tuple[str, int], deadline: Deadline) -> socket.socket:
        connection = socket.create_connection(address, deadline.left())
        connection.settimeout(None)
        return connection

    def spawn(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def run(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def jetson_at(server: Sshd, work_dir: Path, **changes: Any) -> Jetson:
    values: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": server.port,
        "user": getpass.getuser(),
        "host_key": server.host_key,
        "key": str(server.user_key),
        "python": sys.executable,
        "bench_address": "127.0.0.1",
        "model_dir": str(REPO / "models" / "build"),
        "work_dir": str(work_dir),
    }
    return Jetson(**(values | changes))


def bench_with(jetson: Jetson, board_port: int) -> Bench:
    return Bench.model_validate(
        {
            "bench": "test",
            "profile": "emulated",
            "capabilities": [],
            "uncertainty": {"declared": "1 ms"},
            "network_ready": {},
            "board": {
                "serial": {"port": "socket://127.0.0.1:1"},
                "identity": {
                    "name": "peer",
                    "mac": "02:00:00:00:00:01",
                    "address": "127.0.0.1",
                    "port": board_port,
                },
            },
            "jetson": jetson,
            "capture": {"interface": "lo"},
        }
    )


def inference(**changes: Any) -> Inference:
    values: dict[str, Any] = {"requests": 5, "warmup": 2, "timeout": "20 s", "infer_tokens": 0}
    return Inference.model_validate(values | changes)


def find_python36() -> str | None:
    """An interpreter that starts; a version manager's shim may be there without one."""
    candidates = [shutil.which("python3.6"), *map(str, Path.home().glob(".pyenv/versions/3.6.*/bin/python3.6"))]
    for candidate in filter(None, candidates):
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


# --- the board --------------------------------------------------------------------------------------------------------

V2 = struct.Struct("<2sBBIIIHHQQQII")


def v2(kind: int, flags: int, request_id: int, sequence: int, boot_id: int, payload: bytes, t: int = 1) -> bytes:
    head = V2.pack(b"T2", kind, flags, request_id, sequence, boot_id, len(payload), 0, t, t, t, 0xFFFFFFFF, 0)
    return head[:48] + struct.pack("<I", zlib.crc32(head)) + payload


@dataclass
class Peer:
    """The board as the runner sees it: answers requests in as many datagrams as told, sentinels always, pushes when
    armed. `fate(request_id)` says what becomes of a request's answer: `answer`, `drop`, `twice`, `error`."""

    socket: socket.socket
    chunk: int = 355
    fate: Callable[[int], str] = lambda request_id: "answer"
    sentinel_answered: Callable[[int, int], bool] = lambda kind, attempt: True
    pushes: int = 0
    requests: list[tuple[float, Any]] = field(default_factory=list)
    sentinels: list[int] = field(default_factory=list)
    last_sender: Any = None
    sequence: int = 0
    boot_id: int = 0xB0A2D001

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def serve(self) -> None:
        while True:
            try:
                data, sender = self.socket.recvfrom(2048)
            except OSError:
                return
            if not data:
                return
            self.last_sender = sender
            if data[:2] == b"T2":
                self._serve_v2(data, sender)
            else:
                self._serve_v1(data, sender)

    def _serve_v2(self, data: bytes, sender: Any) -> None:
        _, kind, flags, request_id, *_, crc = V2.unpack_from(data)
        assert zlib.crc32(data[:48] + bytes(4)) == crc
        if kind == 5:
            which = 0xFFFFFFFF - request_id
            self.sentinels.append(which)
            if self.sentinel_answered(which, self.sentinels.count(which)):
                counters = struct.pack("<8I", len(self.requests), 0, 0, 0, self.pushes, 0, len(self.sentinels), 1234)
                self._send(5, flags, request_id, counters, sender)
            if which == 1 and self.sentinels.count(1) == 1:  # a repeated one arms nothing
                for index in range(self.pushes):
                    self._send(2, 3, index, bytes(64), sender)
            return
        answer_tokens, zero = struct.unpack_from("<HH", data, V2.size)
        tokens = struct.unpack(f"<{(len(data) - V2.size - 4) // 4}I", data[V2.size + 4 :])
        self.requests.append((time.monotonic(), (request_id, answer_tokens, zero, tokens)))
        fate = self.fate(request_id)
        if fate == "drop":
            return
        if fate == "error":
            self._send(4, 3, request_id, b"", sender)
            return
        for first in range(0, answer_tokens, self.chunk):
            count = min(self.chunk, answer_tokens - first)
            bits = (first == 0) | ((first + count == answer_tokens) << 1)
            self._send(2, bits, request_id, bytes(4 * count), sender, copies=2 if fate == "twice" else 1)

    def _serve_v1(self, data: bytes, sender: Any) -> None:
        sequence, size, total = struct.unpack_from("<HHB", data)
        assert size == len(data) - 5
        assert total == sum(data[5:]) % 256
        answer_tokens, *tokens = struct.unpack(f"<{size // 2}H", data[5:])
        self.requests.append((time.monotonic(), (sequence, answer_tokens, tuple(tokens))))
        if self.fate(sequence) == "drop":
            return
        for first in range(0, answer_tokens, self.chunk):
            payload = bytes(random.Random(first).randbytes(2 * min(self.chunk, answer_tokens - first)))
            self.socket.sendto(struct.pack("<HHB", sequence, len(payload), sum(payload) % 256) + payload, sender)

    def _send(self, kind: int, flags: int, request_id: int, payload: bytes, sender: Any, copies: int = 1) -> None:
        data = v2(kind, flags, request_id, self.sequence, self.boot_id, payload)
        self.sequence += 1
        for _ in range(copies):
            self.socket.sendto(data, sender)
