"""dumpcap, Wireshark's capture engine: its command line, and what its stderr says (dumpcap(1), read in 4.0)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rig.errors import CaptureError

BUFFER_MIB: Final = 64
"""Kernel ring per interface: half a second of a full gigabit while dumpcap gets no processor."""
BLOCK_TIMEOUT_S: Final = 0.25
"""A frame may lie in the kernel's ring this long before dumpcap sees it (CAP_READ_TIMEOUT); SIGINT discards it."""

_SUMMARY = re.compile(
    r"^Packets received/dropped on interface '(.*)': (\d+)/(\d+) "
    r"\(pcap:(\d+)/dumpcap:(\d+)/flushed:(\d+)/ps_ifdrop:(\d+)\)"
)
_EXPECTED = ("Capturing on ", "File: ", "Packets captured: ", "Packets received/dropped ", "Running as user ")


@dataclass(frozen=True)
class Counts:
    """dumpcap's own account of one interface. dropped = kernel ring + dumpcap's queue + flushed; nic is not in it."""

    interface: str
    received: int
    dropped: int
    dropped_ring: int
    dropped_queue: int
    flushed: int
    dropped_nic: int


@dataclass(frozen=True)
class Messages:
    """What stderr said so far. complaints: lines that are neither progress nor summary."""

    ready: bool
    counts: tuple[Counts, ...]
    complaints: tuple[str, ...]


def command(interfaces: Sequence[str]) -> list[str]:
    """Argument list that captures whole frames of all `interfaces`, promiscuously and unfiltered, as pcapng to stdout.

    Written to stdout, frames reach the file as soon as dumpcap has them; with a file name it holds them back for up to
    another 500 ms, which each run would wait for twice. A capture filter would miss VLAN-tagged frames and later
    fragments.
    """
    argv = ["dumpcap", "-q", "-n", "-B", str(BUFFER_MIB)]
    for interface in interfaces:
        argv += ["-i", interface]
    return [*argv, "-w", "-"]


def probe_command(interface: str) -> list[str]:
    """Argument list that opens `interface` and ends: status 0 where a capture would be permitted."""
    return ["dumpcap", "-i", interface, "-L"]


def read_messages(stderr: str) -> Messages:
    """Understand stderr. `Capturing on` comes before the socket is open and says nothing; `File:` says ready."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return Messages(
        ready=any(line.startswith("File: ") for line in lines),
        counts=tuple(
            Counts(match[1], *(int(number) for number in match.groups()[1:]))
            for match in map(_SUMMARY.match, lines)
            if match
        ),
        complaints=tuple(line for line in lines if not line.startswith(_EXPECTED)),
    )


def refusal(stderr: str, interface: str, *, status: int | None, where: str = "") -> CaptureError:
    """The error for a dumpcap that did not start, with the exact fix where the cause is known.

    where: `user@host` of the machine that it was to run on; empty for this one.
    """
    on, there = _on(where)
    text = stderr.lower()
    complaint = next(iter(read_messages(stderr).complaints), None)
    if "permission" in text or "operation not permitted" in text or "privileges" in text:
        return CaptureError(
            f"this user may not capture on {interface}{on}",
            seen=complaint,
            hint=f"{there}sudo setcap cap_net_raw,cap_net_admin=eip $(command -v dumpcap); where that is not wanted: "
            "sudo dpkg-reconfigure wireshark-common, sudo usermod -aG wireshark $USER, log in again",
        )
    if "no such device" in text or "there is no device" in text:
        return CaptureError(f"dumpcap finds no interface {interface}{on}", seen=complaint)
    if "not up" in text or "network is down" in text:
        return CaptureError(
            f"the interface {interface}{on} is down", seen=complaint, hint=f"{there}sudo ip link set {interface} up"
        )
    ended = "did not become ready" if status is None else f"ended with status {status} before it was ready"
    return CaptureError(f"dumpcap on {interface}{on} {ended}", seen=complaint)


def not_executable(error: str, *, where: str = "") -> CaptureError:
    """The error for a dumpcap that could not be started at all; `where` as in `refusal`."""
    on, there = _on(where)
    if "permission" in error.lower():
        return CaptureError(
            f"this user may not run dumpcap{on}",
            seen=error,
            hint=f"{there}sudo usermod -aG wireshark $USER, then log in again",
        )
    return CaptureError(
        f"dumpcap could not be started{on}",
        seen=error,
        hint=f"{there}sudo apt-get install --no-install-recommends tshark",
    )


def _on(where: str) -> tuple[str, str]:
    return (f" of {where}", f"on {where}: ") if where else ("", "")
