"""One time line of everything that spoke: the rig's phases, the board's console and RAM ring, the Jetson, packets.

All times are put on the capture's clock. The console's stamps count from the run's start on the rig (good to about a
millisecond); the Jetson's are moved so that the fastest request leaves when it was captured; the board's likewise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rig.timing.metrics.measurement import INFINITE_NS
from rig.triage.broken import said, worst_packets
from rig.triage.side_files import is_number

if TYPE_CHECKING:
    from rig.triage.case import Case

LANES: Final = ("rig", "board console", "board telemetry", "jetson", "packets")
TOLD: Final = ("board console", "board telemetry")
"""Lanes of which all but routine is worth reading at once."""
_TROUBLES: Final = {"timeout", "send-error", "receive-error", "error", "malformed"}
_ROUTINE: Final = {"spec", "clock", "scheduling", "offloads", "nic", "answer-sentinel"}
MOST: Final = 400
"""Events per lane; of more the first and last are shown."""


@dataclass(frozen=True)
class Event:
    """t_ns: from the first frame of the capture, negative before it. level: `routine`, `info`, `notice` or `bad`."""

    t_ns: int
    lane: str
    text: str
    level: str = "info"
    frame: int = 0


def timeline(case: Case) -> tuple[Event, ...]:
    """The events of a case, in order of time."""
    events = [*_packets(case)]
    start_ns = case.run_start_ns
    if case.info is not None and start_ns is not None:
        events += _rig(case, start_ns)
        events += [*_console(case, start_ns)]
        events += _bounded([*_jetson(case)])
        events += _bounded([*_telemetry(case)])
    return tuple(sorted(events, key=lambda event: event.t_ns))


def _rig(case: Case, start_ns: int) -> list[Event]:
    assert case.info is not None
    return [
        Event(
            start_ns + phase.start_ns,
            "rig",
            f"{phase.name} ({phase.duration_ns / 1e9:.2f} s, {phase.outcome})" + (f": {phase.note}" * bool(phase.note)),
            "bad" if phase.outcome == "failed" else "info",
        )
        for phase in case.info.phases
    ]


def _console(case: Case, start_ns: int) -> Iterator[Event]:
    lines = case.board_lines
    shown = lines if len(lines) <= MOST else (*lines[: MOST // 2], *lines[-MOST // 2 :])
    for at_ns, text in shown:
        if text.startswith(("counter ", "t ", "dropped=")) or text in ("", "ok"):
            continue
        bad = "FAULT" in text or "assert" in text or "error" in text
        notice = text.startswith(("rig-fw", "link ")) or text.startswith("# ")
        yield Event(start_ns + at_ns, "board console", text[:300], "bad" if bad else "notice" if notice else "info")


def _jetson(case: Case) -> Iterator[Event]:
    offset = jetson_offset(case)
    if offset is None:
        return
    for event in case.jetson_log.others:
        kind = event["event"]
        routine = kind in _ROUTINE or (kind == "sentinel" and event.get("kind") == "probe")
        level = "bad" if kind in _TROUBLES else "routine" if routine else "info"
        yield Event(event["t_ns"] + offset, "jetson", _said(kind, event), level)


def _said(kind: str, event: dict[str, Any]) -> str:
    if kind == "sentinel":
        return f"sends sentinel {event.get('kind')}"
    if kind == "timeout":
        return f"gives up request {event.get('request_id')}"
    if kind == "engine":
        return f"engine ready: {event.get('engine')} {event.get('engine_version')} on {event.get('provider')}"
    if kind == "end":
        return f"runner ends: {event.get('reason')}"
    if kind == "host":
        heat = ", ".join(f"{name} {value}" for name, value in (event.get("temperature_c") or {}).items())
        load = " ".join(f"{one:.2f}" for one in event.get("load") or () if is_number(one))
        return f"host at {event.get('when')}: load {load or 'unknown'}" + (f", {heat} °C" if heat else "")
    if kind in ("error", "send-error", "receive-error"):
        return f"{kind}: {event.get('what') or event.get('text')}"
    return kind


def jetson_offset(case: Case) -> int | None:
    """Capture time from the first frame less the Jetson's monotonic time: the fastest request leaves as captured."""
    exchanges = case.exchanges
    captured = dict(zip(exchanges.asks.id.tolist(), exchanges.asks.time_ns.tolist(), strict=True)) if exchanges else {}
    best = min(
        (
            captured[event["request_id"]] - event["send_ns"] - case.origin_ns
            for event in case.jetson_log.requests
            if event.get("request_id") in captured and event.get("send_ns") is not None
        ),
        default=None,
    )
    if best is not None:
        return int(best)
    for event in case.jetson_log.others:
        if event["event"] == "clock" and event.get("realtime_ns") is not None:
            return int(event["realtime_ns"]) - int(event["t_ns"]) - case.origin_ns
    return None


def _telemetry(case: Case) -> Iterator[Event]:
    offset = board_offset(case)
    if offset is None:
        return
    for event in case.telemetry:
        values = " ".join(f"{key}={value}" for key, value in event["values"].items())
        yield Event(event["t_ns"] + offset, "board telemetry", f"{event['event']} {values}".strip()[:200])


def board_offset(case: Case) -> int | None:
    """Capture time from the first frame less the board's clock: the fastest datagram leaves as it was sent."""
    exchanges = case.exchanges
    if exchanges is None or len(case.boots) != 1:
        return None
    known = exchanges.back_ns[exchanges.back_ns != INFINITE_NS]
    return int(np.min(known)) - case.origin_ns if len(known) else None


def _packets(case: Case) -> Iterator[Event]:
    if not len(case.table):
        return
    exchanges = case.exchanges
    if exchanges is not None and exchanges.window.start_seen:
        yield Event(exchanges.window.start_ns - case.origin_ns, "packets", "start sentinel: measuring begins", "notice")
        if exchanges.window.end_seen:
            yield Event(exchanges.window.end_ns - case.origin_ns, "packets", "end sentinel: measuring ends", "notice")
    for arp in case.arp[:40]:
        slow = arp.reply_ns is None or arp.reply_ns > 20_000_000
        how = "not answered" if arp.reply_ns is None else f"answered after {arp.reply_ns / 1e6:.3f} ms"
        text = f"ARP: {arp.sender} asks for {arp.target}, {how}"
        yield Event(arp.time_ns - case.origin_ns, "packets", text, "bad" if slow else "info", arp.number)
    for error in case.icmp[:40]:
        text = f"ICMP type {error.kind} code {error.code} from {error.sender}"
        yield Event(error.time_ns - case.origin_ns, "packets", text, "bad", error.number)
    for check, each in worst_packets(case):
        text = f"{check.check}: {said(check, each)} ({each.rule})"
        yield Event(each.at_ns, "packets", text, "bad", each.frame or each.reference)


def _bounded(events: list[Event]) -> list[Event]:
    return events if len(events) <= MOST else [*events[: MOST // 2], *events[-MOST // 2 :]]
