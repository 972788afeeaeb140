"""Who has a serial port open, as far as /proc tells: descriptors and locks.

Reference: proc(5), proc_locks(5), flock(2).
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from pathlib import Path


def holders(node: str) -> list[str]:
    """Who has a device node open, as `pid 123 (minicom -D /dev/ttyUSB0)`; this process's own descriptors are left out.

    Descriptors of other users are visible to root only, their locks (proc_locks(5)) to everybody.
    """
    try:
        wanted = Path(node).stat()
    except OSError:
        return []
    pids = _lockers(wanted)
    for proc in Path("/proc").iterdir():
        if proc.name.isdigit():
            with contextlib.suppress(OSError):
                if any(_same_device(fd, wanted) for fd in (proc / "fd").iterdir()):
                    pids.add(int(proc.name))
    return [_process(pid) for pid in sorted(pids - {os.getpid()})]


def held_here(node: str) -> bool:
    """True when this process itself has the device node open."""
    with contextlib.suppress(OSError):
        wanted = Path(node).stat()
        return any(_same_device(fd, wanted) for fd in Path("/proc/self/fd").iterdir())
    return False


def _lockers(wanted: os.stat_result) -> set[int]:
    """Processes with a flock on a file. A lock's line: `1: FLOCK ADVISORY WRITE pid major:minor:inode start end`."""
    place = f"{os.major(wanted.st_dev):02x}:{os.minor(wanted.st_dev):02x}:{wanted.st_ino}"
    with contextlib.suppress(OSError):
        lines = [line.split() for line in Path("/proc/locks").read_text(encoding="ascii").splitlines()]
        # A pid of 0 or below is not visible from here (another PID namespace, a lock of the device itself).
        return {int(line[4]) for line in lines if line[1] == "FLOCK" and line[5] == place and int(line[4]) > 0}
    return set()


def _process(pid: int) -> str:
    """`pid 123 (minicom -D /dev/ttyUSB0)`, with its user where that is another one."""
    words, user = "?", ""
    with contextlib.suppress(OSError):
        proc = Path(f"/proc/{pid}")
        words = (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode("ascii", "backslashreplace").strip()[:80]
        uid = proc.stat().st_uid
        if uid != os.getuid():
            user = f" of user {_user(uid)}"
    return f"pid {pid}{user} ({words or '?'})"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _same_device(fd: Path, wanted: os.stat_result) -> bool:
    with contextlib.suppress(OSError):
        seen = fd.stat()
        return stat.S_ISCHR(seen.st_mode) and (seen.st_rdev, seen.st_dev) == (wanted.st_rdev, wanted.st_dev)
    return False
