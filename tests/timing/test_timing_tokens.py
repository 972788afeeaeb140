"""The vectorised decoders against the scalar ones of rig.protocol."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_captures import MS, Capture

from rig.protocol import TokenError, token_v1, token_v2
from rig.protocol.token_v2 import Header
from rig.timing.tokens import (
    BAD_CHECKSUM,
    BAD_FIELD,
    BAD_LENGTH,
    CUT,
    NOT_TOKEN,
    SOUND,
    decode_v1,
    decode_v2,
    udp_rows,
)

u8, u16, u32, u64 = (st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64))
headers = st.builds(
    Header,
    type=st.integers(1, 5),
    flags=u8,
    request_id=u32,
    sequence=u32,
    boot_id=u32,
    t_rx_ns=u64,
    t_ready_ns=u64,
    t_send_ns=u64,
    prev_queued_ns=u32,
)


def decode_all(payloads: list[bytes]):
    capture = Capture()
    for i, payload in enumerate(payloads):
        capture.to_board(i * MS, payload)
    table = capture.table()
    return decode_v2(table, udp_rows(table))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(headers, st.integers(1, 20)), min_size=1, max_size=20))
def test_every_header_field_is_decoded_as_the_scalar_decoder_does(made) -> None:
    payloads = [token_v2.encode(header, bytes(4 * words)) for header, words in made]
    tokens = decode_all(payloads).tokens
    assert len(tokens) == len(payloads)
    for i, payload in enumerate(payloads):
        header = token_v2.decode_header(payload)
        assert int(tokens.type[i]) == header.type
        assert (bool(tokens.first[i]), bool(tokens.last[i])) == (header.first, header.last)
        for name in ("request_id", "sequence", "boot_id", "t_rx_ns", "t_ready_ns", "t_send_ns", "prev_queued_ns"):
            assert int(getattr(tokens, name)[i]) == getattr(header, name), name


@settings(max_examples=100, deadline=None)
@given(headers, st.integers(0, 51), st.integers(1, 255))
def test_any_damaged_header_byte_is_refused_as_by_the_scalar_decoder(header: Header, at: int, flip: int) -> None:
    payload = bytearray(token_v2.encode(header, bytes(8)))
    payload[at] ^= flip
    decoded = decode_all([bytes(payload)])
    try:
        token_v2.decode(bytes(payload))
        sound = True
    except TokenError:
        sound = False
    assert (int(decoded.reason[0]) == SOUND) == sound


def test_reasons_tell_what_is_wrong() -> None:
    good = token_v2.encode(Header(type=2, request_id=1), bytes(8))
    bad_type = bytearray(good)
    bad_type[2] = 9
    bad_type[48:52] = token_v2.header_crc(bytes(bad_type)).to_bytes(4, "little")
    bad_crc = good[:20] + b"\x01" + good[21:]
    decoded = decode_all([good, b"short", b"x" * 60, bad_crc, bytes(bad_type), good + b"more"])
    assert decoded.reason.tolist() == [SOUND, NOT_TOKEN, NOT_TOKEN, BAD_CHECKSUM, BAD_FIELD, BAD_LENGTH]
    assert decoded.tokens.row.tolist() == [0]


def test_header_cut_by_the_snaplen_is_told_from_a_foreign_datagram() -> None:
    capture = Capture()
    capture.to_board(0, token_v2.encode(Header(type=2, request_id=1), bytes(8)), captured=51)
    capture.to_board(1, token_v2.encode(Header(type=2, request_id=1), bytes(8)), captured=52)
    table = capture.table()
    assert decode_v2(table, udp_rows(table)).reason.tolist() == [CUT, SOUND]


def test_token_counts_and_asked_tokens() -> None:
    capture = Capture()
    capture.request(0, 1, tokens=300)
    capture.answer(1, 1, tokens=7)
    table = capture.table()
    tokens = decode_v2(table, udp_rows(table)).tokens
    assert tokens.tokens.tolist() == [2, 7]
    assert tokens.answer_tokens.tolist() == [300, -1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(u16, st.lists(u16, max_size=40), st.booleans()), min_size=1, max_size=30))
def test_token_v1_agrees_with_the_scalar_decoder(made) -> None:
    capture = Capture()
    expected = []
    for i, (sequence, tokens, damage) in enumerate(made):
        payload = bytearray(token_v1.encode(sequence, tokens))
        if damage:
            payload[-1] ^= 0x10
        capture.to_board(i, bytes(payload))
        try:
            expected.append((token_v1.decode(bytes(payload)).sequence, len(token_v1.decode(bytes(payload)).tokens)))
        except TokenError:
            expected.append(None)
    table = capture.table()
    decoded = decode_v1(table, udp_rows(table))
    assert [reason == SOUND for reason in decoded.reason] == [value is not None for value in expected]
    found = list(zip(decoded.tokens.sequence.tolist(), decoded.tokens.tokens.tolist(), strict=True))
    assert found == [value for value in expected if value is not None]


def test_offsets_beyond_the_data_are_cut_not_read() -> None:
    capture = Capture()
    capture.request(0, 1)
    table = capture.table()
    table.payload_off[0] = np.uint64(1 << 40)
    assert decode_v2(table, udp_rows(table)).reason.tolist() == [CUT]
