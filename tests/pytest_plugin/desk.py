"""A folder of plans and tests on which pytest runs as a user runs it, with a stub in place of bench and run."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import IO

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

PLAN = """\
plan: {name}
{extra}
firmware: {{variant: zero_copy}}
inference: {{requests: 60}}
flows:
  requests: {{from: jetson, to: board, udp.dstport: 5005, protocol: token-v2}}
  answers: {{from: board, to: jetson, udp.srcport: 5005, protocol: token-v2}}
checks:
  answer-time:
    response_time: {{request: requests, response: answers}}
    limits: {{p50: {{max: 1 s}}}}
  no-loss:
    loss: {{of: requests, answered_by: answers}}
    limits: {{count: {{max: 0}}}}
"""
MATRIX = "matrix: {firmware.variant: [copy, zero_copy]}"


@dataclass(frozen=True)
class Outcome:
    """How a pytest run ended. runs: a line `worker bench instance set title` per run that was made."""

    status: int
    text: str
    runs: list[list[str]]

    @property
    def titles(self) -> list[str]:
        return [run[-1] for run in self.runs]


@dataclass(frozen=True)
class Desk:
    """A user's folder."""

    folder: Path

    def plan(self, name: str, extra: str = "") -> Path:
        path = self.folder / f"{name}.plan.yaml"
        path.write_text(PLAN.format(name=name, extra=extra))
        return path

    def test(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def command(self, *arguments: str | Path) -> list[str]:
        xdist = ["-p", "xdist"] if "-n" in arguments else []
        folders = [f"--record-dir={self.folder / 'records'}", f"--rootdir={self.folder}"]
        own = ["-p", "rig.pytest_plugin", *xdist, "--strict-markers", "-ra", *folders]
        return [sys.executable, "-m", "pytest", *own, *map(str, arguments)]

    def environment(self, **more: str) -> dict[str, str]:
        # pytest prints more where it finds CI in its environment.
        ours = ("PYTEST_", "RIG_", "COV_", "CI", "BUILD_NUMBER")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
        kept["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # what else is installed is no part of this, and takes time
        own = {"PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}", "COLUMNS": "120", "STUB_LOG": str(self.folder / "stub.log")}
        return kept | own | more

    def rig(self, *arguments: str | Path, stdout: int | IO[bytes] = subprocess.PIPE, before: str = "pass") -> Outcome:
        """Run `rig` here, on the stub. before: Python to be run first."""
        main = f"import sys, stub_campaign, rig.cli; {before}; sys.exit(rig.cli.main(sys.argv[1:]))"
        return self._run([sys.executable, "-c", main, *map(str, arguments)], {}, stdout)

    def pytest(self, *arguments: str | Path, stub: bool = True, **environment: str) -> Outcome:
        """Run pytest here; without `stub` nothing stands in for the bench."""
        return self._run(self.command(*(["-p", "stub_campaign"] if stub else []), *arguments), environment)

    def _run(
        self, command: list[str], environment: dict[str, str], stdout: int | IO[bytes] = subprocess.PIPE
    ) -> Outcome:
        (self.folder / "stub.log").write_text("")
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment(**environment),
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
            check=False,
        )
        runs = [line.split() for line in (self.folder / "stub.log").read_text().splitlines()]
        return Outcome(done.returncode, (done.stdout or "") + done.stderr, runs)


def cases(xml: Path) -> dict[str, ET.Element]:
    """`plan::check` or test name → its testcase."""
    found = {}
    for case in ET.parse(xml).getroot().iter("testcase"):
        plan = case.get("classname", "").partition(".plan.yaml.")[2]
        found[f"{plan}::{case.get('name')}" if plan else case.get("name", "")] = case
    return found


def kind_of(case: ET.Element) -> str:
    """`failure`, `error`, `skipped` or `passed`."""
    return next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")


def properties_of(case: ET.Element) -> dict[str, str | None]:
    return {str(one.get("name")): one.get("value") for one in case.iter("property")}
