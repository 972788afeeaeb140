"""What the board says on its console, as data: bytes into printable lines, lines into events. No port in sight.

The grammar is the firmware console's in docs/architecture.md; a foreign image is known by the bench file's `banner`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LINE_LIMIT = 4096
"""Bytes after which a line is cut, so that a board that never ends its line costs no memory."""

_BANNER = re.compile(r"rig-fw(?: [a-z_]+=\S*)+ ?$")
_FAULT = re.compile(r"FAULT (\S+)(?: (.*))?")
# A UART that is reset in mid-byte, or whose pins float for a moment, puts such bytes before the next line.
_GLITCH = re.compile(r"^(?:\\x[0-9a-f]{2})+")
# Tab stays; every other byte outside printable ASCII is shown as \xNN, so a log cannot drive a terminal or a browser.
_PRINTABLE = {code: f"\\x{code:02x}" for code in (*range(9), *range(10, 32), *range(127, 256))}


@dataclass(frozen=True)
class Line:
    """One console line. index counts from 0 over the session; t_ns CLOCK_MONOTONIC and wall_ns epoch of its end."""

    index: int
    t_ns: int
    wall_ns: int
    text: str


@dataclass(frozen=True)
class Event:
    """Base of what a line can mean."""

    line: Line


@dataclass(frozen=True)
class Boot(Event):
    """The banner. `fields` holds its key=value pairs (or the named groups of the bench's own banner pattern)."""

    fields: dict[str, str] = field(default_factory=dict)

    @property
    def build(self) -> str | None:
        """GNU build id in hex, None where the banner does not carry one."""
        return self.fields.get("build")

    @property
    def boot_id(self) -> str | None:
        return self.fields.get("boot_id")

    @property
    def reset(self) -> str | None:
        """`cold`, `pin`, `software`, or None."""
        return self.fields.get("reset")


@dataclass(frozen=True)
class Fault(Event):
    """`FAULT <kind> <detail>`: HardFault or assert; the firmware resets itself afterwards."""

    kind: str
    detail: str


@dataclass(frozen=True)
class Link(Event):
    """`link up` or `link down`."""

    up: bool


@dataclass(frozen=True)
class Ready(Event):
    """`ready`: the token service is bound."""


def parse_event(line: Line, banner: re.Pattern[str] | None = None) -> Event | None:
    """The event a line is, or None for any other text. `banner` replaces this project's own banner."""
    text = _GLITCH.sub("", line.text)
    if banner is not None:
        if match := banner.search(text):
            return Boot(line, {key: value for key, value in match.groupdict().items() if value is not None})
    elif match := _BANNER.search(text):
        return Boot(line, parse_fields(match[0]))
    if match := _FAULT.fullmatch(text):
        return Fault(line, match[1], match[2] or "")
    if text in ("link up", "link down"):
        return Link(line, text == "link up")
    return Ready(line) if text == "ready" else None


def parse_fields(text: str) -> dict[str, str]:
    """`a=1 b=2` → {"a": "1", "b": "2"}; words without `=` are skipped, the first of equal keys counts."""
    fields: dict[str, str] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if equals:
            fields.setdefault(key, value)
    return fields


def printable(raw: bytes) -> str:
    """Bytes as one printable ASCII line."""
    return raw.decode("latin-1").translate(_PRINTABLE)


class LineAssembler:
    """Bytes in, whole lines out (without their end), printable and never longer than LINE_LIMIT bytes."""

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, data: bytes) -> list[str]:
        *whole, self._partial = (self._partial + data).split(b"\n")
        lines = []
        for raw in whole:
            lines += self._cut(raw.rstrip(b"\r"))
        while len(self._partial) > LINE_LIMIT:
            lines.append(printable(self._partial[:LINE_LIMIT]))
            self._partial = self._partial[LINE_LIMIT:]
        return lines

    def flush(self) -> list[str]:
        """What is left of a line that never ended."""
        rest, self._partial = self._partial.rstrip(b"\r"), b""
        return self._cut(rest) if rest else []

    @staticmethod
    def _cut(raw: bytes) -> list[str]:
        return [printable(raw[at : at + LINE_LIMIT]) for at in range(0, max(len(raw), 1), LINE_LIMIT)]
