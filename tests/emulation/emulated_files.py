"""Bench files and log-ins that the tests of this room use."""

from __future__ import annotations

import subprocess
from pathlib import Path

from rig.bench.model import BenchFile, Emulation, Uncertainty
from rig.deadline import Deadline
from rig.emulation.bench import EmulatedBench

ROOT = Path(__file__).resolve().parents[2]


def bench_file(name: str = "under-test", emulation: Emulation | None = None) -> BenchFile:
    return BenchFile(
        bench=name,
        profile="emulated",
        uncertainty=Uncertainty.model_validate({"declared": "50 us"}),
        emulation=emulation or Emulation(),
    )


def on_jetson(bench: EmulatedBench, command: str, known_hosts: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a shell command on the Jetson with OpenSSH's client, started on the rig's side, the host key pinned."""
    jetson = bench.bench.jetson
    known_hosts.write_text(f"[{jetson.host}]:{jetson.port} {jetson.host_key}\n")
    options = [f"UserKnownHostsFile={known_hosts}", "StrictHostKeyChecking=yes", "BatchMode=yes", "IdentitiesOnly=yes"]
    argv = ["ssh", "-F", "none", *(part for option in options for part in ("-o", option))]
    argv += ["-i", str(jetson.key), "-p", str(jetson.port), f"{jetson.user}@{jetson.host}", command]
    return bench.host.run(argv, Deadline.after(20))
