"""Versions of what a run stands on, for its record: Python, packages, programs."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from importlib import metadata
from typing import Final

from rig.bench.checks.machine import parse_version

PACKAGES: Final = ("numpy", "paramiko", "pydantic", "pyserial", "pyyaml")
PROGRAMS: Final = ("dumpcap", "ethtool")
EMULATOR: Final = "qemu-system-arm"


@cache
def tool_versions(emulated: bool) -> dict[str, str]:
    """Name → version on the rig's own machine; what is not installed is left out. Asked once per process.

    emulated: the emulator of the board is one of them.
    """
    programs = (*PROGRAMS, EMULATOR) if emulated else PROGRAMS
    # All at once: each takes some milliseconds to say it.
    started = {name: process for name in programs if (process := _start(name)) is not None}
    said = {name: parse_version(process.communicate()[0]) for name, process in started.items()}
    return {"python": platform.python_version(), **_packages(), **said}


def _packages() -> dict[str, str]:
    return {name: metadata.version(name) for name in PACKAGES}


def _start(program: str) -> subprocess.Popen[bytes] | None:
    try:
        return subprocess.Popen(
            [program, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return None
