"""token-v1: the small datagram of the article that the rig grew from; little-endian, 5 bytes before uint16 tokens.

Layout: u16 sequence | u16 payload length in bytes | u8 sum of the payload bytes modulo 256 | uint16 tokens.
An answer repeats the sequence of its request; a request's first uint16 is the number of answer tokens.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rig.protocol import TokenError

HEADER_LENGTH: Final = 5
DEFAULT_PORT: Final = 5005
MAX_TOKENS: Final = 733
"""Tokens per datagram: 1472 less 5, over 2."""

FIELDS: Final[tuple[tuple[str, str, int], ...]] = (
    ("sequence", "H", 0),
    ("payload_length", "H", 2),
    ("sum8", "B", 4),
)
"""(name, struct code, offset) of each header field."""

_HEADER = struct.Struct("<" + "".join(code for _, code, _ in FIELDS))


@dataclass(frozen=True)
class Datagram:
    """One datagram. sequence wraps at 65536."""

    sequence: int
    tokens: tuple[int, ...]


def sum8(payload: bytes | memoryview) -> int:
    """Sum of the payload bytes modulo 256."""
    return sum(payload) & 0xFF


def encode(sequence: int, tokens: Sequence[int]) -> bytes:
    """A whole datagram; TokenError when a field does not fit."""
    if not 0 <= sequence <= 0xFFFF:
        raise TokenError("sequence", f"{sequence} does not fit into 0..65535")
    if len(tokens) > MAX_TOKENS:
        raise TokenError("tokens", f"{len(tokens)} tokens, a datagram holds at most {MAX_TOKENS}")
    for token in tokens:
        if not 0 <= token <= 0xFFFF:
            raise TokenError("tokens", f"token {token} does not fit into 0..65535")
    payload = struct.pack(f"<{len(tokens)}H", *tokens)
    return _HEADER.pack(sequence, len(payload), sum8(payload)) + payload


def decode(data: bytes | memoryview) -> Datagram:
    """A whole UDP payload; TokenError names the first field that is wrong."""
    if len(data) < HEADER_LENGTH:
        raise TokenError("length", f"{len(data)} bytes, a header has {HEADER_LENGTH}")
    sequence, length, checksum = _HEADER.unpack_from(data)
    payload = bytes(data[HEADER_LENGTH:])
    if len(payload) != length:
        raise TokenError("payload_length", f"{length} in the header, {len(payload)} in the datagram")
    if checksum != (computed := sum8(payload)):
        raise TokenError("sum8", f"0x{checksum:02x} in the header, 0x{computed:02x} computed")
    if length % 2:
        raise TokenError("tokens", f"{length} bytes are no whole number of uint16 tokens")
    return Datagram(sequence, struct.unpack(f"<{length // 2}H", payload))
