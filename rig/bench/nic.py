"""The bench's NICs as ethtool shows them: what in their settings bears on time stamps.

Offloads merge frames before they are stamped, interrupt coalescing stamps a whole batch at once, and Energy-Efficient
Ethernet (IEEE 802.3az) delays the first frame after silence. `rig.bench.nic_settings` switches them off.

Source: ethtool(8), kernel Documentation/networking/ethtool-netlink.rst.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rig.bench.host import Host
from rig.deadline import Deadline
from rig.errors import BenchError, InternalError

_MERGING: Final = re.compile(
    r"generic-receive-offload|generic-segmentation-offload|large-receive-offload|rx-gro-hw|rx-gro-list"
    r"|rx-udp-gro-forwarding|tx-tcp\w*-segmentation|tx-tcp-\w+-segmentation|tx-udp-segmentation"
)
"""Features that make one frame of several or the reverse. The group `tcp-segmentation-offload` is left out: its members
are set one by one, so that exactly what was on comes back."""


@dataclass(frozen=True)
class NicState:
    """One interface as ethtool shows it; what its driver does not support is missing.

    offloads: of the features that merge or split frames, `on`, `off`, `off [fixed]`, `off [requested on]`.
    coalescing: parameter → number or on/off. ring: `rx`, `tx` and their `-max`. pause: 802.3x flow control.
    eee: such as `enabled - active`; empty where there is none.
    """

    name: str
    driver: str = ""
    offloads: dict[str, str] = field(default_factory=dict)
    coalescing: dict[str, str] = field(default_factory=dict)
    ring: dict[str, str] = field(default_factory=dict)
    pause: dict[str, str] = field(default_factory=dict)
    eee: str = ""


# --- what follows from ethtool's words --------------------------------------------------------------------------------


def parse_offloads(text: str) -> dict[str, str]:
    """The frame-merging features of `ethtool -k`."""
    return {name: value for name, value in _pairs(text) if _MERGING.fullmatch(name)}


def parse_coalescing(text: str) -> dict[str, str]:
    """`ethtool -c` without what is not available; `Adaptive RX: off  TX: on` becomes adaptive-rx and adaptive-tx."""
    found = {}
    for name, value in _pairs(text):
        if name == "Adaptive RX":
            rx, _, tx = value.partition("TX:")
            found["adaptive-rx"], found["adaptive-tx"] = rx.strip(), tx.strip()
        elif re.fullmatch(r"[a-z]+(-[a-z]+)+", name):
            found[name] = value
    return {name: value for name, value in found.items() if value not in ("", "n/a")}


def parse_ring(text: str) -> dict[str, str]:
    """`ethtool -g`: descriptors in use (`rx`, `tx`) and at most (`rx-max`, `tx-max`)."""
    limits, _, current = text.partition("Current hardware settings:")
    found = {f"{name.lower()}-max": value for name, value in _pairs(limits) if name in ("RX", "TX")}
    found |= {name.lower(): value for name, value in _pairs(current) if name in ("RX", "TX")}
    return {name: value for name, value in found.items() if value.isdigit()}


def parse_pause(text: str) -> dict[str, str]:
    """`ethtool -a`: autonegotiate, rx, tx, each `on` or `off`."""
    return {name.lower(): value for name, value in _pairs(text) if name in ("Autonegotiate", "RX", "TX")}


def parse_eee(text: str) -> str:
    """The status in `ethtool --show-eee`; empty where it is not supported."""
    status = dict(_pairs(text)).get("EEE status", "")
    return "" if status == "not supported" else status


def parse_driver(text: str) -> str:
    """`ethtool -i`: driver and its version."""
    said = dict(_pairs(text))
    return f"{said.get('driver', '')} {said.get('version', '')}".strip()


def segment_interfaces(links: bytes, named: Iterable[str]) -> list[str]:
    """From `ip -j link show`: the named interfaces, then the other ports of a bridge that they belong to or are.

    Frames pass all of them: what one port merges, another one stamps. A name that is not there is left out.
    """
    entries = [entry for entry in json.loads(links or b"[]") if entry]
    by_name = {entry["ifname"]: entry for entry in entries}
    chosen = [name for name in dict.fromkeys(named) if name in by_name]
    bridges = {by_name[name].get("master", name) for name in chosen}
    return chosen + [
        entry["ifname"] for entry in entries if entry.get("master") in bridges and entry["ifname"] not in chosen
    ]


def _pairs(text: str) -> list[tuple[str, str]]:
    split = (line.partition(":") for line in text.splitlines())
    return [(name.strip(), value.strip()) for name, colon, value in split if colon]


# --- reading ----------------------------------------------------------------------------------------------------------


_ASK: Final = """\
for nic; do
    for what in -i -k -c -g -a --show-eee; do
        echo "@ $nic $what"
        ethtool $what "$nic" 2>&1
        [ $? != 127 ] || exit 127
    done
done
"""
"""Six questions for each NIC in one process: over SSH, or on a busy machine, one for each answer takes too long."""


def read_nics(host: Host, names: Sequence[str], deadline: Deadline) -> list[NicState]:
    """Ask ethtool for everything; raises InternalError without ethtool, BenchError when an interface is gone."""
    if not names:
        return []
    answer = host.run(["sh", "-c", _ASK, "sh", *names], deadline)
    said = answer.stdout.decode("utf-8", "replace")
    if answer.returncode == 127:
        raise InternalError("the program `ethtool` is missing", hint="sudo apt-get install ethtool")
    return parse_answers(said)


def read_nic(host: Host, name: str, deadline: Deadline) -> NicState:
    """`read_nics` for one."""
    return read_nics(host, [name], deadline)[0]


def parse_answers(said: str) -> list[NicState]:
    """The states of all NICs from what _ASK prints: each answer below a line `@ NAME OPTION`."""
    answers: dict[str, dict[str, str]] = {}
    for answer in re.split(r"^@ ", said, flags=re.MULTILINE)[1:]:
        head, _, text = answer.partition("\n")
        name, _, option = head.rpartition(" ")
        if "No such device" in text:
            raise BenchError(f"there is no interface {name!r}", seen=last_line(text.encode()))
        answers.setdefault(name, {})[option] = text
    return [
        NicState(
            name,
            parse_driver(about["-i"]),
            parse_offloads(about["-k"]),
            parse_coalescing(about["-c"]),
            parse_ring(about["-g"]),
            parse_pause(about["-a"]),
            parse_eee(about["--show-eee"]),
        )
        for name, about in answers.items()
    ]


def read_segment(host: Host, named: Iterable[str], deadline: Deadline) -> list[NicState]:
    """The state of every NIC on the measured path, `named` first; see `segment_interfaces`."""
    links = host.run(["ip", "-j", "link", "show"], deadline).stdout
    return read_nics(host, segment_interfaces(links, named), deadline)


def governors(root: Path = Path("/sys/devices/system/cpu/cpufreq")) -> dict[str, int]:
    """cpufreq governor → how many frequency domains of this machine have it; empty without cpufreq (most VMs)."""
    found: dict[str, int] = {}
    for path in root.glob("policy*/scaling_governor"):
        name = path.read_text(errors="replace").strip()
        found[name] = found.get(name, 0) + 1
    return found


def last_line(output: bytes) -> str | None:
    """The last line of a program's output, where the reason stands."""
    return output.decode("utf-8", "replace").strip().splitlines()[-1] if output.strip() else None
