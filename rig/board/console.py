"""The board's console: every line stamped and logged as it arrives, waits that sleep on an event, commands answered.

A thread reads the port and appends to `board.log` (`<seconds.nanoseconds since run start> <line>`; lines that begin
with `# ` are the rig's own notes). While the port speaks another protocol (a boot ROM), `suspended()` lends it out.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from rig.board.events import Boot, Event, Line, LineAssembler, parse_event
from rig.board.report import BoardSilentError
from rig.board.serial_port import SerialPort
from rig.deadline import Deadline
from rig.errors import BoardError, InternalError
from rig.record import no_room

KEPT_LINES = 20_000
"""Lines kept in memory; the log has them all."""
LOG_LIMIT = 64 << 20
"""Bytes of board.log after which a board that never stops talking is cut off, with a note."""

T = TypeVar("T")


class ConsoleSilentError(BoardSilentError):
    """The console did not say what was waited for."""


class CommandRefusedError(BoardError):
    """The firmware answered a console command with `error: …`."""


class Console:
    """Owns the reading side of a SerialPort between `start()` and `close()`.

    log: the file that is appended to. start_ns: CLOCK_MONOTONIC of the run's start, zero of the log's stamps.
    banner: how a foreign image announces itself; None means this project's banner.
    """

    def __init__(self, port: SerialPort, log: Path, start_ns: int, banner: str | None = None) -> None:
        self.port = port
        self._start_ns = start_ns
        try:
            self._banner = re.compile(banner) if banner else None
        except re.error as error:
            raise BoardError(
                f"`banner: {banner}` in the bench file is no regular expression", seen=str(error)
            ) from error
        try:
            # Line-buffered, so that a killed controller leaves every line that it saw.
            self._log = log.open("a", encoding="ascii", buffering=1)
        except OSError as error:
            raise no_room(log, error) from error
        self._logged = 0
        self._log_error: InternalError | None = None
        self._lines: deque[tuple[Line, Event | None]] = deque(maxlen=KEPT_LINES)
        self._count = 0
        self._news = threading.Condition()
        self._assembler = LineAssembler()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._error: BoardError | None = None
        self._commanding = threading.Lock()

    # --- the reader --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read."""
        if self._thread is None:
            self._stop.clear()
            self._error = None
            self._thread = threading.Thread(target=self._read, name="board-console", daemon=True)
            self._thread.start()

    def _read(self) -> None:
        try:
            while not self._stop.is_set():
                if data := self.port.read_some():
                    self.feed(data)
        except BoardError as error:
            with self._news:
                self._error = error
                self._news.notify_all()

    def _pause(self) -> None:
        if self._thread is not None:
            self._stop.set()
            self.port.cancel_read()
            self._thread.join()
            self._thread = None

    @contextlib.contextmanager
    def suspended(self) -> Iterator[SerialPort]:
        """Lend the port out; reading goes on afterwards."""
        self._pause()
        try:
            yield self.port
        finally:
            self.start()

    @property
    def reading(self) -> bool:
        """True between `start` and `close`, unless the port is lent out."""
        return self._thread is not None

    @property
    def lost(self) -> bool:
        """True when the reader ended because the port went away."""
        return self._error is not None

    def replace_port(self, port: SerialPort) -> None:
        """Go on with another port, reading if it was read before: the board's came back, perhaps under a new name."""
        reading = self.reading
        self._pause()
        self.port = port
        if reading:
            self.start()

    def feed(self, data: bytes) -> None:
        """Bytes that arrived, from the reader or from whoever borrowed the port and found console text on it."""
        t_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        with self._news:
            for text in self._assembler.feed(data):
                self._append(t_ns, wall_ns, text)
            self._news.notify_all()

    def _append(self, t_ns: int, wall_ns: int, text: str) -> None:
        line = Line(self._count, t_ns, wall_ns, text)
        self._count += 1
        self._lines.append((line, parse_event(line, self._banner)))
        self._write_log(t_ns, text)

    def _write_log(self, t_ns: int, text: str) -> None:
        if self._logged >= LOG_LIMIT or self._log_error is not None or self._log.closed:
            return
        since = max(0, t_ns - self._start_ns)
        try:
            self._logged += self._log.write(f"{since // 10**9}.{since % 10**9:09d} {text}\n")
            if self._logged >= LOG_LIMIT:
                self._log.write(f"# rig: log limit of {LOG_LIMIT >> 20} MiB reached, the rest is not kept\n")
        except OSError as error:
            self._log_error = no_room(Path(self._log.name), error)
            self._news.notify_all()

    def cut_line(self) -> int:
        """End a half-received line here (the board was reset in the middle of it); returns the mark after it."""
        with self._news:
            for text in self._assembler.flush():
                self._append(time.monotonic_ns(), time.time_ns(), text)
            return self._count

    def note(self, text: str) -> None:
        """Put a line of the rig's own on the log's time line. Never raises; the next wait tells of a full disk."""
        safe = text.encode("ascii", "backslashreplace").decode().replace("\n", "\\n").replace("\r", "\\r")
        with self._news:
            self._write_log(time.monotonic_ns(), f"# rig: {safe}")

    def close(self) -> None:
        """Stop reading; log what is left of an unfinished line. The port stays open. Never raises."""
        self._pause()
        self.cut_line()
        with self._news, contextlib.suppress(OSError):
            self._log.close()

    # --- looking and waiting -----------------------------------------------------------------------------------------

    def mark(self) -> int:
        """The index of the next line: a point to wait from."""
        with self._news:
            return self._count

    def lines(self, since: int = 0) -> list[Line]:
        """Lines from `since` on, as far as memory holds them."""
        with self._news:
            return [line for line, _ in self._from(since)]

    def events(self, since: int = 0) -> list[Event]:
        """Events from `since` on, as far as memory holds them."""
        with self._news:
            return [event for _, event in self._from(since) if event is not None]

    def last_line(self) -> str | None:
        with self._news:
            return self._lines[-1][0].text if self._lines else None

    def _from(self, since: int) -> list[tuple[Line, Event | None]]:
        oldest = self._count - len(self._lines)
        skip = max(0, since - oldest)
        return [self._lines[at] for at in range(skip, len(self._lines))]

    def wait_for(
        self, what: str, match: Callable[[Line, Event | None], T | None], deadline: Deadline, since: int | None = None
    ) -> T:
        """The first non-None `match(line, event)` at or after `since` (default: from now on).

        what: how the thing is called in messages. Raises ConsoleSilentError at the deadline, BoardLostError if the
        port went, InternalError if the log cannot be written.
        """
        at = self.mark() if since is None else since
        wait_s = deadline.left()
        with self._news:
            while True:
                if self._log_error is not None:
                    raise self._log_error
                for line, event in self._from(at):
                    if (found := match(line, event)) is not None:
                        return found
                at = self._count
                if self._error is not None:
                    raise self._error
                if not self._news.wait(deadline.left()) and deadline.expired():
                    raise ConsoleSilentError(
                        f"no {what} from the board within {wait_s:.3g} s",
                        seen=self._lines[-1][0].text if self._lines else "not one line on the console",
                        hint="the rest of what the board said is in board.log",
                    )

    def wait_for_line(self, pattern: str, deadline: Deadline, since: int | None = None) -> re.Match[str]:
        """The match of a regular expression in the first line that has one."""
        regex = re.compile(pattern)
        return self.wait_for(f"line like `{pattern}`", lambda line, _: regex.search(line.text), deadline, since)

    def wait_for_event(self, kind: type[T], deadline: Deadline, since: int | None = None) -> T:
        """The first event of a kind (Boot, Fault, Link, Ready)."""
        return self.wait_for(
            kind.__name__.lower(), lambda _, event: event if isinstance(event, kind) else None, deadline, since
        )

    # --- commands ----------------------------------------------------------------------------------------------------

    def command(self, text: str, deadline: Deadline) -> list[str]:
        """Send one command; the lines of its answer without the final `ok`.

        Lines that come unasked (link changes, faults) are left out. Raises CommandRefusedError for `error: …`,
        ConsoleSilentError without an end, BoardError when the board restarted in the middle.
        """
        if not text.isprintable() or not text.isascii() or not text:
            raise BoardError(f"{text!r} cannot be sent as a console command", hint="one line of printable ASCII")
        answer: list[str] = []

        def take(line: Line, event: Event | None) -> str | None:
            if line.text == "ok" or line.text.startswith("error:"):
                return line.text
            if isinstance(event, Boot) and text != "info":
                raise BoardError(f"the board restarted while it answered `{text}`", seen=line.text)
            if (event is None or isinstance(event, Boot)) and line.text != text:
                answer.append(line.text)
            return None

        with self._commanding:
            since = self.mark()
            self.port.write(text.encode("ascii") + b"\n")
            end = self.wait_for(f"answer to `{text}`", take, deadline, since)
        if end != "ok":
            raise CommandRefusedError(f"the board refused `{text}`: {end.removeprefix('error:').strip()}", seen=end)
        return answer
