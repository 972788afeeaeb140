"""The rig's own machine: Python and its packages, tools, disk, processor."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final, Literal

from rig.bench.checks import Finding, Site, fail, listed, ok, skipped, warn
from rig.bench.model import Command
from rig.bench.nic import governors

LEAST_PYTHON: Final = (3, 11)
LEAST_DISK: Final = 256 << 20
"""Bytes that one run may need."""
AMPLE_DISK: Final = 2 << 30
"""Bytes that a night of runs may need."""


# --- Python -----------------------------------------------------------------------------------------------------------


def python(site: Site) -> Finding:
    return judge_python(sys.version_info[:3], sys.executable)


def judge_python(version: tuple[int, ...], executable: str) -> Finding:
    found = f"{'.'.join(map(str, version))} ({executable})"
    if version[:2] < LEAST_PYTHON:
        return fail(f"{found}, too old", "sudo apt-get install python3 python3-venv (3.11 or later), then ./bench true")
    return ok(found)


def packages(site: Site) -> Finding:
    lock = site.root / "requirements.lock"
    if not lock.is_file():
        return skipped("requirements.lock, which only a source checkout has")
    wanted = parse_lock(lock.read_text(encoding="utf-8"))
    return judge_packages(wanted, {name: _installed(name) for name in wanted})


def parse_lock(text: str) -> dict[str, str]:
    """Package → version from the lines `name==version` of a pip requirements file; those with markers are left out."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)[ \t]*\\?$", text, re.MULTILINE))


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def judge_packages(wanted: Mapping[str, str], installed: Mapping[str, str | None]) -> Finding:
    missing = [name for name in wanted if installed.get(name) is None]
    other = [
        f"{name} {installed[name]} (locked: {wanted[name]})" for name in wanted if installed.get(name) != wanted[name]
    ]
    fix = "./bench true, or: python -m pip install --require-hashes -r requirements.lock"
    if missing:
        return fail(f"missing: {listed(missing)}", fix)
    if other:
        return warn(f"not as locked: {listed(other)}", fix)
    return ok(f"{len(wanted)} packages as in requirements.lock")


# --- tools ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tool:
    """A program, the package that brings it, and what is lost without it. vital: no run works without it."""

    name: str
    version: tuple[str, ...]
    package: str
    use: str
    vital: bool = True


TOOLS: Final = (
    Tool("dumpcap", ("dumpcap", "--version"), "tshark", "captures"),
    Tool("tshark", ("tshark", "--version"), "tshark", "display filters and Wireshark fields of plans", vital=False),
    Tool("ip", ("ip", "-V"), "iproute2", "finds the interfaces"),
    Tool("ethtool", ("ethtool", "--version"), "ethtool", "reads and sets NICs", vital=False),
)
EMULATION_TOOLS: Final = (
    Tool("qemu-system-arm", ("qemu-system-arm", "--version"), "qemu-system-arm", "emulates the board"),
    Tool("sshd", ("sshd", "-V"), "openssh-server", "is the emulated Jetson's"),
)


def tools(site: Site) -> Finding:
    wanted = TOOLS + (EMULATION_TOOLS if site.file.emulation else ())
    return judge_tools([(tool, _version_of(site, tool)) for tool in wanted])


def _version_of(site: Site, tool: Tool) -> str | None:
    # sshd wants its absolute path to say anything but its version, and prints that to stderr with status 1.
    done = site.run(*tool.version)
    return None if done is None else parse_version(done.stdout + done.stderr)


def parse_version(output: bytes) -> str:
    """The first version number that a program prints about itself; empty when there is none."""
    match = re.search(rb"(?<![\w.])v?(\d+(?:\.\d+)+(?:p\d+)?)", output.replace(b"OpenSSH_", b"OpenSSH "))
    match = match or re.search(rb"version (\d+)", output) or re.search(rb"iproute2-([^\s,]+)", output)
    return match[1].decode() if match else ""


def judge_tools(seen: Sequence[tuple[Tool, str | None]]) -> Finding:
    missing = [tool for tool, version in seen if version is None]
    if missing:
        text = listed([f"{tool.name} ({tool.use})" for tool in missing])
        packages_ = " ".join(dict.fromkeys(tool.package for tool in missing))
        fix = f"sudo apt-get install --no-install-recommends {packages_}"
        return (fail if any(tool.vital for tool in missing) else warn)(f"missing: {text}", fix)
    return ok(", ".join(f"{tool.name} {version}".strip() for tool, version in seen))


def firmware(site: Site) -> Finding:
    build = site.root / "firmware" / "build"
    variants = sorted(path.parent.name for path in build.glob("*/app.bin"))
    return judge_firmware(variants, (build / "rom.elf").exists(), emulated=site.file.emulation is not None)


def judge_firmware(variants: Sequence[str], rom: bool, *, emulated: bool) -> Finding:
    if emulated and not rom:
        return fail("the emulated board's boot ROM is not built", "make -C firmware")
    if not variants:
        return warn("no variant is built; runs need --firmware IMAGE", "make -C firmware")
    return ok(f"variants {', '.join(variants)}")


def lab_commands(site: Site) -> Finding:
    board = site.file.board
    if board is None:
        return skipped("a hardware bench")
    named = {
        "flash.command": board.flash.command,
        "flash.read": board.flash.read,
        **{
            f"{line}.{way}": getattr(getattr(board, line), way)
            for line in ("reset", "boot", "power")
            for way in ("on", "off")
        },
    }
    given = {key: command for key, command in named.items() if isinstance(command, Command)}
    return judge_commands({key: (one.command[0], program_state(one.command[0])) for key, one in given.items()})


ProgramState = Literal["ok", "missing", "not executable"]


def program_state(program: str) -> ProgramState:
    """Whether this user could run `program`, found as execvp(3) finds it. It is not run."""
    if shutil.which(program) is not None:
        return "ok"
    return "not executable" if "/" in program and Path(program).is_file() else "missing"


def judge_commands(programs: Mapping[str, tuple[str, ProgramState]]) -> Finding:
    """programs: key below `board` → program and its state."""
    unusable: dict[tuple[str, ProgramState], list[str]] = {}
    for key, (program, state) in programs.items():
        if state != "ok":
            unusable.setdefault((program, state), []).append(f"board.{key}")
    if unusable:
        found = [f"`{program}` ({listed(keys)}) is {state}" for (program, state), keys in unusable.items()]
        fixes = [
            f"chmod +x {shlex.quote(program)}"
            if state == "not executable"
            else f"install {program}, or give its full path in the bench file"
            for program, state in unusable
        ]
        return fail("; ".join(found), "; ".join(fixes))
    if not programs:
        return ok("the bench file names no programs of the lab")
    return ok(", ".join(dict.fromkeys(program for program, _ in programs.values())))


# --- disk, processor --------------------------------------------------------------------------------------------------


def disk(site: Site) -> Finding:
    folder = site.records
    while not folder.exists():
        folder = folder.parent
    return judge_disk(shutil.disk_usage(folder).free, site.records, writable=os.access(folder, os.W_OK | os.X_OK))


def judge_disk(free: int, folder: Path, *, writable: bool = True) -> Finding:
    if not writable:
        return fail(f"this user may not write records to {folder}", "choose another folder with --record-dir")
    found = f"{free / (1 << 30):.1f} GiB free for records in {folder}"
    fix = f"du -sh {folder}/* | sort -h, and remove old sets; or choose another folder with --record-dir"
    if free < LEAST_DISK:
        return fail(f"{found}; a run wants {LEAST_DISK >> 20} MiB", fix)
    return warn(found, fix) if free < AMPLE_DISK else ok(found)


def governor(site: Site) -> Finding:
    return judge_governor(governors())


def judge_governor(seen: Mapping[str, int]) -> Finding:
    if not seen:
        return ok("this machine has no frequency scaling that it could show")
    found = ", ".join(sorted(seen))
    if set(seen) != {"performance"}:
        fix = "echo performance | sudo tee /sys/devices/system/cpu/cpufreq/policy*/scaling_governor"
        return warn(f"{found}: a core that slept stamps late", fix)
    return ok(found)
