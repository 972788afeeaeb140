"""The board's serial port and the services of a desktop system that take such ports for modems or braille displays."""

from __future__ import annotations

import grp
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rig.bench.checks import Finding, Site, fail, failure, listed, ok, skipped, warn
from rig.errors import BoardError

_BRAILLE: Final = {("0403", "6001"), ("10c4", "ea60"), ("1a86", "7523"), ("067b", "2303")}
"""USB chips (FT232R, CP210x, CH340, PL2303) that sit in braille displays as well as in most serial adapters: brltty's
udev rules claim them."""


@dataclass(frozen=True)
class PortFacts:
    """A device node: who may open it and who has it open. group: its owner, empty when it has no name."""

    port: str
    node: str
    usable: bool
    group: str
    holders: tuple[str, ...]


def serial_port(site: Site) -> Finding:
    """The port is looked at and not opened: opening may reset the board (DTR). A port server is connected to."""
    from rig.board.port_holders import holders
    from rig.board.serial_port import resolve

    assert site.bench is not None
    port = site.bench.board.serial.port
    try:
        node = resolve(port)
    except BoardError as error:
        return failure(error)
    if "://" in node:
        return _port_server(site, port)
    try:
        group = grp.getgrgid(Path(node).stat().st_gid).gr_name
    except (OSError, KeyError):
        group = ""
    return judge_port(PortFacts(port, node, os.access(node, os.R_OK | os.W_OK), group, tuple(holders(node))))


def judge_port(facts: PortFacts) -> Finding:
    name = facts.port if facts.port == facts.node else f"{facts.port} ({facts.node})"
    if not facts.usable:
        fix = f"sudo usermod -aG {facts.group or 'dialout'} $USER, then log in again"
        return fail(f"this user may not open {name}", fix)
    if facts.holders:
        pids = " ".join(re.findall(r"pid (\d+)", " ".join(facts.holders)))
        return fail(f"{name} is held by {listed(facts.holders)}", f"end that program: kill {pids}")
    return ok(f"{name} is there, free and permitted")


def _port_server(site: Site, port: str) -> Finding:
    if site.opened is None:
        return skipped("the bench to itself: a port server may serve one client only")
    host, _, number = re.sub(r"^\w+://|[/?].*$", "", port).rpartition(":")
    try:
        assert site.host is not None
        site.host.connect((host.strip("[]"), int(number)), site.deadline).close()
    except OSError as error:
        return judge_port_server(port, error.strerror or str(error))
    return judge_port_server(port, None)


def judge_port_server(port: str, problem: str | None) -> Finding:
    if problem:
        return fail(
            f"no connection to {port}: {problem}", "start the port server (ser2net), check host, port and firewall"
        )
    return ok(f"{port} accepts a connection")


# --- programs that grab serial ports ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class GrabberFacts:
    """running: of `ModemManager` and `brltty`. udev: properties of the port's device. policy: ModemManager's filter."""

    node: str
    running: frozenset[str]
    udev: tuple[str, ...] = ()
    policy: str = ""


def port_grabbers(site: Site) -> Finding:
    """ModemManager sends AT commands to new ports, into the middle of a flash; brltty takes the port away."""
    from rig.board.serial_port import resolve

    assert site.bench is not None
    try:
        node = resolve(site.bench.board.serial.port)
    except BoardError:
        return skipped("the serial port")
    running, policy = running_grabbers()
    asked = site.run("udevadm", "info", "--query=property", f"--name={node}") if running and "://" not in node else None
    udev = asked.stdout.decode("utf-8", "replace").splitlines() if asked is not None else []
    return judge_grabbers(GrabberFacts(node, running, tuple(udev), policy))


def running_grabbers(proc: Path = Path("/proc")) -> tuple[frozenset[str], str]:
    """Which of the two run, and ModemManager's `--filter-policy` (`strict` unless given)."""
    running, policy = set(), ""
    for path in proc.glob("[0-9]*/comm"):
        try:
            name = path.read_text(errors="replace").strip()
            if name not in ("ModemManager", "brltty"):
                continue
            running.add(name)
            arguments = path.with_name("cmdline").read_bytes().decode("utf-8", "replace")
        except OSError:  # ended meanwhile
            continue
        match = re.search(r"--filter-policy[=\0]([\w-]+)", arguments)
        policy = match[1] if match else policy
    return frozenset(running), policy or ("strict" if "ModemManager" in running else "")


def judge_grabbers(facts: GrabberFacts) -> Finding:
    """A tty that a plain adapter makes is probed when it is plugged in; one that the board itself makes (ttyACM), at
    each of its resets, so that alone is a failure."""
    if not re.match(r"/dev/tty(USB|ACM)", facts.node):
        also = f" ({', '.join(sorted(facts.running))} runs)" if facts.running else ""
        return ok(f"{facts.node} is no USB serial port, which nothing else looks for{also}")
    properties = dict(line.split("=", 1) for line in facts.udev if "=" in line)
    usb = (properties.get("ID_VENDOR_ID", ""), properties.get("ID_MODEL_ID", ""))
    if "ModemManager" in facts.running and not _ignored(properties, facts):
        match = f'ATTRS{{idVendor}}=="{usb[0] or "VVVV"}", ATTRS{{idProduct}}=="{usb[1] or "PPPP"}"'
        rule = (
            f"echo '{match}, ENV{{ID_MM_DEVICE_IGNORE}}=\"1\"' | sudo tee /etc/udev/rules.d/70-rig.rules "
            "&& sudo udevadm control --reload && sudo udevadm trigger"
        )
        severity = fail if "ttyACM" in facts.node else warn
        return severity(
            f"ModemManager runs and may send AT commands to {facts.node}",
            f"sudo systemctl disable --now ModemManager; where it is needed: {rule}",
        )
    if "brltty" in facts.running and (usb in _BRAILLE or not usb[0]):
        return warn(
            f"brltty runs and may take {facts.node} for a braille display",
            "sudo systemctl mask --now brltty.service brltty-udev.service, or: sudo apt-get remove brltty",
        )
    if facts.running:
        return ok(f"{', '.join(sorted(facts.running))} runs and leaves {facts.node} alone")
    return ok("neither ModemManager nor brltty runs")


def _ignored(properties: dict[str, str], facts: GrabberFacts) -> bool:
    """Whether ModemManager leaves the port alone (its reference, *Modem filter* and *Common udev tags*).

    The policy `strict`, its default since 1.20, forbids a plain tty and allows a ttyACM that looks like a modem.
    """
    if facts.policy.lower() in ("whitelist-only", "allowlist-only"):
        return properties.get("ID_MM_DEVICE_PROCESS") != "1"
    if "1" in (properties.get("ID_MM_PORT_IGNORE"), properties.get("ID_MM_DEVICE_IGNORE")):
        return True
    return facts.policy.lower() == "strict" and "ttyACM" not in facts.node
