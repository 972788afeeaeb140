"""What a bench file says: one board, one Jetson, one capture point, their lines. The controller sees only this model.

A hardware bench names everything itself. An emulated bench has an `emulation` section; `rig.emulation` brings it up and
returns the same model with `board`, `jetson` and `capture` filled in, so nothing above this room can tell them apart.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from rig.plan.model import Impairment, Model, Name
from rig.plan.units import Duration

_MAC = r"[0-9a-f]{2}(:[0-9a-f]{2}){5}"


def _mac(value: str) -> str:
    if not re.fullmatch(_MAC, value):
        raise ValueError(
            f"{value!r} is not a MAC address: six pairs of lower-case hex digits, such as 02:00:00:00:00:01"
        )
    if int(value[:2], 16) & 1:
        raise ValueError(f"{value!r} is a group address; a board needs one of its own (first byte even)")
    return value


def _ipv4(value: str) -> str:
    try:
        return str(IPv4Address(value))
    except ValueError as error:
        raise ValueError(f"{value!r} is not an IPv4 address: {error}") from None


Mac = Annotated[str, AfterValidator(_mac), WithJsonSchema({"type": "string", "pattern": f"^{_MAC}$"})]
Ipv4 = Annotated[str, AfterValidator(_ipv4), WithJsonSchema({"type": "string", "format": "ipv4"})]


Address = Annotated[int, Field(ge=0, le=0xFFFF_FFFF)]


class Command(Model):
    """A vendor's or lab's own program: argument list, no shell; `{image}`, `{port}`, … are replaced."""

    command: Annotated[list[str], Field(min_length=1)]
    deadline: Duration = 60_000_000_000


class Serial(Model):
    """The board's UART. port: a device path, `/dev/serial/by-id|by-path/…`, `rfc2217://…` or `socket://…`."""

    port: str
    baud: Annotated[int, Field(ge=300, le=12_000_000)] = 115_200
    """Console speed, 8N1."""


class ControlLine(Model):
    """How a line (reset, boot) is driven: a modem line of the serial port, the emulator, or a command."""

    driver: Literal["dtr", "rts", "emulated", "command", "none"] = "none"
    inverted: bool = False
    """True when asserting the line needs the modem signal low."""
    on: Command | None = None
    """`command` driver: assert (reset held, boot ROM selected)."""
    off: Command | None = None
    """`command` driver: release."""


class PowerLine(Model):
    """How the board's power is switched: a command (PDU, USB hub, relay), the emulator, or not at all."""

    driver: Literal["command", "emulated", "none"] = "none"
    on: Command | None = None
    """`command` driver: power on."""
    off: Command | None = None
    """`command` driver: power off."""
    off_for: Duration = 2_000_000_000
    """How long a power cycle leaves it off: until the board's capacitors are empty."""


class Flash(Model):
    """How images reach the board."""

    driver: Literal["an3155", "command"] = "an3155"
    baud: Annotated[int, Field(ge=1200, le=2_000_000)] = 115_200
    parity: Literal["even", "none"] = "even"
    """AN3155 is 8E1; a pseudo-terminal cannot carry parity, so the emulated bench says `none`."""
    product_id: Annotated[int, Field(ge=0, le=0xFFFF)] | None = 0x449
    """Refuse a board that answers Get ID differently; None accepts any."""
    image_address: Address = 0x0800_0000
    identity_address: Address | None = 0x0802_0000
    """Flash page of the identity block; null where the board keeps its own identity."""
    weights_address: Address | None = 0x0804_0000
    """Where model weights go; null for a board without a region for them."""
    command: Command | None = None
    """`command` driver: the programmer; `{image}` is the file to write, its `{size}` bytes belong at `{address}`."""
    read: Command | None = None
    """`command` driver: reads `{size}` bytes at `{address}` into the file `{image}`, so that the rig can compare."""


class Identity(Model):
    """What the rig writes into the board's identity block; the banner must show the same."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,16}$")]
    mac: Mac
    address: Ipv4
    netmask: Ipv4 = "255.255.255.0"
    gateway: Ipv4 | None = None
    port: Annotated[int, Field(ge=1, le=65535)] = 5005


class Board(Model):
    serial: Serial
    reset: ControlLine = ControlLine()
    boot: ControlLine = ControlLine()
    power: PowerLine = PowerLine()
    flash: Flash = Flash()
    identity: Identity
    banner: str | None = None
    """Regular expression with which a foreign image announces itself; None means this project's own banner."""
    boot_budget: Duration = 10_000_000_000


class Jetson(Model):
    """The SSH host of the inference run. `host` is its management address, `bench_address` its side of the segment."""

    host: str
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    user: str
    host_key: str
    """Pinned public host key as in known_hosts: `ssh-ed25519 AAAA…`."""
    key: str | None = None
    """Private key file; None uses the agent."""
    python: str = "python3"
    """Interpreter that has the engine's packages."""
    bench_address: Ipv4
    model_dir: str = "~/models"
    work_dir: str = "~/.rig"
    """Lease, uploaded runner and the files of a run; one folder per Jetson, whoever uses it."""


class CapturePoint(Model):
    """Where packets are recorded. `tap` has one interface per direction, the others a single one."""

    point: Literal["inline", "mirror", "tap", "jetson"] = "inline"
    interface: str | None = None
    """Name or MAC of the capturing interface: the rig's, at point `jetson` the Jetson's own. Not at a tap."""
    to_board: str | None = None
    """`tap`: the interface that sees what goes to the board."""
    from_board: str | None = None
    """`tap`: the interface that sees what comes from the board."""
    duplication: bool = False
    """True where the mirror is known to show frames twice."""

    @property
    def interfaces(self) -> tuple[str, ...]:
        """The interfaces in the order in which they are captured; at a tap first what goes to the board."""
        given = (self.to_board, self.from_board) if self.point == "tap" else (self.interface,)
        return tuple(one for one in given if one is not None)


class Uncertainty(Model):
    """e, the measurement uncertainty of a time stamp difference on this bench."""

    declared: Duration


class NetworkReady(Model):
    budget: Duration = 45_000_000_000
    probes: Annotated[int, Field(ge=1, le=100)] = 3


NicGroup = Literal["offloads", "coalescing", "eee"]


class Nic(Model):
    """How the NICs on the measured path are set while the bench is in use; they are put back afterwards."""

    disable: list[NicGroup] = Field(default_factory=list)
    """Switched off: frame merging (GRO, GSO, TSO, LRO), interrupt coalescing, Energy-Efficient Ethernet."""


class Emulation(Model):
    """The emulated bench's own settings; its presence makes the bench an emulated one."""

    capture: Literal["inline", "mirror", "tap", "jetson"] = "inline"
    mirror_copies: Annotated[int, Field(ge=1, le=2)] = 1
    """2: the mirror port shows every frame twice, as a switch does that mirrors both sides of a port."""
    flash_baud: Annotated[int, Field(ge=1200, le=2_000_000)] = 921_600
    impairment: list[Impairment] = Field(default_factory=list)


class BenchFile(Model):
    """One YAML file in `benches/`."""

    bench: Name
    description: str = ""
    profile: Literal["hardware", "emulated"] = "hardware"
    capabilities: list[Name] = Field(default_factory=list)
    uncertainty: Uncertainty
    network_ready: NetworkReady = NetworkReady()
    nic: Nic = Nic()
    board: Board | None = None
    jetson: Jetson | None = None
    capture: CapturePoint | None = None
    emulation: Emulation | None = None


class Bench(Model):
    """A bench that can be used: nothing left open."""

    bench: Name
    profile: Literal["hardware", "emulated"]
    capabilities: list[Name]
    uncertainty: Uncertainty
    network_ready: NetworkReady
    nic: Nic = Nic()
    board: Board
    jetson: Jetson
    capture: CapturePoint
    emulation: Emulation | None = None
