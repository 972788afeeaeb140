"""Runs a program that the bench file names (vendor programmer, PDU, USB hub): argument list, no shell, own deadline.

The program runs under a keeper (keeper.py), so that it and all that it started end with the command, with the
deadline, or with the controller, whatever ends that.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rig.bench.host import child_environment
from rig.bench.model import Command
from rig.board.events import LineAssembler
from rig.deadline import Deadline
from rig.errors import BoardError

OUTPUT_LOGGED = 64 << 10
"""Bytes of a program's output that reach the log; of what follows only the last line is kept, for messages."""
END_S = 5.0
"""How long a killed program may take to be gone; longer only when the kernel itself hangs in a driver."""

_KEEPER = Path(__file__).with_name("keeper.py")
_PLACEHOLDER = re.compile(r"\{(port|image|address|size)\}")


def run_command(command: Command, values: Mapping[str, str], deadline: Deadline, note: Callable[[str], None]) -> None:
    """Run `command` with its placeholders replaced by `values`; both outputs go to `note`, line by line as they come.

    The earlier of the phase's and the command's own deadline kills it and all that it started. Raises BoardError on a
    non-zero exit status, a missing program, a placeholder without a value, or lateness.
    """
    argv = [_fill(argument, values) for argument in command.command]
    own_s, phase_s = command.deadline / 1e9, deadline.left()
    until = deadline.at_most(own_s)
    note(f"run {' '.join(argv)}")
    output = _Output(note)
    how: str | None = None
    with _kept(argv) as (process, keeper):
        if _follow(process, until, output):
            how = keeper.recv(4096).decode(errors="replace")
    output.end()
    if how is None and until is deadline:
        raise BoardError(
            f"`{argv[0]}` was ended after {phase_s:.2g} s, with the {deadline.budget_s:g} s that the phase had",
            seen=output.last(),
            hint="board.log shows what took the time before it",
        )
    if how is None:
        raise BoardError(
            f"`{argv[0]}` did not end within its deadline of {own_s:g} s",
            seen=output.last(),
            hint="try the command by hand; if it is only slow, raise its `deadline` in the bench file",
        )
    _judge(argv[0], how, output.last())


@contextlib.contextmanager
def _kept(argv: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """The keeper's process and our end of the pair; on leaving, the program and all its descendants are gone."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_KEEPER), str(theirs.fileno()), *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=child_environment(),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C in the terminal is the controller's business
            )
        try:
            yield process, ours
        finally:
            ours.close()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _follow(process: subprocess.Popen[bytes], until: Deadline, output: _Output) -> bool:
    """Take output until the keeper has ended; False when the deadline came first."""
    assert process.stdout is not None
    assert process.stderr is not None
    names = {process.stdout.fileno(): "stdout", process.stderr.fileno(): "stderr"}
    while names:
        ready, _, _ = select.select([*names], [], [], until.left())
        if not ready or until.expired():
            return False
        for fd in ready:
            if data := os.read(fd, 65536):
                output.take(names[fd], data)
            else:
                del names[fd]
    return True


class _Output:
    """A program's output as lines for the log. A bare carriage return, as progress bars use it, ends a line too."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note, self._logged = note, 0
        self._lines = {"stdout": LineAssembler(), "stderr": LineAssembler()}
        self._last: dict[str, str] = {}

    def take(self, stream: str, data: bytes) -> None:
        self._show(stream, self._lines[stream].feed(data.replace(b"\r", b"\n")))

    def end(self) -> None:
        for stream, lines in self._lines.items():
            self._show(stream, lines.flush())

    def last(self) -> str | None:
        """What a person should see of a failure: the last complaint, else the last word."""
        return self._last.get("stderr") or self._last.get("stdout")

    def _show(self, stream: str, lines: list[str]) -> None:
        for line in lines:
            if not line.strip():
                continue
            self._last[stream] = line
            if self._logged < OUTPUT_LOGGED:
                self._note(f"| {line}")
                self._logged += len(line)
                if self._logged >= OUTPUT_LOGGED:
                    self._note(f"| (more than {OUTPUT_LOGGED >> 10} KiB of output, the rest is not kept)")


def _judge(program: str, how: str, last: str | None) -> None:
    if how == "exit 0":
        return
    if how == "missing":
        raise BoardError(f"program `{program}` of the bench file does not exist", hint="install it, or give its path")
    if how == "forbidden":
        raise BoardError(f"program `{program}` of the bench file is not executable", hint="chmod +x it")
    if how.startswith("failed "):
        raise BoardError(f"program `{program}` of the bench file cannot be started", seen=how.removeprefix("failed "))
    status = how.replace("exit ", "exit status ") or "its keeper being killed"
    raise BoardError(f"`{program}` failed with {status}", seen=last, hint="its whole output is in board.log")


def _fill(argument: str, values: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            usable = ", ".join(f"{{{name}}}" for name in values) or "no placeholder"
            raise BoardError(f"`{argument}` in the bench file: this command can use {usable}, not {match[0]}")
        return values[match[1]]

    return _PLACEHOLDER.sub(value, argument)
