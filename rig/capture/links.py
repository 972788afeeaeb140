"""Interfaces as the kernel sees them: who they are, whether they have carrier, what they lost (ip-link, ethtool).

Everything is asked through a `Host`, so that the answer is that of the namespace where the capture runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from rig.bench.host import Host
from rig.deadline import Deadline
from rig.errors import CaptureError, InternalError

MONITOR: Final = ("env", "TZ=UTC0", "ip", "-ts", "monitor", "link")
"""Prints a line with a wall-clock stamp for each change of a link."""

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_EVENT = re.compile(r"^\[([-0-9]+T[:0-9]+)\.(\d{6})\] (Deleted )?\d+: ([^:@]+)(?:@[^:]*)?: <([^>]*)>", re.MULTILINE)
_LOSS = re.compile(r"drop|miss|err|fifo|over|discard|no_?buf|no_?desc|lost|crc", re.IGNORECASE)
_RX_LOSS: Final = (
    "dropped",
    "errors",
    "over_errors",
    "missed_errors",
    "fifo_errors",
    "crc_errors",
    "frame_errors",
    "length_errors",
)


@dataclass(frozen=True)
class Link:
    """One interface. frames: received and sent since it came up. counters: what it received but did not deliver (`rx_…`
    of ip-link, and those of ethtool's statistics whose name speaks of loss, as `ethtool_…`)."""

    name: str
    mac: str
    up: bool
    carrier: bool
    carrier_changes: int
    frames: int
    counters: dict[str, int]
    other_names: tuple[str, ...] = ()


class CarrierEvent(NamedTuple):
    """carrier came or went; time_ns is wall clock (ns since the epoch, resolution 1 us)."""

    time_ns: int
    interface: str
    carrier: bool


def read_links(host: Host, deadline: Deadline) -> list[Link]:
    """All interfaces of the host's namespace."""
    answer = host.run(["ip", "-j", "-s", "-s", "link", "show"], deadline)
    if answer.returncode != 0:
        raise CaptureError(
            "the interfaces could not be listed: `ip -j -s -s link show` failed", seen=_last_line(answer.stderr)
        )
    return parse_links(answer.stdout)


def read_link(host: Host, name: str, deadline: Deadline) -> Link | None:
    """One interface with its driver's own counters, where it has any; None when it is gone."""
    for link in read_links(host, deadline):
        if link.name == name:
            return Link(
                link.name,
                link.mac,
                link.up,
                link.carrier,
                link.carrier_changes,
                link.frames,
                link.counters | _driver_counters(host, name, deadline),
                link.other_names,
            )
    return None


def parse_links(text: bytes) -> list[Link]:
    """Links from the JSON of `ip -j -s -s link show`."""
    links = []
    for entry in json.loads(text or b"[]"):
        if not entry:  # iproute2 prints {} for an interface that vanished while it listed.
            continue
        flags: list[str] = entry.get("flags", [])
        statistics: dict[str, dict[str, Any]] = entry.get("stats64") or entry.get("stats") or {}
        received, sent = statistics.get("rx", {}), statistics.get("tx", {})
        links.append(
            Link(
                name=entry["ifname"],
                mac=entry.get("address", ""),
                up="UP" in flags,
                carrier="LOWER_UP" in flags and "NO-CARRIER" not in flags,
                carrier_changes=sent.get("carrier_changes", 0),
                frames=received.get("packets", 0) + sent.get("packets", 0),
                counters={f"rx_{name}": int(received[name]) for name in _RX_LOSS if name in received},
                other_names=tuple(entry.get("altnames", ())),
            )
        )
    return links


def find_link(links: Sequence[Link], wanted: str) -> Link:
    """The interface that a bench file names by name or MAC; CaptureError when it is missing or not the only one."""
    names = ", ".join(sorted(link.name for link in links if link.name != "lo")) or "none"
    if not _MAC.fullmatch(wanted.lower()):
        for link in links:
            if wanted == link.name or wanted in link.other_names:
                return link
        raise CaptureError(
            f"there is no interface {wanted!r} to capture on; there are: {names}",
            hint="correct the interface in section `capture` of the bench file (a name or a MAC address)",
        )
    having = [link for link in links if link.mac.lower() == wanted.lower()]
    if not having:
        raise CaptureError(
            f"no interface has the MAC address {wanted}; there are: "
            + (", ".join(f"{link.name} {link.mac}" for link in links if link.name != "lo") or "none"),
            hint="correct the interface in section `capture` of the bench file, or plug the adapter in",
        )
    if len(having) > 1:
        raise CaptureError(
            f"{len(having)} interfaces have the MAC address {wanted}: {', '.join(link.name for link in having)}",
            hint="name it in section `capture` of the bench file (bridges and VLANs share their port's address)",
        )
    return having[0]


def require_up(link: Link) -> None:
    """CaptureError for an interface that is administratively down. No carrier is no error: the board may be off."""
    if not link.up:
        raise CaptureError(f"the interface {link.name} is down", hint=f"sudo ip link set {link.name} up")


def counter_growth(before: Link, after: Link) -> dict[str, int]:
    """Loss counters that grew between two readings, by how much."""
    return {
        name: after.counters[name] - count
        for name, count in before.counters.items()
        if after.counters.get(name, count) > count
    }


def carrier_events(monitor: str, before: Iterable[Link]) -> list[CarrierEvent]:
    """Changes of carrier from the output of `MONITOR`, for the interfaces in `before`, in order."""
    state = {link.name: link.carrier for link in before}
    events = []
    for match in _EVENT.finditer(monitor):
        seconds, micros, deleted, name, flags = match.groups()
        if name not in state:
            continue
        listed = flags.split(",")
        carrier = not deleted and "LOWER_UP" in listed and "NO-CARRIER" not in listed
        if carrier != state[name]:
            state[name] = carrier
            moment = datetime.fromisoformat(seconds).replace(tzinfo=UTC)
            events.append(CarrierEvent(int(moment.timestamp()) * 1_000_000_000 + int(micros) * 1000, name, carrier))
    return events


def _driver_counters(host: Host, name: str, deadline: Deadline) -> dict[str, int]:
    try:
        answer = host.run(["ethtool", "-S", name], deadline)
    except InternalError:
        return {}  # Without ethtool the kernel's own counters remain.
    counters = {}
    for line in answer.stdout.decode("utf-8", "replace").splitlines():
        key, _, value = line.strip().partition(":")
        if _LOSS.search(key) and value.strip().isdigit():
            counters[f"ethtool_{key.strip()}"] = int(value)
    return counters


def _last_line(output: bytes) -> str | None:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else None
