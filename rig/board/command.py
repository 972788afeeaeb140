"""Runs a program that the bench file names (vendor programmer, PDU, USB hub): argument list, no shell, own deadline."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping

from rig.bench.model import Command
from rig.board.events import printable
from rig.deadline import Deadline
from rig.errors import BoardError

OUTPUT_SHOWN = 64 << 10
"""Bytes of a program's output that reach the log, counted from its end."""

_PLACEHOLDER = re.compile(r"\{(port|image|address)\}")


def run_command(command: Command, values: Mapping[str, str], deadline: Deadline, note: Callable[[str], None]) -> None:
    """Run `command` with its placeholders replaced by `values`; both outputs go to `note`, line by line.

    The earlier of the phase's and the command's own deadline kills it and all that it started. Raises BoardError on a
    non-zero exit status, a missing program, a placeholder without a value, or lateness.
    """
    argv = [_fill(argument, values) for argument in command.command]
    until = deadline.at_most(command.deadline / 1e9)
    note(f"run {' '.join(argv)}")
    try:
        # A session of its own, so that the program's own children end with it.
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise BoardError(
            f"program `{argv[0]}` of the bench file does not exist", hint="install it, or give its full path"
        ) from error
    except PermissionError as error:
        raise BoardError(f"program `{argv[0]}` of the bench file is not executable", hint="chmod +x it") from error
    except OSError as error:
        raise BoardError(f"program `{argv[0]}` of the bench file cannot be started", seen=str(error)) from error
    try:
        output, _ = process.communicate(timeout=max(until.left(), 0.001))
    except subprocess.TimeoutExpired as error:
        last = _show(error.output or b"", note)
        raise BoardError(
            f"`{argv[0]}` did not end within {until.budget_s:g} s",
            seen=last,
            hint="try the command by hand; if it is only slow, raise its `deadline` in the bench file",
        ) from error
    finally:
        _end(process)
    last = _show(output, note)
    if process.returncode != 0:
        how = f"exit status {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
        raise BoardError(f"`{argv[0]}` failed with {how}", seen=last, hint="its whole output is in board.log")


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _fill(argument: str, values: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            usable = ", ".join(f"{{{name}}}" for name in values) or "no placeholder"
            raise BoardError(f"`{argument}` in the bench file: this command can use {usable}, not {match[0]}")
        return values[match[1]]

    return _PLACEHOLDER.sub(value, argument)


def _show(output: bytes, note: Callable[[str], None]) -> str | None:
    lines = [printable(line.rstrip(b"\r")) for line in output[-OUTPUT_SHOWN:].split(b"\n") if line.strip()]
    for line in lines:
        note(f"| {line}")
    return lines[-1] if lines else None
