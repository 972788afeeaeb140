"""The links of an emulated bench: one Ethernet segment with its capture points, and a management link.

                      br0
      ┌────────────────┼───────────────────┐
    rig0p            eth0p             board-port (capture point `inline`)
      │                │                   │
    rig0 10.77.0.2   eth0 10.77.0.20    board-wire ── relay ── emulator 10.77.0.10
    (rig)            (Jetson)                          └── mirror0, tap-a, tap-b (capture points)

`mgmt` 10.78.0.1 (rig) and `mgmt0` 10.78.0.20 (Jetson) are a veth pair of their own. No namespace has a default route.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from rig.emulation.linux import link_runs, offloads_off, set_link_up

BOARD_ADDRESS, BOARD_MAC, BOARD_PORT = "10.77.0.10", "02:52:49:47:00:10", 5005
JETSON_ADDRESS, JETSON_MAC = "10.77.0.20", "02:52:49:47:00:20"
JETSON_MANAGEMENT_ADDRESS, JETSON_SSH_PORT = "10.78.0.20", 2222
RIG_ADDRESS, RIG_MAC = "10.77.0.2", "02:52:49:47:00:02"
RIG_MANAGEMENT_ADDRESS = "10.78.0.1"

CAPTURE_INTERFACES = {
    "inline": ("board-port",),
    "mirror": ("mirror0",),
    "tap": ("tap-a", "tap-b"),
    "jetson": ("eth0",),
}
"""Capture point → its interfaces; at the tap first what goes to the board. `eth0` is the Jetson's own."""
BOARD_CABLE = "board-wire"

_PAIRS = (
    ("rig0", "rig0p"),
    ("eth0", "eth0p"),
    ("board-port", BOARD_CABLE),
    ("mirror0", "mirror0-in"),
    ("tap-a", "tap-a-in"),
    ("tap-b", "tap-b-in"),
    ("mgmt", "mgmt0"),
)
_BRIDGE_PORTS = ("rig0p", "eth0p", "board-port")
_TO_JETSON = ("eth0", "mgmt0")
_RIG_ENDS = ("rig0", "rig0p", "eth0p", "board-port", BOARD_CABLE, "br0", "mgmt")
_LINK_START_S = 5.0
_MACS = {"rig0": RIG_MAC, "eth0": JETSON_MAC}


def build_segment(jetson_pid: int) -> None:
    """Make all links in this network namespace and move the Jetson's ends into that of `jetson_pid`.

    Raises OSError, or subprocess.CalledProcessError with the words of ip(8).
    """
    _no_ipv6()
    lines = ["link set lo up", "link add br0 type bridge forward_delay 0 mcast_snooping 0"]
    for near, far in _PAIRS:
        mac = f" address {_MACS[near]}" if near in _MACS else ""
        lines.append(f"link add {near}{mac} type veth peer name {far}")
    lines += [f"link set {port} master br0" for port in _BRIDGE_PORTS]
    _ip(lines)
    for name in (name for pair in _PAIRS for name in pair):
        offloads_off(name)
    lines = [f"link set {name} netns {jetson_pid}" for name in _TO_JETSON]
    ends = [name for pair in _PAIRS for name in pair if name not in _TO_JETSON]
    lines += [f"link set {name} up" for name in ["br0", *ends]]
    lines += [f"addr add {RIG_ADDRESS}/24 dev rig0", f"addr add {RIG_MANAGEMENT_ADDRESS}/24 dev mgmt"]
    _ip(lines)


def configure_jetson(gid: int) -> None:
    """Inside the Jetson's network namespace: addresses on the links that were moved here. gid: of its user."""
    _no_ipv6()
    lines = [f"link set {name} up" for name in ("lo", *_TO_JETSON)]
    lines += [f"addr add {JETSON_ADDRESS}/24 dev eth0", f"addr add {JETSON_MANAGEMENT_ADDRESS}/24 dev mgmt0"]
    _ip(lines)
    await_links(_TO_JETSON)
    with contextlib.suppress(OSError):  # lets this one group ping without privileges (icmp(7))
        Path("/proc/sys/net/ipv4/ping_group_range").write_text(f"{gid} {gid}")


def await_links(names: Iterable[str] = _RIG_ENDS) -> None:
    """Wait until these interfaces, up at both ends, really send: the kernel starts the end that was up first later on.

    What is sent before that is lost, and a lost ARP request costs a second. Raises TimeoutError.
    """
    end = time.monotonic() + _LINK_START_S
    for name in names:
        while not link_runs(name):
            if time.monotonic() > end:
                raise TimeoutError(
                    f"the link {name} is not running {_LINK_START_S:g} s after both its ends were set up"
                )
            time.sleep(0.001)
        set_link_up(name, True)  # changes nothing, but waits for the lock that the kernel's own change still holds


def set_board_cable(plugged: bool) -> None:
    """Carrier of the bench's port towards the board."""
    set_link_up(BOARD_CABLE, plugged)
    if plugged:
        await_links((BOARD_CABLE, "board-port"))


def _no_ipv6() -> None:
    with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
        for scope in ("all", "default"):
            Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6").write_text("1")


def _ip(lines: list[str]) -> None:
    text = "\n".join(lines)
    subprocess.run(["ip", "-batch", "-"], input=text, text=True, capture_output=True, check=True)
