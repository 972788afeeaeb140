"""Whole runs on emulated benches of their own: state, flash and records in temporary folders."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Place:
    """A folder with its own bench state. `rig` and `pytest` run as a user would run them."""

    folder: Path

    @property
    def records(self) -> Path:
        return self.folder / "records"

    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "RIG_", "CI"))}
        return kept | {"XDG_STATE_HOME": str(self.folder / "state")}

    def rig(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return self._run([sys.executable, "-m", "rig.cli", *map(str, arguments)])

    def pytest(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        common = ["-p", "rig.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:xdist", f"--record-dir={self.records}"]
        return self._run([sys.executable, "-m", "pytest", *common, *map(str, arguments)])

    def _run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=ROOT, env=self.environment(), capture_output=True, text=True, timeout=600, check=False
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """One bench for all tests of a module, so that its board is flashed once."""
    return Place(tmp_path_factory.mktemp("bench"))


PLAN = """\
plan: {name}
requires: {requires}
firmware: {{variant: {variant}}}
npu: {{first_token: 1 ms}}
inference: {{requests: {requests}{patience}, warmup: 5, infer_tokens: 1, load: {{closed: {{in_flight: 1}}}}}}
impairment: {impairment}
flows:
  requests: {{from: jetson, to: board, udp.dstport: 5005, protocol: token-v2}}
  answers: {{from: board, to: jetson, udp.srcport: 5005, protocol: token-v2}}
checks:
  answer-time:
    response_time: {{request: requests, response: answers, to: last}}
    limits: {limits}
  no-loss:
    loss: {{of: requests, answered_by: answers}}
    limits: {{count: {{max: 0}}}}
"""

PlanWriter = Callable[..., Path]


@pytest.fixture
def write_plan(tmp_path: Path) -> PlanWriter:
    """Write `NAME.plan.yaml` with the given parts and return its path. `requests` may go on with `, timeout: …`."""

    def write(
        name: str,
        limits: str = "{p50: {max: 1 s}}",
        requires: str = "[]",
        variant: str = "zero_copy",
        impairment: str = "[]",
        requests: int | str = 60,
    ) -> Path:
        # On a busy host an answer may take seconds: with so much patience only what never comes is lost.
        patience = "" if "timeout:" in str(requests) else ", timeout: 20 s"
        path = tmp_path / f"{name}.plan.yaml"
        path.write_text(
            PLAN.format(
                name=name,
                limits=limits,
                requires=requires,
                variant=variant,
                impairment=impairment,
                requests=requests,
                patience=patience,
            )
        )
        return path

    return write
