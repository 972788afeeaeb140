"""The runner's own encoder and decoder against the shared vectors and the rig's definition; its Python floor."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.jetson import runner
from rig.protocol import token_v1, token_v2

RUNNER = Path(runner.__file__)
VECTORS = json.loads((Path(__file__).resolve().parents[1] / "vectors" / "token_v2.json").read_text())
U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_vector_decodes(vector: dict[str, Any]) -> None:
    fields = vector["fields"]
    payload = bytes(fields["payload_length"])
    got = runner.decode_v2(bytes.fromhex(vector["header_hex"]) + payload)
    assert got is not None
    assert got == (
        *(fields[name] for name in ("type", "flags", "request_id", "sequence", "boot_id")),
        *(fields[name] for name in ("t_rx_ns", "t_ready_ns", "t_send_ns", "prev_queued_ns")),
        payload,
    )


@pytest.mark.parametrize("vector", [v for v in VECTORS if v["fields"]["t_rx_ns"] == 0], ids=lambda v: v["name"])
def test_vector_encodes(vector: dict[str, Any]) -> None:
    f = vector["fields"]
    data = runner.encode_v2(
        f["type"], f["flags"], f["request_id"], f["sequence"], f["boot_id"], f["t_ready_ns"], f["t_send_ns"],
        f["prev_queued_ns"], bytes(f["payload_length"]),
    )  # fmt: skip
    assert data[:52].hex() == vector["header_hex"]


@given(
    st.tuples(st.integers(1, 5), st.integers(0, 3), U32, U32, U32, U64, U64, U32),
    st.binary(max_size=64),
)
def test_rig_reads_what_the_runner_writes(fields: tuple[int, ...], payload: bytes) -> None:
    got = token_v2.decode(runner.encode_v2(*fields, payload))
    header = got.header
    assert got.payload == payload
    assert fields == (
        header.type, header.flags, header.request_id, header.sequence, header.boot_id, header.t_ready_ns,
        header.t_send_ns, header.prev_queued_ns,
    )  # fmt: skip


@given(st.integers(0, 2**16 - 1), st.lists(st.integers(0, 2**16 - 1), max_size=20), st.integers(1, 2**16 - 1))
def test_rig_reads_the_runners_token_v1(sequence: int, tokens: list[int], answer_tokens: int) -> None:
    data = runner.encode_v1(sequence, runner.request_payload("token-v1", tokens, answer_tokens))
    assert token_v1.decode(data) == token_v1.Datagram(sequence, (answer_tokens, *tokens))
    back = runner.decode_v1(data)
    assert back is not None
    assert back.request_id == sequence


@given(st.binary(max_size=80), st.integers(0, 51), st.integers(1, 255))
def test_damaged_header_is_refused(payload: bytes, position: int, flip: int) -> None:
    data = bytearray(runner.encode_v2(1, 3, 7, 8, 9, 10, 11, 12, payload))
    data[position] ^= flip
    assert runner.decode_v2(bytes(data)) is None


@given(st.binary(max_size=120))
def test_any_bytes_are_survived(data: bytes) -> None:
    runner.decode_v2(data)
    runner.decode_v1(data)


def test_source_is_python_3_6() -> None:
    ast.parse(RUNNER.read_text(), feature_version=(3, 6))


def test_source_imports_nothing_but_the_standard_library_and_the_engine() -> None:
    imported = set()
    for node in ast.walk(ast.parse(RUNNER.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported - set(sys.stdlib_module_names) == {"numpy", "onnxruntime"}
