"""The ways that packets take: requests by the measured segment only, SSH by another one.

The Jetson's own routes decide. The rig itself sends nothing to the board, so an inline bridge needs no address at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rig.bench.checks import Finding, Site, fail, failure, listed, ok, skipped, warn
from rig.errors import JetsonError

_MISSING = 127  # sh(1): command not found


@dataclass(frozen=True)
class Route:
    """What `ip route get` answers. gateway: empty when the address is on the link itself."""

    device: str
    source: str = ""
    gateway: str = ""


def parse_route(text: str) -> Route | None:
    """One line of `ip -o route get ADDRESS` (also of an iproute2 without JSON, as on JetPack 4)."""
    words = dict(re.findall(r"\b(via|dev|src) (\S+)", text))
    return Route(words["dev"], words.get("src", ""), words.get("via", "")) if "dev" in words else None


@dataclass(frozen=True)
class RouteFacts:
    """board, bench_address, gateway: of the bench file. to_board, to_rig: the Jetson's routes; from_rig: to its sshd.

    segment: the rig's interfaces there. ssh_server, ssh_client: the SSH connection's addresses as the Jetson sees them.
    """

    board: str
    bench_address: str
    gateway: str | None
    to_board: Route | None
    to_rig: Route | None = None
    from_rig: Route | None = None
    segment: frozenset[str] = frozenset()
    ssh_server: str = ""
    ssh_client: str = ""


def mac_addresses(site: Site) -> Finding:
    """Of everything on the segment that the bench knows: the board, the Jetson's interface to it, the rig's own."""
    facts = _routes(site)
    if isinstance(facts, Finding):
        return facts
    assert site.bench is not None
    assert site.session is not None
    having = [("the board (board.identity.mac)", site.bench.board.identity.mac)]
    if facts.to_board is not None:
        device = facts.to_board.device
        asked = site.session.run(["ip", "-o", "link", "show", "dev", device], site.deadline)
        match = re.search(rb"link/ether (\S+)", asked.stdout)
        having += [(f"{device} of the Jetson", match[1].decode())] if match else []
    if site.bench.capture.point != "jetson":
        links = site.run("ip", "-j", "link", "show")
        wanted = {name.lower() for name in site.bench.capture.interfaces}
        having += [(f"{name} of the rig", mac) for name, mac in port_macs(links.stdout if links else b"", wanted)]
    return judge_macs(having)


def port_macs(links: bytes, wanted: set[str]) -> list[tuple[str, str]]:
    """From `ip -j link show`: name and MAC of the interfaces in `wanted` and of the other ports of their bridges.

    Not of the bridges, which have the address of one of their ports.
    """
    entries = [entry for entry in json.loads(links or b"[]") if entry]
    on_segment = bridged(links, wanted)
    bridges = {entry.get("master") for entry in entries}
    return [
        (entry["ifname"], entry.get("address", ""))
        for entry in entries
        if entry["ifname"] not in bridges and {entry["ifname"], entry.get("master")} & on_segment
    ]


def judge_macs(having: Sequence[tuple[str, str]]) -> Finding:
    """having: who and which MAC address."""
    owners: dict[str, list[str]] = {}
    for who, mac in having:
        owners.setdefault(mac.lower(), []).append(who)
    twins = [f"{' and '.join(names)} have {mac}" for mac, names in owners.items() if len(names) > 1]
    if twins:
        return fail(
            "; ".join(twins),
            "give the board another `board.identity.mac`, or a NIC one of its own: "
            "sudo ip link set NAME address 02:00:00:00:00:01",
        )
    return ok(f"{listed([f'{who} {mac}' for who, mac in having], 2)}, all different")


def bench_route(site: Site) -> Finding:
    facts = _routes(site)
    return facts if isinstance(facts, Finding) else judge_bench_route(facts)


def management_route(site: Site) -> Finding:
    facts = _routes(site)
    return facts if isinstance(facts, Finding) else judge_management(facts)


def _routes(site: Site) -> RouteFacts | Finding:
    assert site.bench is not None
    assert site.session is not None
    if site.routes is not None:
        return site.routes
    identity, session = site.bench.board.identity, site.session
    try:
        to_board = session.run(["ip", "-o", "route", "get", identity.address], site.deadline)
        if to_board.status == _MISSING:
            return skipped("`ip` on the Jetson: sudo apt-get install iproute2")
        connection = (
            session.run(["printenv", "SSH_CONNECTION"], site.deadline).stdout.decode("utf-8", "replace").split()
        )
        client, server = (connection[0], connection[2]) if len(connection) == 4 else ("", "")
        to_rig = session.run(["ip", "-o", "route", "get", client], site.deadline).stdout if client else b""
    except JetsonError as error:
        return failure(error)
    from_rig = site.run("ip", "-o", "route", "get", server) if server else None
    site.routes = RouteFacts(
        board=identity.address,
        bench_address=site.bench.jetson.bench_address,
        gateway=identity.gateway,
        to_board=parse_route(to_board.stdout.decode("utf-8", "replace")),
        to_rig=parse_route(to_rig.decode("utf-8", "replace")),
        from_rig=parse_route(from_rig.stdout.decode("utf-8", "replace")) if from_rig is not None else None,
        segment=_segment(site),
        ssh_server=server,
        ssh_client=client,
    )
    return site.routes


def _segment(site: Site) -> frozenset[str]:
    """The rig's interfaces on the measured segment: capturing ones and the bridges that they are ports of."""
    assert site.bench is not None
    if site.bench.capture.point == "jetson":
        return frozenset()
    wanted = {name.lower() for name in site.bench.capture.interfaces}
    links = site.run("ip", "-j", "link", "show")
    return bridged(links.stdout if links is not None else b"", wanted)


def bridged(links: bytes, wanted: set[str]) -> frozenset[str]:
    """From `ip -j link show`: the interfaces with a name or MAC in `wanted`, and their bridges."""
    found = set()
    for entry in json.loads(links or b"[]"):
        if {str(entry.get("ifname", "")).lower(), str(entry.get("address", "")).lower()} & wanted:
            found |= {entry["ifname"], entry.get("master", entry["ifname"])}
    return frozenset(found)


def judge_bench_route(facts: RouteFacts) -> Finding:
    """The Jetson must reach the board by the measured segment, from the address that the bench file names."""
    route = facts.to_board
    if route is None:
        return fail(
            f"the Jetson has no route to the board {facts.board}",
            f"on the Jetson: sudo ip addr add {facts.bench_address}/24 dev BENCH-INTERFACE (and make it permanent)",
        )
    if route.gateway and facts.gateway is None:
        return fail(
            f"the Jetson reaches {facts.board} by its gateway {route.gateway} on {route.device}, "
            "not on the bench segment",
            f"on the Jetson: sudo ip addr add {facts.bench_address}/24 dev BENCH-INTERFACE",
        )
    if route.source and route.source != facts.bench_address:
        return fail(
            f"the Jetson sends to {facts.board} from {route.source} on {route.device}, "
            f"the bench file says {facts.bench_address}",
            f"correct jetson.bench_address, or on the Jetson: "
            f"sudo ip addr add {facts.bench_address}/24 dev {route.device}",
        )
    via = f" via {route.gateway}" if route.gateway else ""
    return ok(f"Jetson {facts.bench_address} → {route.device}{via} → {facts.board}")


def judge_management(facts: RouteFacts) -> Finding:
    """SSH and file transfers should not share the measured segment."""
    if not facts.ssh_server:
        return warn(
            "sshd does not tell the connection's addresses", "check by hand that SSH is not on the bench segment"
        )
    if facts.ssh_server == facts.bench_address:
        return warn(
            f"SSH goes to the bench address {facts.bench_address}: management traffic is on the measured segment",
            "give jetson.host the address of another interface of the Jetson",
        )
    if facts.to_rig is not None and facts.to_board is not None and facts.to_rig.device == facts.to_board.device:
        return warn(
            f"the Jetson answers SSH through {facts.to_rig.device}, its bench interface",
            f"on the Jetson, route {facts.ssh_client} through another interface",
        )
    if facts.from_rig is not None and facts.from_rig.device in facts.segment:
        return warn(
            f"the rig reaches the Jetson's sshd through {facts.from_rig.device}, which is on the measured segment",
            f"route {facts.ssh_server} through another interface of this machine",
        )
    return ok(f"SSH {facts.ssh_client} ↔ {facts.ssh_server}, apart from the bench segment")
