"""The rig's half of a capture on the Jetson: runs one program there, keeps what it writes, ends with its parent.

One self-contained file for Python 3.6 and later, standard library only. The rig uploads it and talks to it over SSH:

    keeper.py FOLDER PROGRAM [ARGUMENT...]

stdout: lines `@rig {"event": ...}`: kept (where the output is), started | refused, stderr (one line of the program),
fault, ended (with size and SHA-256 of the output). stdin: orders `signal N`, `alive`, `bye`.

The program's standard output goes through this process into FOLDER/<one per process>/output, so that the program ends
by itself (broken pipe) should this process be killed. End of file on stdin, or SILENCE_S without an order, ends the
program and removes the folder; what a killed keeper left is removed by the next one, told by the lock that it held.
"""

import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import IO, Any, Dict, List, Optional

SILENCE_S = 60.0  # without any order: the rig is gone and the connection has not noticed
GRACE_S = 2.0  # from SIGINT to SIGKILL once nobody is there any more
CLOCK_S = 0.25
ENDS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
MARK = "@rig "

_PR_SET_PDEATHSIG = 1  # linux/prctl.h; programs with file capabilities lose it at exec, hence the pipe
_libc = ctypes.CDLL(None)
_say_lock = threading.Lock()


def say(event: str, **fields: Any) -> None:
    """One line to the rig; nobody may be there to read it."""
    line = MARK + json.dumps(dict(fields, event=event), sort_keys=True) + "\n"
    with _say_lock:
        with contextlib.suppress(OSError):
            os.write(1, line.encode())


class Clock:
    """CLOCK_REALTIME against CLOCK_MONOTONIC, since the program's stamps are of the first and may step."""

    def __init__(self) -> None:
        self.samples: List[List[int]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._sample()
        self._thread.start()

    def summary(self) -> Dict[str, int]:
        self._ended.set()
        self._thread.join()
        self._sample()
        offsets = [offset for offset, _ in self.samples]
        steps = [later - earlier for earlier, later in zip(offsets, offsets[1:])]
        return {
            "offset_start_ns": offsets[0],
            "offset_end_ns": offsets[-1],
            "largest_step_ns": max(steps, key=abs),
            "reading_error_ns": max(took for _, took in self.samples),
            "samples": len(offsets),
        }

    def _sample(self) -> None:
        best = [0, 1 << 62]
        for _ in range(5):
            before = monotonic_ns()
            real = realtime_ns()
            took = monotonic_ns() - before
            if took < best[1]:
                best = [real - before - took // 2, took]
        self.samples.append(best)

    def _watch(self) -> None:
        while not self._ended.wait(CLOCK_S):
            self._sample()


# Python 3.6 has only the float clocks; their error stays below 1 us.
monotonic_ns = getattr(time, "monotonic_ns", None) or (lambda: int(time.monotonic() * 1e9))
realtime_ns = getattr(time, "time_ns", None) or (lambda: int(time.time() * 1e9))


class Keeper:
    """One program and what it writes."""

    def __init__(self, folder: str, command: List[str]) -> None:
        self._output = os.path.join(folder, "output")
        self._digest = hashlib.sha256()
        self._size = 0
        self._clock = Clock()
        with open(self._output, "xb"):
            pass
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(os.environ, PATH=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"),
            preexec_fn=die_with_parent,
            start_new_session=True,
        )
        self._clock.start()
        self._threads = [
            threading.Thread(target=self._keep, args=(self.process.stdout,), daemon=True),
            threading.Thread(target=self._relay_stderr, args=(self.process.stderr,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        threading.Thread(target=self._await_end, daemon=True).start()

    def serve(self) -> None:
        """Take orders until the rig says `bye`, goes away or falls silent."""
        rest = b""
        while True:
            readable, _, _ = select.select([0], [], [], SILENCE_S)
            if not readable:
                return
            data = os.read(0, 4096)
            if not data:
                return
            orders = (rest + data).split(b"\n")
            rest = orders.pop()
            for order in orders:
                words = order.decode("ascii", "replace").split()
                if words[:1] == ["bye"]:
                    return
                if words[:1] == ["signal"] and len(words) == 2 and words[1].isdigit():
                    self.signal(int(words[1]))

    def signal(self, signum: int) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signum)

    def end(self) -> None:
        """Nothing of the program is left when this returns."""
        for signum in (signal.SIGINT, signal.SIGKILL):
            self.signal(signum)
            try:
                self.process.wait(GRACE_S)
                return
            except subprocess.TimeoutExpired:
                continue

    def _keep(self, stream: IO[bytes]) -> None:
        fault = ""
        with open(self._output, "ab", buffering=0) as output:
            while True:
                block = os.read(stream.fileno(), 1 << 20)
                if not block:
                    break
                if fault:
                    continue
                try:
                    written = 0
                    while written < len(block):
                        written += output.write(block[written:]) or 0
                except OSError as error:
                    fault = "cannot keep the capture: %s" % error.strerror
                    say("fault", what=fault)
                    self.signal(signal.SIGTERM)
                self._digest.update(block[:written])
                self._size += written

    def _relay_stderr(self, stream: IO[bytes]) -> None:
        for line in stream:
            say("stderr", line=line.decode("utf-8", "replace").rstrip("\r\n"))

    def _await_end(self) -> None:
        status = self.process.wait()
        for thread in self._threads:
            thread.join()
        say(
            "ended",
            status=status,
            bytes=self._size,
            sha256=self._digest.hexdigest(),
            clock=self._clock.summary(),
        )


class Leave(Exception):  # noqa: N818 - an order, not an error
    """A signal asks this process to end."""


def leave(*_: Any) -> None:
    raise Leave


def die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def own_folder(base: str) -> str:
    """A new folder below `base`, locked for as long as this process lives; those of dead keepers are removed."""
    os.makedirs(base, mode=0o700, exist_ok=True)
    guard = os.open(os.path.join(base, "guard"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX)
        for name in os.listdir(base):
            if name != "guard":
                sweep(os.path.join(base, name))
        folder = os.path.join(base, "%d-%d" % (os.getpid(), realtime_ns()))
        os.mkdir(folder, 0o700)
        lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)  # never unlocked: the kernel does it when this process ends
        return folder
    finally:
        os.close(guard)


def sweep(folder: str) -> None:
    """Remove a folder whose keeper is dead, and end the program that it ran, if that still runs."""
    try:
        lock = os.open(os.path.join(folder, "lock"), os.O_RDWR)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        words = os.read(lock, 256).decode("ascii", "replace").split()
        if len(words) == 2 and words[0].isdigit() and process_start(int(words[0])) == words[1]:
            os.killpg(int(words[0]), signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        pass
    finally:
        os.close(lock)


def process_start(pid: int) -> Optional[str]:
    """Start time of a process in clock ticks since boot (proc(5), field 22), which tells a reused number apart."""
    try:
        with open("/proc/%d/stat" % pid) as stream:
            return stream.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def main(arguments: List[str]) -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    for signum in ENDS:
        signal.signal(signum, leave)
    folder, keeper = "", None
    try:
        try:
            folder = own_folder(arguments[0])
        except OSError as error:
            say("refused", what="%s: %s" % (error.filename, error.strerror), missing=False)
            return 1
        say("kept", output=os.path.join(folder, "output"))
        try:
            keeper = Keeper(folder, arguments[1:])
        except OSError as error:
            say("refused", what="%s: %s" % (arguments[1], error.strerror), missing=True)
            return 1
        with open(os.path.join(folder, "lock"), "w") as note:
            note.write("%d %s" % (keeper.process.pid, process_start(keeper.process.pid)))
        say("started", pid=keeper.process.pid)
        keeper.serve()
    except Leave:
        pass
    finally:
        for signum in ENDS:
            signal.signal(signum, signal.SIG_IGN)
        if keeper is not None:
            keeper.end()
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
