"""The board's identity block: 64 bytes of flash that say who the board is (docs/architecture.md, "Identity block")."""

from __future__ import annotations

import ipaddress
import struct
import zlib
from dataclasses import dataclass

from rig.bench.model import Identity

MAGIC = b"RGID"
VERSION = 1
SIZE = 64
# magic, version, length, MAC, port, address, netmask, gateway, peer, name, zero; the CRC follows.
_LAYOUT = struct.Struct("<4sHH6sH4s4s4s4s16s12s")
_CRC = struct.Struct("<I")


class IdentityError(ValueError):
    """These bytes are no valid identity block; the text says why."""


@dataclass(frozen=True)
class IdentityBlock:
    """The block's content. Addresses are dotted text, mac is `02:…` in lower case; gateway None when there is none."""

    name: str
    mac: str
    address: str
    netmask: str
    gateway: str | None
    peer: str
    port: int

    @classmethod
    def of(cls, identity: Identity, peer: str) -> IdentityBlock:
        """What the bench file wants the board to be; `peer` is the Jetson's bench address."""
        return cls(
            identity.name, identity.mac, identity.address, identity.netmask, identity.gateway, peer, identity.port
        )

    def pack(self) -> bytes:
        """The 64 bytes."""
        body = _LAYOUT.pack(
            MAGIC,
            VERSION,
            SIZE,
            bytes.fromhex(self.mac.replace(":", "")),
            self.port,
            ipaddress.IPv4Address(self.address).packed,
            ipaddress.IPv4Address(self.netmask).packed,
            ipaddress.IPv4Address(self.gateway).packed if self.gateway else bytes(4),
            ipaddress.IPv4Address(self.peer).packed,
            self.name.encode("ascii"),
            bytes(12),
        )
        return body + _CRC.pack(zlib.crc32(body))

    @classmethod
    def parse(cls, raw: bytes) -> IdentityBlock:
        """The block in `raw`. Raises IdentityError for anything but a whole, undamaged block."""
        if len(raw) != SIZE:
            raise IdentityError(f"{len(raw)} bytes instead of {SIZE}")
        body, (crc,) = raw[: _LAYOUT.size], _CRC.unpack(raw[_LAYOUT.size :])
        magic, version, length, mac, port, address, netmask, gateway, peer, name, _ = _LAYOUT.unpack(body)
        if magic != MAGIC:
            raise IdentityError("erased" if raw == b"\xff" * SIZE else f"magic {magic!r} instead of {MAGIC!r}")
        if version != VERSION or length != SIZE:
            raise IdentityError(f"version {version}, length {length}; known is version {VERSION}, length {SIZE}")
        if zlib.crc32(body) != crc:
            raise IdentityError(f"CRC-32 0x{crc:08x} does not fit the content (0x{zlib.crc32(body):08x})")
        text = name.rstrip(b"\0")
        if not text.isascii():
            raise IdentityError(f"board name {text!r} is not ASCII")
        return cls(
            text.decode("ascii"),
            mac.hex(":"),
            str(ipaddress.IPv4Address(address)),
            str(ipaddress.IPv4Address(netmask)),
            str(ipaddress.IPv4Address(gateway)) if any(gateway) else None,
            str(ipaddress.IPv4Address(peer)),
            port,
        )
