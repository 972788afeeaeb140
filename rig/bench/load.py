"""From a bench file to its model, or to one error that holds every fault of the file."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from rig.bench.model import (
    Bench,
    BenchFile,
    Board,
    CapturePoint,
    Command,
    ControlLine,
    Emulation,
    Identity,
    Jetson,
    PowerLine,
)
from rig.errors import BenchError
from rig.plan.explain import build
from rig.plan.grammar import did_you_mean
from rig.plan.load import counted, read_bytes
from rig.plan.rules import CAPABILITIES, CAPTURE_POINTS, POWER_SWITCH, capability_complaint
from rig.plan.subject import Complaint
from rig.plan.yaml_positions import Path as KeyPath
from rig.plan.yaml_positions import read_document, unique


def load_bench(path: Path) -> BenchFile:
    """Load one bench file; raises BenchError with all its faults, sorted by position."""
    document = read_document(read_bytes(path, BenchError), str(path))
    faults = list(document.faults)
    bench = None
    if document.data is not None:
        bench, found, _ = build(BenchFile, document)
        faults += found
        if bench is not None:
            faults += [document.fault(c.path, c.message, c.suggestion, at_key=c.at_key) for c in complaints(bench)]
    if bench is None or faults:
        kept = unique(faults)
        raise BenchError(f"{path} has {counted(kept)}", faults=kept)
    return bench


def hardware_bench(file: BenchFile) -> Bench:
    """The usable bench of a hardware bench file; an emulated one is brought up by `rig.emulation` instead."""
    if file.emulation is not None or file.board is None or file.jetson is None or file.capture is None:
        raise BenchError(
            f"bench {file.bench} is an emulated one and has to be brought up first", hint="see `rig bench up --help`"
        )
    return Bench(
        bench=file.bench,
        profile=file.profile,
        capabilities=file.capabilities,
        uncertainty=file.uncertainty,
        network_ready=file.network_ready,
        nic=file.nic,
        board=file.board,
        jetson=file.jetson,
        capture=file.capture,
    )


def complaints(bench: BenchFile) -> Iterator[Complaint]:
    """What no part of a bench file can check alone."""
    yield from _kind(bench)
    for index, name in enumerate(bench.capabilities):
        path: KeyPath = ("capabilities", index)
        complaint = capability_complaint(path, name) or _not_had(path, name, bench)
        if complaint:
            yield complaint
    if bench.uncertainty.declared == 0:
        yield Complaint(
            ("uncertainty", "declared"), "no measurement is free of error; declare what the stamps can show"
        )
    if bench.board:
        yield from _board(bench.board)
    if bench.jetson:
        yield from _jetson(bench.jetson)
    if bench.board and bench.jetson:
        yield from _segment(bench.board.identity, bench.jetson)
    if bench.capture:
        yield from _capture(bench.capture)
    if bench.emulation and bench.emulation.mirror_copies > 1 and bench.emulation.capture != "mirror":
        yield Complaint(("emulation", "mirror_copies"), "has a meaning only with `capture: mirror`", at_key=True)


def _kind(bench: BenchFile) -> Iterator[Complaint]:
    parts = ("board", "jetson", "capture")
    if bench.profile == "emulated" and bench.emulation is None:
        message = "an emulated bench needs the section `emulation`"
        yield Complaint(("profile",), message, "`emulation: {}` takes its defaults")
    elif bench.emulation is not None and bench.profile != "emulated":
        message = "the section `emulation` makes this an emulated bench, but its profile is `hardware`"
        yield Complaint(("emulation",), message, "add `profile: emulated`, or remove the section", True)
    elif bench.emulation is not None:
        for part in parts:
            if getattr(bench, part) is not None:
                yield Complaint((part,), f"an emulated bench brings its own `{part}`", "remove the section", True)
    else:
        for part in parts:
            if getattr(bench, part) is None:
                hint = "an emulated bench has `profile: emulated` and `emulation: {}` instead"
                yield Complaint(("bench",), f"a hardware bench needs the section `{part}`", hint, True)


def _not_had(path: KeyPath, name: str, bench: BenchFile) -> Complaint | None:
    """A well-known capability that the rest of the file does not give this bench: plans would run without it."""
    if name in CAPTURE_POINTS:
        part = bench.emulation or bench.capture
        point = part.capture if isinstance(part, Emulation) else part.point if part else name
        return Complaint(path, f"this bench captures at `{point}`, not at `{name}`") if point != name else None
    if bench.emulation is not None or name not in CAPABILITIES:
        return None
    if name != POWER_SWITCH:
        return Complaint(path, f"only an emulated bench has `{name}`")
    if bench.board is not None and bench.board.power.driver == "none":
        return Complaint(path, f"`{name}` needs the section `power` of the board")
    return None


# --- board ------------------------------------------------------------------------------------------------------------


def _board(board: Board) -> Iterator[Complaint]:
    yield from _port(board.serial.port)
    for name in ("reset", "boot"):
        yield from _line(("board", name), getattr(board, name))
    yield from _power(board.power)
    yield from _flash(board)
    yield from _identity(board.identity)
    if board.banner is not None:
        try:
            re.compile(board.banner)
        except re.error as error:
            yield Complaint(("board", "banner"), f"is not a regular expression: {error}")


def _port(port: str) -> Iterator[Complaint]:
    path: KeyPath = ("board", "serial", "port")
    forms = "a path below /dev, `rfc2217://host:port` or `socket://host:port`"
    if "://" in port:
        scheme, _, rest = port.partition("://")
        if scheme not in ("rfc2217", "socket"):
            yield Complaint(path, f"unknown scheme `{scheme}`", did_you_mean(scheme, ("rfc2217", "socket")))
        elif not re.fullmatch(r"[^\s/:@]+:[0-9]{1,5}([/?].*)?|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5}([/?].*)?", rest):
            yield Complaint(path, f"`{port}` is not of the form `{scheme}://host:port`")
    elif not re.fullmatch(r"/dev/\S+", port):
        yield Complaint(path, f"`{port}` is not a serial port", f"give {forms}")


def _line(path: KeyPath, line: ControlLine) -> Iterator[Complaint]:
    if line.driver == "emulated":
        yield Complaint(
            (*path, "driver"), "only an emulated bench has the `emulated` driver", "dtr, rts, command, none"
        )
    yield from _switch(path, line)
    if line.inverted and line.driver not in ("dtr", "rts"):
        message = f"`inverted` has no meaning for the driver `{line.driver}`"
        yield Complaint((*path, "inverted"), message, "it turns the modem lines dtr and rts", True)


def _power(line: PowerLine) -> Iterator[Complaint]:
    path: KeyPath = ("board", "power")
    if line.driver == "emulated":
        yield Complaint((*path, "driver"), "only an emulated bench has the `emulated` driver", "command, none")
    yield from _switch(path, line)


def _switch(path: KeyPath, line: ControlLine | PowerLine) -> Iterator[Complaint]:
    for key, command in (("on", line.on), ("off", line.off)):
        if line.driver == "command" and command is None:
            yield Complaint((*path, "driver"), f"the `command` driver needs `{key}`", f"`{key}: {{command: [...]}}`")
        elif line.driver != "command" and command is not None:
            message = f"`{key}` has no meaning for the driver `{line.driver}`"
            yield Complaint((*path, key), message, "`driver: command` runs it", True)
        if command is not None:
            yield from _placeholders((*path, key, "command"), command, ("port",))


def _flash(board: Board) -> Iterator[Complaint]:
    path: KeyPath = ("board", "flash")
    flash = board.flash
    if board.banner is not None and "identity_address" not in flash.model_fields_set:
        message = "foreign firmware (`banner`) may keep something of its own where the identity block goes by default"
        hint = "say `identity_address: null`, or at which address it reads the block"
        yield Complaint(("board", "banner"), message, hint, True)
    if flash.driver == "command" and flash.command is None:
        yield Complaint((*path, "driver"), "the `command` driver needs `command`", "`command: {command: [...]}`")
    for key, command, needs in (("command", flash.command, ("image",)), ("read", flash.read, _READ_NEEDS)):
        if command is None:
            continue
        if flash.driver != "command":
            message = f"`{key}` has no meaning for the driver `{flash.driver}`"
            yield Complaint((*path, key), message, "`driver: command` runs it", True)
        where = (*path, key, "command")
        yield from _placeholders(where, command, ("image", "port", "address", "size"))
        missing = [name for name in needs if not any(f"{{{name}}}" in argument for argument in command.command)]
        if missing:
            names = " and ".join(f"`{{{name}}}`" for name in missing)
            yield Complaint(where, f"a programmer needs {names} among its arguments", None, True)
    regions = [(key, getattr(flash, key)) for key in ("image_address", "identity_address", "weights_address")]
    used: dict[int, str] = {}
    for key, address in regions:
        if address in used:
            yield Complaint((*path, key), f"0x{address:08x} is `{used[address]}` already")
        elif address is not None:
            used[address] = key


_READ_NEEDS = ("image", "address", "size")


def _placeholders(path: KeyPath, command: Command, known: tuple[str, ...]) -> Iterator[Complaint]:
    for index, argument in enumerate(command.command):
        for name in re.findall(r"\{([A-Za-z_]+)\}", argument):
            if name not in known:
                suggestion = did_you_mean(name, known, "known here")
                yield Complaint((*path, index), f"unknown placeholder `{{{name}}}`", suggestion)
    if not command.command[0]:
        yield Complaint((*path, 0), "the program's name is empty")
    if command.deadline == 0:
        yield Complaint((*path[:-1], "deadline"), "a deadline of zero lets no program finish")


def _capture(capture: CapturePoint) -> Iterator[Complaint]:
    tap = capture.point == "tap"
    for key in ("interface", "to_board", "from_board"):
        interface = getattr(capture, key)
        wanted = (key != "interface") is tap
        if interface is None and wanted:
            hint = "a tap has one interface per direction: `to_board` and `from_board`" if tap else None
            yield Complaint(("capture",), f"the capture point `{capture.point}` needs `{key}`", hint, True)
        elif interface is not None and not wanted:
            hint = "a tap names `to_board` and `from_board` instead" if tap else "it names `interface` instead"
            message = f"`{key}` has no meaning for the capture point `{capture.point}`"
            yield Complaint(("capture", key), message, hint, True)
        elif interface is not None and not _INTERFACE.fullmatch(interface):
            message = f"`{interface}` is neither an interface name (at most 15 characters) nor a MAC address"
            yield Complaint(("capture", key), message)
    if tap and capture.to_board is not None and capture.to_board == capture.from_board:
        message = f"`{capture.from_board}` is `to_board` already; where one interface shows both directions"
        yield Complaint(("capture", "from_board"), message, "say `point: mirror`")


_INTERFACE = re.compile(r"[0-9A-Za-z_.@-]{1,15}|[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")


# --- addresses --------------------------------------------------------------------------------------------------------


def _identity(identity: Identity) -> Iterator[Complaint]:
    path: KeyPath = ("board", "identity")
    network = _network(identity)
    if network is None:
        yield Complaint((*path, "netmask"), f"`{identity.netmask}` is not a netmask", "such as 255.255.255.0")
        return
    address = IPv4Address(identity.address)
    if network.prefixlen < 31 and address in (network.network_address, network.broadcast_address):
        yield Complaint((*path, "address"), f"`{identity.address}` names the whole of {network}, not one board")
    if identity.gateway is not None and IPv4Address(identity.gateway) not in network:
        yield Complaint((*path, "gateway"), f"`{identity.gateway}` is not in the board's network {network}")


def _segment(identity: Identity, jetson: Jetson) -> Iterator[Complaint]:
    path: KeyPath = ("jetson", "bench_address")
    network = _network(identity)
    if jetson.bench_address == identity.address:
        yield Complaint(path, f"`{jetson.bench_address}` is the board's own address")
    elif network is not None and identity.gateway is None and IPv4Address(jetson.bench_address) not in network:
        message = f"`{jetson.bench_address}` is not in the board's network {network}, and the board has no gateway"
        yield Complaint(path, message)


def _network(identity: Identity) -> IPv4Network | None:
    try:
        return IPv4Network(f"{identity.address}/{identity.netmask}", strict=False)
    except ValueError:
        return None


# --- Jetson -----------------------------------------------------------------------------------------------------------

_KEY_TYPES = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
)


def _jetson(jetson: Jetson) -> Iterator[Complaint]:
    for key in ("host", "user", "python", "model_dir"):
        if not getattr(jetson, key).strip():
            yield Complaint(("jetson", key), "is empty")
    if re.search(r"[\s/@]|://", jetson.host.strip()):
        yield Complaint(("jetson", "host"), f"`{jetson.host}` is not a host name or address", "user and port go apart")
    problem = _host_key_problem(jetson.host_key)
    if problem:
        yield Complaint(("jetson", "host_key"), problem, "take it from `ssh-keyscan HOST`, from `ssh-…` on")


def _host_key_problem(text: str) -> str | None:
    """OpenSSH's public key form (sshd(8), SSH_KNOWN_HOSTS): type, base64 of a blob that begins with the type."""
    parts = text.split()
    if len(parts) < 2:
        return "is not a public host key: `type base64`"
    kind, encoded = parts[0], parts[1]
    if kind not in _KEY_TYPES:
        if encoded in _KEY_TYPES:
            return f"begins with the host `{kind}`; the key is what follows"
        return f"key type `{kind[:40]}` is unknown; known are {', '.join(_KEY_TYPES)}"
    try:
        blob = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return "is damaged: its second word is not base64"
    if not blob.startswith(len(kind).to_bytes(4, "big") + kind.encode()):
        return f"is damaged: the key does not say that it is {kind}"
    if kind == "ssh-ed25519" and len(blob) != 4 + len(kind) + 4 + 32:
        return f"is cut: an ed25519 key has {4 + len(kind) + 36} bytes, this one {len(blob)}"
    return None
