"""The Wireshark dissector, through tshark on a crafted capture."""

from __future__ import annotations

import dataclasses
import shutil
import struct
from pathlib import Path

import pytest

from rig.capture.tshark import DISSECTOR, command_line, dissect, filter_fault, read_fields
from rig.deadline import Deadline
from rig.errors import CaptureError
from rig.protocol import token_v1, token_v2

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")

BOARD, JETSON, OTHER = bytes([192, 0, 2, 10]), bytes([192, 0, 2, 20]), bytes([192, 0, 2, 30])
T0 = 1_700_000_000


def frame(payload: bytes, src: bytes, dst: bytes, sport: int = 40000, dport: int = 5005) -> bytes:
    segment = struct.pack(">HHHH", sport, dport, 8 + len(payload), 0) + payload
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(segment), 1, 0, 64, 17, 0, src, dst)
    return b"\x02\0\0\0\0\x0b\x02\0\0\0\0\x0a\x08\0" + head + segment


def ask(payload: bytes, jetson: bytes = JETSON) -> bytes:
    return frame(payload, jetson, BOARD)


def reply(payload: bytes, jetson: bytes = JETSON) -> bytes:
    return frame(payload, BOARD, jetson, 5005, 40000)


def v2(kind: int, request_id: int, flags: int = 3, payload: bytes = b"") -> bytes:
    return token_v2.encode(token_v2.Header(type=kind, request_id=request_id, flags=flags, sequence=9), payload)


REQUEST_1 = v2(token_v2.REQUEST, 1, payload=token_v2.encode_request(2, [7]))
DAMAGED = bytearray(v2(token_v2.ANSWER, 2))
DAMAGED[20] ^= 1
FRAMES = [
    (0, ask(REQUEST_1)),  # 1
    (37, reply(v2(token_v2.ANSWER, 1, 1, token_v2.encode_tokens([5])))),  # 2: 37 ns, which a double cannot tell
    (1_000_000, ask(v2(token_v2.REQUEST, 1), OTHER)),  # 3: the same id of another asker
    (2_500_000, reply(v2(token_v2.ANSWER, 1, 2, token_v2.encode_tokens([6])))),  # 4
    (3_000_000, reply(v2(token_v2.ERROR, 1), OTHER)),  # 5
    (4_000_000, ask(v2(token_v2.REQUEST, 2))),  # 6: unanswered
    (5_000_000, ask(token_v2.sentinel(token_v2.SENTINEL_START))),  # 7
    (5_000_100, reply(v2(token_v2.SENTINEL, 0xFFFFFFFE, 1, struct.pack("<8I", *range(1, 9))))),  # 8
    (6_000_000, reply(bytes(DAMAGED))),  # 9: bad CRC, answers nothing
    (6_000_001, reply(v2(token_v2.ANSWER, 5) + b"\0\0\0\0")),  # 10: bad length
    (7_000_000, ask(token_v1.encode(2, [1, 2]))),  # 11: no repetition of the token-v2 request 2
    (7_250_000, reply(token_v1.encode(2, [3]))),  # 12
    (8_000_000, reply(b"\1\0\2\0\xff\0\0")),  # 13: bad sum
    (8_000_001, ask(token_v1.encode(0x3254, list(range(60))))),  # 14: token-v1 whose sequence spells T2
    (8_000_002, ask(b"T2")),  # 15: too short for either
]


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wireshark") / "token.pcap"
    out = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)]
    for time_ns, data in FRAMES:
        out.append(struct.pack("<IIII", T0, time_ns, len(data), len(data)) + data)
    path.write_bytes(b"".join(out))
    return path


def column(capture: Path, field: str) -> list[str]:
    return [row[0] for row in read_fields(capture, [field], Deadline.after(60))]


def test_both_versions_are_told_apart(capture: Path) -> None:
    assert column(capture, "token.version") == ["2"] * 10 + ["1", "1", "1", "1", ""]


def test_fields_of_token_v2(capture: Path) -> None:
    fields = ["request_id", "type", "flags.last", "sequence", "payload_length", "answer_tokens", "tokens", "id"]
    rows = read_fields(capture, [f"token.{name}" for name in fields], Deadline.after(60))
    assert rows[0] == ["1", "1", "1", "9", "8", "2", "1", "7"]
    assert rows[1] == ["1", "2", "0", "9", "4", "", "1", "5"]


def test_every_header_field_is_shown_as_it_was_encoded(tmp_path: Path) -> None:
    header = token_v2.Header(
        type=2, flags=3, request_id=0x01020304, sequence=0x05060708, boot_id=0xA0B0C0D0, t_rx_ns=(1 << 64) - 1,
        t_ready_ns=1 << 63, t_send_ns=0x0102030405060708, prev_queued_ns=0xFFFFFFFE,
    )  # fmt: skip
    data = reply(token_v2.encode(header))
    path = tmp_path / "one.pcap"
    path.write_bytes(
        struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
        + struct.pack("<IIII", T0, 0, len(data), len(data))
        + data
    )
    names = {"t_rx_ns": "t_rx", "t_ready_ns": "t_ready", "t_send_ns": "t_send", "prev_queued_ns": "prev_queued"}
    expected = dataclasses.asdict(header)
    fields = [f"token.{names.get(name, name)}" for name in expected]
    (shown,) = read_fields(path, fields, Deadline.after(60))
    assert [int(value, 0) for value in shown] == list(expected.values())


def test_response_times_are_exact_and_link_both_ways(capture: Path) -> None:
    rows = read_fields(
        capture,
        ["token.request_in", "token.response_in", "token.last_in", "token.response_time"],
        Deadline.after(60),
    )
    assert rows[1] == ["1", "", "", "0.000000037"]
    assert rows[3] == ["1", "", "", "0.002500000"]
    assert rows[0] == ["", "2", "4", ""]
    assert rows[4] == ["3", "", "", "0.002000000"], "another asker's request with the same id is another exchange"
    assert rows[7] == ["7", "", "", "0.000000100"]
    assert rows[11] == ["11", "", "", "0.000250000"]
    assert rows[5] == ["", "", "", ""]


def test_response_times_stay_exact_days_into_a_capture(tmp_path: Path) -> None:
    path = tmp_path / "days.pcap"
    out = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)]
    expected = []
    for index in range(50):
        # Instants whose doubles lie on either side of the true value.
        asked = index * 17_280_000_000_007 + 3
        answered = asked + 1_000_037 + index
        expected.append(f"0.{answered - asked:09d}")
        for at, data in (
            (asked, ask(v2(token_v2.REQUEST, index))),
            (answered, reply(v2(token_v2.ANSWER, index))),
        ):
            seconds, rest = divmod(at, 1_000_000_000)
            out.append(struct.pack("<IIII", T0 + seconds, rest, len(data), len(data)) + data)
    path.write_bytes(b"".join(out))
    rows = read_fields(path, ["token.response_time"], Deadline.after(60), display_filter="token.request_in")
    assert [row[0] for row in rows] == expected


@pytest.mark.parametrize(
    ("expert", "frames"),
    [("bad_crc", ["9"]), ("bad_length", ["10"]), ("bad_sum", ["13"]), ("unanswered", ["6", "14"])],
)
def test_expert_information_marks_what_is_wrong(capture: Path, expert: str, frames: list[str]) -> None:
    rows = read_fields(capture, ["frame.number"], Deadline.after(60), display_filter=f"token.{expert}")
    assert [row[0] for row in rows] == frames


def test_sentinels_and_counters_are_named(capture: Path) -> None:
    text = dissect(capture, [7, 8], Deadline.after(60))
    assert text.count("Sentinel: start (1)") == 2
    assert "rx_requests: Counter: 1" in text
    assert "uptime_ms: Counter: 8" in text


def test_the_command_line_for_people_shows_the_frames(capture: Path) -> None:
    import os
    import shlex
    import subprocess

    argv = shlex.split(command_line(capture, "token.response_time > 0.002"))
    answer = subprocess.run(
        argv, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}, timeout=60
    )
    assert [line.split()[0] for line in answer.stdout.splitlines()] == ["4"]


def test_filters_are_checked_before_anybody_relies_on_them() -> None:
    assert filter_fault("udp.port == 5005 && token.response_time > 0.001", Deadline.after(60)) is None
    fault = filter_fault("udp.prot == 5005", Deadline.after(60))
    assert fault is not None
    assert "udp.prot" in fault
    assert filter_fault("udp.port ==", Deadline.after(60)) is not None


def test_a_script_error_is_an_error_although_tshark_ends_well(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.lua"
    broken.write_text(DISSECTOR.read_text() + "\nthis is no Lua\n")
    monkeypatch.setattr("rig.capture.tshark.DISSECTOR", broken)
    with pytest.raises(CaptureError, match="Lua"):
        read_fields(capture, ["frame.number"], Deadline.after(60))


def test_unknown_fields_and_cut_files_are_errors(capture: Path, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"token\.nonsense"):
        read_fields(capture, ["token.nonsense"], Deadline.after(60))
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(capture.read_bytes()[:-3])
    with pytest.raises(CaptureError, match="cut short"):
        read_fields(cut, ["frame.number"], Deadline.after(60))


def test_a_users_own_settings_and_heuristics_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wireshark").mkdir()
    (tmp_path / "wireshark" / "disabled_protos").write_text("udp\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("WIRESHARK_CONFIG_DIR", str(tmp_path / "wireshark"))
    # Sequence bytes that QUIC's and WireGuard's heuristics take for theirs.
    payloads = [bytes([kind, 0, 0, 0, 3]) + b"\0" * 59 for kind in (0x81, 0xC0, 1, 4)]
    frames = [frame(payload, JETSON, BOARD, 40000, 40001) for payload in payloads]
    path = tmp_path / "steal.pcap"
    path.write_bytes(
        struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
        + b"".join(struct.pack("<IIII", T0, 0, len(data), len(data)) + data for data in frames)
    )
    rows = read_fields(path, ["_ws.col.Protocol", "udp.payload"], Deadline.after(60))
    assert rows == [["UDP", payload.hex()] for payload in payloads]
