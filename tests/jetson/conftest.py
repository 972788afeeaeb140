"""Fixtures of the Jetson room; what they are made of is in jetson_far_side.py."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jetson_far_side import REPO, SSHD, LocalHost, Peer, Sshd, jetson_at, start_sshd, stop_sshd

from rig.bench.model import Jetson


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    if SSHD is None or shutil.which("ssh-keygen") is None:
        pytest.skip("needs OpenSSH's sshd and ssh-keygen")
    server = start_sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    stop_sshd(server)


@pytest.fixture
def own_sshd(tmp_path: Path) -> Iterator[Sshd]:
    """One for tests that harm it."""
    if SSHD is None or shutil.which("ssh-keygen") is None:
        pytest.skip("needs OpenSSH's sshd and ssh-keygen")
    directory = tmp_path / "own_sshd"
    directory.mkdir()
    server = start_sshd(directory)
    yield server
    stop_sshd(server)


@pytest.fixture
def host() -> LocalHost:
    return LocalHost()


@pytest.fixture
def jetson(sshd: Sshd, tmp_path: Path) -> Jetson:
    return jetson_at(sshd, tmp_path / "work")


@pytest.fixture(scope="session")
def model() -> Path:
    """The built model; made here where it is missing, whole or not at all."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    subprocess.run([sys.executable, REPO / "models" / "build.py"], check=True, stdout=subprocess.DEVNULL)
    return REPO / "models" / "build" / "sensor-lm.onnx"


@pytest.fixture
def peer() -> Iterator[Peer]:
    endpoint = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    endpoint.bind(("127.0.0.1", 0))
    board = Peer(endpoint)
    thread = threading.Thread(target=board.serve, daemon=True)
    thread.start()
    yield board
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stopper:
        end = time.monotonic() + 30
        while thread.is_alive() and time.monotonic() < end:
            stopper.sendto(b"", endpoint.getsockname())  # lost where the socket's buffer is full of a long load
            thread.join(0.1)
    endpoint.close()
    assert not thread.is_alive()
