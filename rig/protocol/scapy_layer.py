# SPDX-License-Identifier: GPL-2.0-only
"""token-v1 and token-v2 as scapy layers, to craft stimuli and malformed datagrams; never on the judging path.

    from rig.protocol.scapy_layer import TokenV1, TokenV2
    IP(dst=...) / UDP(sport=40000, dport=5005) / TokenV2(type="request", request_id=7) / tokens

Length, CRC and sum are computed where they are not given. TokenV2 is bound to UDP port 5005 in both directions.
"""

from __future__ import annotations

import zlib
from typing import Any

from scapy.fields import (
    ByteEnumField,
    FlagsField,
    LEIntField,
    LELongField,
    LEShortField,
    StrFixedLenField,
    XByteField,
    XLEIntField,
)
from scapy.layers.inet import UDP
from scapy.packet import Packet, bind_bottom_up

from rig.protocol import token_v1, token_v2


class TokenV2(Packet):
    """token-v2; the payload holds the u32 token ids."""

    name = "token-v2"
    fields_desc = [  # noqa: RUF012 - scapy's metaclass wants a plain list
        StrFixedLenField("magic", token_v2.MAGIC, length=2),
        ByteEnumField("type", token_v2.REQUEST, dict(token_v2.TYPE_NAMES)),
        FlagsField("flags", token_v2.FLAG_FIRST | token_v2.FLAG_LAST, 8, ["first", "last"]),
        LEIntField("request_id", 0),
        LEIntField("sequence", 0),
        XLEIntField("boot_id", 0),
        LEShortField("payload_length", None),
        LEShortField("reserved", 0),
        LELongField("t_rx_ns", token_v2.UNKNOWN_TIME),
        LELongField("t_ready_ns", token_v2.UNKNOWN_TIME),
        LELongField("t_send_ns", token_v2.UNKNOWN_TIME),
        LEIntField("prev_queued_ns", token_v2.UNKNOWN_QUEUED),
        XLEIntField("crc32", None),
    ]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in what was left to compute."""
        if self.payload_length is None:
            pkt = pkt[:16] + len(pay).to_bytes(2, "little") + pkt[18:]
        if self.crc32 is None:
            pkt = pkt[:-4] + zlib.crc32(pkt[:-4] + b"\0\0\0\0").to_bytes(4, "little")
        return bytes(pkt + pay)

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes | None]:
        """What lies beyond the declared payload is padding."""
        return s[: self.payload_length], s[self.payload_length :]


class TokenV1(Packet):
    """token-v1; the payload holds the uint16 tokens."""

    name = "token-v1"
    fields_desc = [  # noqa: RUF012 - scapy's metaclass wants a plain list
        LEShortField("sequence", 0),
        LEShortField("payload_length", None),
        XByteField("sum8", None),
    ]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in what was left to compute."""
        if self.payload_length is None:
            pkt = pkt[:2] + len(pay).to_bytes(2, "little") + pkt[4:]
        if self.sum8 is None:
            pkt = pkt[:4] + bytes([token_v1.sum8(pay)])
        return bytes(pkt + pay)

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes | None]:
        """What lies beyond the declared payload is padding."""
        return s[: self.payload_length], s[self.payload_length :]


def _bind(lower: Any, upper: Any, **fields: int) -> None:
    bind_bottom_up(lower, upper, **fields)


_bind(UDP, TokenV2, sport=token_v2.DEFAULT_PORT)
_bind(UDP, TokenV2, dport=token_v2.DEFAULT_PORT)
