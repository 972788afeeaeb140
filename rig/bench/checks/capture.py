"""The capture point: interfaces, permission to capture, and how the NICs on the measured path are set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rig.bench.checks import Finding, Site, fail, failure, listed, ok, skipped, warn
from rig.bench.host import Host
from rig.bench.lease import state_folder
from rig.bench.model import NicGroup
from rig.bench.nic import NicState, read_segment
from rig.bench.nic_settings import JOURNAL, Change, NicSettings, commands, planned
from rig.errors import InternalError, RigError

_CONNECTION = "the SSH connection: this bench captures on the Jetson"


@dataclass(frozen=True)
class LinkFacts:
    """A capturing interface, named by what the bench file says (`wanted`)."""

    wanted: str
    name: str
    mac: str
    up: bool
    carrier: bool


def interface(site: Site) -> Finding:
    host = _host(site)
    if host is None:
        return skipped(_CONNECTION)
    try:
        return judge_interfaces(_links(site, host), _place(site))
    except RigError as error:
        return failure(error)


def _host(site: Site) -> Host | None:
    """Where the capture runs; None when that is the Jetson and it is not connected."""
    assert site.bench is not None
    if site.bench.capture.point != "jetson":
        return site.host
    return site.opened.capture_host(site.deadline) if site.opened is not None and site.session is not None else None


def _place(site: Site) -> str:
    """In front of a command line that belongs on the Jetson."""
    return "on the Jetson: " if site.bench is not None and site.bench.capture.point == "jetson" else ""


def _links(site: Site, host: Host) -> list[LinkFacts]:
    from rig.capture.links import find_link, read_links

    assert site.bench is not None
    links = read_links(host, site.deadline)
    found = [(wanted, find_link(links, wanted)) for wanted in site.bench.capture.interfaces]
    return [LinkFacts(wanted, one.name, one.mac, one.up, one.carrier) for wanted, one in found]


def judge_interfaces(links: Sequence[LinkFacts], place: str = "") -> Finding:
    down = [link.name for link in links if not link.up]
    if down:
        fix = place + " && ".join(f"sudo ip link set {name} up" for name in down)
        return fail(f"{listed(down)} {'is' if len(down) == 1 else 'are'} down", fix)
    dark = [link.name for link in links if not link.carrier]
    if dark:
        return warn(
            f"no carrier on {listed(dark)}", "check cable and switch port; a board without power has none either"
        )
    return ok(", ".join(f"{link.name} {link.mac} up with carrier" for link in links))


def permission(site: Site) -> Finding:
    from rig.capture import dumpcap
    from rig.capture.recorder import place_of

    host = _host(site)
    if host is None:
        return skipped(_CONNECTION)
    try:
        for link in _links(site, host):
            try:
                probe = host.run(dumpcap.probe_command(link.name), site.deadline)
            except InternalError as error:
                return failure(dumpcap.not_executable(error.what, where=place_of(host)))
            if probe.returncode != 0:
                said = probe.stderr.decode("utf-8", "replace")
                return failure(dumpcap.refusal(said, link.name, status=probe.returncode, where=place_of(host)))
    except RigError:
        return skipped("the interface, see `interface` above")
    return ok("dumpcap may open the interface")


# --- NICs -------------------------------------------------------------------------------------------------------------


def nic_offloads(site: Site) -> Finding:
    return _nic(site, "offloads")


def nic_coalescing(site: Site) -> Finding:
    return _nic(site, "coalescing")


def nic_eee(site: Site) -> Finding:
    return _nic(site, "eee")


def nic_pause(site: Site) -> Finding:
    states = _states(site)
    return states if isinstance(states, Finding) else judge_pause(states, _place(site))


def nic_ring(site: Site) -> Finding:
    states = _states(site)
    return states if isinstance(states, Finding) else judge_ring(states, _place(site))


def _nic(site: Site, group: NicGroup) -> Finding:
    assert site.bench is not None
    states = _states(site)
    disabled = group in site.bench.nic.disable
    return states if isinstance(states, Finding) else judge_nic(states, group, disabled, _place(site))


def _states(site: Site) -> list[NicState] | Finding:
    host = _host(site)
    if host is None:
        return skipped(_CONNECTION)
    if site.nics is None:
        try:
            site.nics = read_segment(host, [link.name for link in _links(site, host)], site.deadline)
        except InternalError:
            return skipped("ethtool, see `tools` above")
        except RigError:
            return skipped("the interface, see `interface` above")
    return site.nics


_WHY: dict[NicGroup, str] = {
    "offloads": "frames are merged before they are stamped",
    "coalescing": "frames of a batch get one stamp",
    "eee": "the first frame after silence is late",
}
_SENDING = ("tx-", "generic-segmentation")


def judge_nic(states: Sequence[NicState], group: NicGroup, disabled: bool, place: str = "") -> Finding:
    """disabled: the bench file lists the group, so a run switches it off.

    Segmentation of what this machine itself sends (TSO, GSO) does not touch the frames that it captures.
    """
    changes = [
        change
        for state in states
        for change in planned(state, [group])
        if not (group == "offloads" and change.setting.startswith(_SENDING))
    ]
    if not changes:
        known = [state.name for state in states if _known(state, group)]
        return ok(f"off on {listed(known)}" if known else f"{listed([s.name for s in states])} have none")
    found = "; ".join(
        f"{name}: {_said(changes, name)}" for name in dict.fromkeys(change.interface for change in changes)
    )
    if disabled:
        return ok(f"{found}; off while a run has the bench")
    by_hand = place + "; ".join("sudo " + " ".join(line) for line in commands(changes))
    return warn(f"{found}: {_WHY[group]}", f"bench file: `nic: {{disable: [{group}]}}`, or once: {by_hand}")


def _said(changes: Sequence[Change], interface_: str) -> str:
    return listed([f"{change.setting} {change.was}" for change in changes if change.interface == interface_])


def _known(state: NicState, group: NicGroup) -> bool:
    return bool({"offloads": state.offloads, "coalescing": state.coalescing, "eee": state.eee}[group])


def judge_pause(states: Sequence[NicState], place: str = "") -> Finding:
    on = [state.name for state in states if "on" in (state.pause.get("rx"), state.pause.get("tx"))]
    if on:
        fix = place + "; ".join(f"sudo ethtool -A {name} autoneg off rx off tx off" for name in on)
        return warn(f"on at {listed(on)}: a full receiver stops the sender, which looks like latency", fix)
    return ok("off" if any(state.pause for state in states) else "not supported by these interfaces")


def judge_ring(states: Sequence[NicState], place: str = "") -> Finding:
    seen = [
        f"{state.name} rx {state.ring['rx']} of {state.ring.get('rx-max', '?')}"
        for state in states
        if "rx" in state.ring
    ]
    small = [
        state
        for state in states
        if "rx" in state.ring and int(state.ring["rx"]) < min(256, int(state.ring.get("rx-max", 0)))
    ]
    if small:
        fix = place + "; ".join(f"sudo ethtool -G {state.name} rx {state.ring['rx-max']}" for state in small)
        return warn(f"{listed(seen)}: bursts may be lost", fix)
    return ok(listed(seen) or "not supported by these interfaces")


def nic_journal(site: Site) -> Finding:
    """Settings that a killed run has left; the next run on this bench puts them back."""
    host = _host(site)
    if host is None:
        return skipped(_CONNECTION)
    settings = NicSettings(host, state_folder(site.name) / JOURNAL)
    return judge_journal(settings.in_force(site.deadline), in_use=site.opened is None, place=_place(site))


def judge_journal(left: Sequence[Change], *, in_use: bool, place: str = "") -> Finding:
    if not left:
        return ok("no run has left settings behind")
    text = listed([f"{one.interface} {one.setting} {one.now} (was {one.was})" for one in left])
    if in_use:
        return ok(f"changed by the run that has the bench: {text}")
    by_hand = place + "; ".join("sudo " + " ".join(line) for line in commands(left, back=True))
    return warn(f"a killed run has left {text}", f"the next run puts them back; by hand: {by_hand}")
