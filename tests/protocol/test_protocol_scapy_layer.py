"""scapy's layers say the same as the plain definition."""

from __future__ import annotations

import pytest

from rig.protocol import TokenError, token_v1, token_v2

pytest.importorskip("scapy")


def test_a_crafted_v2_datagram_is_sound() -> None:
    from scapy.layers.inet import IP, UDP

    from rig.protocol.scapy_layer import TokenV2

    packet = IP(src="192.0.2.1", dst="192.0.2.2") / UDP(sport=40000, dport=5005)
    packet /= TokenV2(type="request", request_id=7, sequence=3, t_send_ns=1 << 40) / token_v2.encode_request(4, [9])
    dissected = IP(bytes(packet))
    datagram = token_v2.decode(bytes(dissected[UDP].payload))
    assert datagram.header == token_v2.Header(
        type=token_v2.REQUEST, request_id=7, sequence=3, t_send_ns=1 << 40, payload_length=8
    )
    assert dissected[TokenV2].request_id == 7
    assert dissected[TokenV2].crc32 == int.from_bytes(bytes(dissected[UDP].payload)[48:52], "little")
    assert bytes(dissected[TokenV2].payload) == token_v2.encode_request(4, [9])


def test_a_wrong_crc_stays_as_it_was_given() -> None:
    from rig.protocol.scapy_layer import TokenV2

    with pytest.raises(TokenError, match="crc32"):
        token_v2.decode(bytes(TokenV2(type="answer", crc32=1)))


def test_a_crafted_v1_datagram_is_sound() -> None:
    from rig.protocol.scapy_layer import TokenV1

    assert token_v1.decode(bytes(TokenV1(sequence=5) / b"\1\0\2\0")) == token_v1.Datagram(5, (1, 2))
    assert TokenV1(token_v1.encode(6, [7])).payload_length == 2
