"""Runs one program of the bench file and ends all that it started, however it, or the controller, comes to its end.

A script of its own, started as `python -I -S keeper.py FD PROGRAM ARGUMENT…`. FD is one end of a socket pair whose
other end only the controller holds. What came of the program is sent there as one line (`exit N`, `signal N`,
`missing`, `forbidden`, `failed <why>`); its closing means that the controller gave up or is dead, by SIGKILL too.

Reference: prctl(2) PR_SET_CHILD_SUBREAPER (what the program leaves behind becomes ours, also from a session of its
own) and PR_SET_PDEATHSIG (the program dies with this keeper), pidfd_open(2), proc_pid_task(5) `children`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_libc = ctypes.CDLL(None)


def main(fd: int, argv: list[str]) -> None:
    """Run `argv` until it ends or the far end of `fd` closes; nothing of it is left when this returns."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with socket.socket(fileno=fd) as controller:
        controller.set_inheritable(False)
        answer = _run(argv, controller)
        end_descendants()
        with contextlib.suppress(OSError):
            controller.sendall(answer.encode(errors="replace"))


def _run(argv: list[str], controller: socket.socket) -> str:
    try:
        program = subprocess.Popen(argv, start_new_session=True, preexec_fn=_die_with_keeper)
    except FileNotFoundError:
        return "missing"
    except PermissionError:
        return "forbidden"
    except (OSError, subprocess.SubprocessError) as error:
        return f"failed {error}"
    pidfd = os.pidfd_open(program.pid)
    ready, _, _ = select.select([pidfd, controller.fileno()], [], [])
    os.close(pidfd)
    if pidfd not in ready:
        return "ended"
    status = program.wait()
    return f"exit {status}" if status >= 0 else f"signal {-status}"


def _die_with_keeper() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def end_descendants() -> None:
    """Kill and reap children until none is left; orphans of the killed come to us and take their turn."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while True:
        for pid in children.read_text().split():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
