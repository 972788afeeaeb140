"""token-v2 and token-v1 against the shared vectors, by hand and by scapy's independent layers."""

from __future__ import annotations

import contextlib
import json
import struct
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.protocol import TokenError, token_v1, token_v2

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "token_v2.json").read_text())
U8, U16, U32, U64 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 32, 64))
HEADERS = st.builds(
    token_v2.Header,
    type=st.sampled_from(sorted(token_v2.TYPE_NAMES)),
    flags=U8,
    request_id=U32,
    sequence=U32,
    boot_id=U32,
    payload_length=U16,
    t_rx_ns=U64,
    t_ready_ns=U64,
    t_send_ns=U64,
    prev_queued_ns=U32,
)


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_shared_vectors_encode_and_decode_to_the_byte(vector: dict[str, Any]) -> None:
    fields = {key: value for key, value in vector["fields"].items() if key != "crc32"}
    header = bytes.fromhex(vector["header_hex"])
    assert token_v2.encode_header(token_v2.Header(**fields)) == header
    assert asdict(token_v2.decode_header(header)) == fields
    assert token_v2.header_crc(header) == vector["fields"]["crc32"]


def test_the_field_table_is_the_layout_without_gaps() -> None:
    at = 0
    for _, code, offset in token_v2.FIELDS:
        assert offset == at
        at += struct.calcsize("<" + code)
    assert at == token_v2.HEADER_LENGTH == 52
    assert (
        token_v2.HEADER_LENGTH + 4 * token_v2.MAX_TOKENS
        <= 1472
        < token_v2.HEADER_LENGTH + 4 * (token_v2.MAX_TOKENS + 1)
    )


@given(HEADERS, st.binary(max_size=64))
def test_what_was_encoded_is_decoded(header: token_v2.Header, payload: bytes) -> None:
    datagram = token_v2.decode(token_v2.encode(header, payload))
    assert datagram.payload == payload
    assert asdict(datagram.header) == asdict(header) | {"payload_length": len(payload)}


@given(st.binary(max_size=120))
def test_any_bytes_decode_or_raise_token_error(data: bytes) -> None:
    for decode in (token_v2.decode, token_v1.decode):
        with contextlib.suppress(TokenError):
            decode(data)


@given(HEADERS, st.integers(0, 52 * 8 - 1))
def test_every_flipped_bit_is_noticed(header: token_v2.Header, bit: int) -> None:
    damaged = bytearray(token_v2.encode_header(header))
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(TokenError):
        token_v2.decode_header(bytes(damaged))


def with_crc(header: bytes) -> bytes:
    return header[:48] + zlib.crc32(header[:48] + b"\0\0\0\0").to_bytes(4, "little")


SOUND = token_v2.encode(token_v2.Header(type=token_v2.ANSWER, request_id=7), token_v2.encode_tokens([1, 2]))


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"", "length"),
        (SOUND[:51], "length"),
        (with_crc(b"T1" + SOUND[2:52]), "magic"),
        (SOUND[:4] + b"\xff" + SOUND[5:], "crc32"),
        (with_crc(b"T2\x09" + SOUND[3:52]), "type"),
        (with_crc(SOUND[:18] + b"\1\0" + SOUND[20:52]), "reserved"),
        (SOUND[:-1], "payload_length"),
        (SOUND + b"\0", "payload_length"),
    ],
)
def test_an_error_names_the_field(data: bytes, field: str) -> None:
    with pytest.raises(TokenError) as error:
        token_v2.decode(data)
    assert error.value.field == field


def test_values_that_do_not_fit_are_refused_by_name() -> None:
    with pytest.raises(TokenError, match="sequence: 4294967296 does not fit"):
        token_v2.encode_header(token_v2.Header(type=1, request_id=0, sequence=1 << 32))
    with pytest.raises(TokenError, match="at most 355"):
        token_v2.encode_tokens([0] * 356)


def test_a_request_carries_the_answer_tokens_before_its_prompt() -> None:
    payload = token_v2.encode_request(300, [5, 6])
    assert payload == bytes.fromhex("2c010000 05000000 06000000")
    assert token_v2.decode_request(payload) == (300, (5, 6))


@pytest.mark.parametrize(
    ("kind", "request_id", "flags"),
    [(token_v2.SENTINEL_START, 0xFFFFFFFE, 1), (token_v2.SENTINEL_END, 0xFFFFFFFD, 2)],
)
def test_sentinels_are_told_by_type_and_request_id(kind: int, request_id: int, flags: int) -> None:
    sent = token_v2.decode(token_v2.sentinel(kind, sequence=3))
    assert (sent.header.request_id, sent.header.flags, sent.header.sentinel_kind) == (request_id, flags, kind)
    assert not sent.from_board
    returned = token_v2.decode(token_v2.encode(sent.header, struct.pack("<8I", *range(1, 9))))
    assert returned.from_board
    assert token_v2.decode_counters(returned.payload)["uptime_ms"] == 8
    request = token_v2.Header(type=token_v2.REQUEST, request_id=request_id)
    assert request.sentinel_kind is None


def test_token_v1_by_hand() -> None:
    data = token_v1.encode(0x1234, [1, 0xFFFF])
    assert data == bytes.fromhex("3412 0400 ff 0100ffff")  # 01 + 00 + ff + ff = 0x1ff
    assert token_v1.decode(data) == token_v1.Datagram(0x1234, (1, 0xFFFF))


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ("3412 0400", "length"),
        ("3412 0500 ff 0100ffff", "payload_length"),
        ("3412 0400 fe 0100ffff", "sum8"),
        ("3412 0300 00 01ff00", "tokens"),
    ],
)
def test_a_token_v1_error_names_the_field(data: str, field: str) -> None:
    with pytest.raises(TokenError) as error:
        token_v1.decode(bytes.fromhex(data))
    assert error.value.field == field


def test_the_judging_path_does_not_import_scapy() -> None:
    import subprocess
    import sys

    code = (
        "import sys, rig.protocol.token_v1, rig.protocol.token_v2, rig.capture.reader, rig.capture.recorder,"
        " rig.capture.tshark; sys.exit('scapy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
