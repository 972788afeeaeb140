"""The firmware's unit tests in C, run on this machine under address and undefined-behaviour sanitizers.

`make -C firmware test` runs the same programs.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAMS = {
    "test_an3155": "test_an3155.c",
    "test_flash": "test_flash.c",
    "test_token_codec": "test_token_codec.c",
    "test_identity": "test_identity.c",
    "test_npu_scripted": "test_npu_scripted.c",
    "test_tx_ring": "test_tx_ring.c",
    "test_command": "test_command.c",
    "test_token_service_copy": "test_token_service.c",
    "test_token_service_zero_copy": "test_token_service.c",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_host_program_passes(program: str, firmware: Path, make: Callable[..., Path]) -> None:
    build = make(f"build/host/{program}")
    done = subprocess.run([build / "host" / program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]

    source = (firmware / "tests" / PROGRAMS[program]).read_text()
    if program != "test_token_service_zero_copy":
        source = re.sub(r"^#if ZERO_COPY\n.*?^#endif\n", "", source, flags=re.M | re.S)
    defined = re.findall(r"^static void (test_\w+)\(void\)", source, re.M)
    ran = [line.removeprefix("ok ") for line in done.stdout.splitlines()]
    assert ran == defined, "a test was written but does not run"


def test_no_host_program_is_forgotten(firmware: Path) -> None:
    assert set(PROGRAMS.values()) == {path.name for path in (firmware / "tests").glob("test_*.c")}
    makefile = (firmware / "Makefile").read_text()
    assert all(f"$(HOST)/{program}:" in makefile for program in PROGRAMS)
