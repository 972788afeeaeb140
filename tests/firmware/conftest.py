"""One `make` at a time: test workers share the firmware's build folder."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Make = Callable[..., Path]


@pytest.fixture(scope="session")
def firmware() -> Path:
    return Path(__file__).parents[2] / "firmware"


@pytest.fixture(scope="session")
def make(firmware: Path) -> Make:
    """Builds the targets (all images without one) and returns the build folder."""

    def run(*targets: str) -> Path:
        build = firmware / "build"
        build.mkdir(exist_ok=True)
        with (build / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = subprocess.run(["make", "-C", firmware, *targets], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return build

    return run
