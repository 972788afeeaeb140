"""What a capture's uncertainty depends on: capture point, kernel, governor, the NICs and how they are set.

Everything is text, since it is only compared with what it was at the calibration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rig.bench.host import Host
from rig.bench.nic import NicState, read_nic
from rig.capture.points import Point
from rig.deadline import Deadline

_MACHINE: Final = """
echo "kernel=$(uname -r)"
echo "governor=$(cat /sys/devices/system/cpu/cpufreq/policy*/scaling_governor 2>/dev/null | sort -u | tr '\\n' ' ')"
for name in "$@"; do echo "$name address=$(ethtool -P "$name" 2>/dev/null)"; done
"""
_ADDRESS: Final = "Permanent address: "


def capture_settings(host: Host, point: Point, names: Sequence[str], deadline: Deadline) -> dict[str, str]:
    """Settings of the capturing machine and its interfaces `names`, such as `enp3s0 coalescing rx-usecs` → `3`.

    Raises InternalError without ethtool, BenchError when an interface is gone.
    """
    found = {"capture point": point.kind}
    answer = host.run(["sh", "-c", _MACHINE, "sh", *names], deadline)
    found |= parse_machine(answer.stdout.decode("utf-8", "replace"))
    for name, direction in zip(names, point.directions, strict=True):
        found |= {f"{name} direction": direction} | flat(read_nic(host, name, deadline))
    return found


def parse_machine(text: str) -> dict[str, str]:
    """Entries of the capturing machine. A veth has no permanent address: its own is another one at each start."""
    entries = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    found = {}
    for key, value in entries.items():
        if key.endswith(" address"):
            value = value.partition(_ADDRESS)[2] if _ADDRESS in value and "not set" not in value else ""
        if value.strip():
            found[key] = value.strip()
    return found


def flat(nic: NicState) -> dict[str, str]:
    """One NIC's settings. Flow control and the link's partner's half of EEE are negotiated, not set."""
    groups = {"offloads": nic.offloads, "coalescing": nic.coalescing, "ring": nic.ring}
    found = {f"{nic.name} {group} {key}": value for group, values in groups.items() for key, value in values.items()}
    for key, value in (("driver", nic.driver), ("EEE", nic.eee.partition(" - ")[0])):
        if value:
            found[f"{nic.name} {key}"] = value
    return found


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs, one phrase each: `kernel was 6.1.0, is 6.8.0`."""
    return [
        f"{key} was {before.get(key, 'not there')}, is {now.get(key, 'not there')}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key)
    ]
