"""The firmware's RAM ring as the console drains it: `t <ns> <event> k=v …` lines, then `dropped=<n>`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rig.board.events import parse_fields


@dataclass(frozen=True)
class TelemetryEvent:
    """t_ns: the board's monotonic clock. values: integers where they are some, else text."""

    t_ns: int
    event: str
    values: dict[str, int | str]


@dataclass(frozen=True)
class Telemetry:
    """events in the ring's order; dropped: events that the full ring lost; unreadable: lines that are neither."""

    events: tuple[TelemetryEvent, ...]
    dropped: int
    unreadable: tuple[str, ...]


def parse_telemetry(lines: Iterable[str]) -> Telemetry:
    """Lines of the command `telemetry`, without its final `ok`. A damaged line costs that line only."""
    events: list[TelemetryEvent] = []
    unreadable: list[str] = []
    dropped = 0
    for line in lines:
        words = line.split(maxsplit=3)
        if line.startswith("dropped=") and line[8:].isdecimal():
            dropped += int(line[8:])
        elif len(words) >= 3 and words[0] == "t" and words[1].isdecimal():
            fields = parse_fields(words[3]) if len(words) > 3 else {}
            events.append(
                TelemetryEvent(int(words[1]), words[2], {key: _number(value) for key, value in fields.items()})
            )
        else:
            unreadable.append(line)
    return Telemetry(tuple(events), dropped, tuple(unreadable))


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.removeprefix("-").isdecimal() else text
