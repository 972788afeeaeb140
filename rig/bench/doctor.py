"""Examines a bench: `rig doctor` for people, and the quick, fatal part of it as the preflight of every run.

CHECKS is the list, in the order of the report. `rig.bench.checks` says how a check is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, Literal

from rig.bench.checks import Finding, Site, board, capture, clock, failure, jetson, machine, ok, routes, skipped
from rig.bench.host import LocalHost
from rig.bench.load import hardware_bench
from rig.errors import BenchError, BoardError, CaptureError, InternalError, JetsonError, RigError

SCHEMA: Final = "rig.doctor/1"
CONNECT_S: Final = 10.0
EXAMINATION_S: Final = 60.0

_COLOURS: Final = {"ok": "32", "warn": "33", "fail": "31", "skipped": "36"}

Needs = Literal["", "bench", "session"]


@dataclass(frozen=True)
class Check:
    """side: whose trouble a failure is. needs: what must be there to look at all.

    preflight: quick, and without it a run would fail later or measure the wrong thing.
    """

    name: str
    side: type[RigError]
    look: Callable[[Site], Finding]
    needs: Needs = ""
    preflight: bool = False


def _open_bench(site: Site) -> Finding:
    """Lease and, where it is emulated, the bench itself."""
    assert site.opener is not None
    began = time.monotonic()
    try:
        opened = site.ends.enter_context(site.opener)
    except RigError as error:
        if site.file.emulation is None:
            # A bench in use can still be looked at from outside.
            site.bench, site.host = hardware_bench(site.file), LocalHost()
        return failure(error)
    site.bench, site.host, site.opened = opened.bench, opened.host, opened
    how = f"up in {time.monotonic() - began:.1f} s" if site.file.emulation else "not in use"
    return ok(f"{site.name} is {how}")


def _connect(site: Site) -> Finding:
    """Reachability, host key against the pin and login, with one connection; an error says which of them it was."""
    if site.opened is None or site.bench is None:
        return skipped("the bench to itself: a login would disturb the run that has it")
    try:
        site.session = site.opened.jetson(site.deadline.at_most(CONNECT_S))
    except RigError as error:
        return failure(error)
    return jetson.describe_session(site.bench.jetson)


CHECKS: Final = (
    Check("python", InternalError, machine.python),
    Check("packages", InternalError, machine.packages),
    Check("tools", InternalError, machine.tools),
    Check("firmware", InternalError, machine.firmware),
    Check("disk", InternalError, machine.disk, preflight=True),
    Check("governor", InternalError, machine.governor),
    Check("bench", BenchError, _open_bench),
    Check("lab-commands", BenchError, machine.lab_commands, "bench", preflight=True),
    Check("serial-port", BoardError, board.serial_port, "bench"),
    Check("port-grabbers", BoardError, board.port_grabbers, "bench", preflight=True),
    Check("ssh-key", BenchError, jetson.ssh_key, "bench"),
    Check("ssh", JetsonError, _connect, "bench"),
    Check("interface", CaptureError, capture.interface, "bench"),
    Check("permission", CaptureError, capture.permission, "bench"),
    Check("nic-offloads", CaptureError, capture.nic_offloads, "bench"),
    Check("nic-coalescing", CaptureError, capture.nic_coalescing, "bench"),
    Check("nic-eee", CaptureError, capture.nic_eee, "bench"),
    Check("nic-pause", CaptureError, capture.nic_pause, "bench"),
    Check("nic-ring", CaptureError, capture.nic_ring, "bench"),
    Check("nic-journal", CaptureError, capture.nic_journal, "bench"),
    Check("jetson-lease", JetsonError, jetson.lease, "session"),
    Check("bench-route", JetsonError, routes.bench_route, "session", preflight=True),
    Check("mac-addresses", BenchError, routes.mac_addresses, "session"),
    Check("management-route", JetsonError, routes.management_route, "session"),
    Check("engine", JetsonError, jetson.engine, "session"),
    Check("models", JetsonError, jetson.models, "session"),
    Check("jetson-disk", JetsonError, jetson.disk, "session"),
    Check("jetson-clocks", JetsonError, jetson.clocks, "session"),
    Check("clock", InternalError, clock.clock),
)


def examine(site: Site) -> Generator[tuple[Check, Finding], None, None]:
    """Every check with its finding, as they come. Opens the bench and the SSH connection on the way, and closes them.

    A bench that somebody else holds is examined as far as that disturbs nobody. Close the generator, for instance with
    `contextlib.closing`: leaving it half-way would leave the bench open.
    """
    from rig.capture.clock import offset_ns

    site.began = (offset_ns()[0], time.monotonic_ns())
    with site.ends:
        for check in CHECKS:
            yield check, _look(check, site)


def preflight(site: Site) -> list[str]:
    """The quick part, for every run: its warnings, one line each; raises the error of the side that fails."""
    warnings = []
    for check in CHECKS:
        if check.preflight:
            finding = _look(check, site)
            if finding.state == "fail":
                raise check.side(finding.found, hint=finding.fix or None)
            if finding.state == "warn":
                fix = "; ".join(line.strip() for line in finding.fix.splitlines())
                warnings.append(f"{check.name}: {finding.found} (fix: {fix})")
    return warnings


def rendered(check: Check, finding: Finding, *, colour: bool) -> str:
    """One line, and one more with the fix where something is to be done."""
    state = f"{finding.state:<7}"
    if colour:
        state = f"\x1b[{_COLOURS[finding.state]}m{state}\x1b[0m"
    line = f"{state} {check.name:<17} {finding.found}"
    fix = "\n".join(f"{'':<30} {part.strip()}" for part in finding.fix.splitlines())
    return line + (f"\n{'':<25} fix: {fix.lstrip()}" if fix else "")


def report(site: Site, results: list[tuple[Check, Finding]]) -> dict[str, Any]:
    """The examination as JSON: `rig.doctor/1`, documented in docs/doctor.md."""
    return {
        "schema": SCHEMA,
        "bench": site.name,
        "ok": all(finding.state != "fail" for _, finding in results),
        "checks": [
            {
                "name": check.name,
                "side": check.side.side,
                "state": finding.state,
                "found": finding.found,
                "fix": finding.fix,
            }
            for check, finding in results
        ],
    }


def _look(check: Check, site: Site) -> Finding:
    if check.needs and site.bench is None:
        return skipped("the bench, see `bench` above")
    if check.needs == "session" and site.session is None:
        return skipped("the SSH connection, see `ssh` above")
    try:
        return check.look(site)
    except RigError as error:
        return failure(error)
