"""The annotated capture, read back with Wireshark's own tools: numbers, nanoseconds and comments."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from made_records import make_record
from wire_captures import Fate, Wire, talk

from rig.capture.reader import read_capture
from rig.triage.annotate import annotate, comments_of
from rig.triage.case import case_of_capture, case_of_record
from rig.triage.diagnosis import diagnose
from rig.triage.pcapng_writer import Target, rewrite
from rig.triage.wireshark import open_command, write_profile

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
LOST = (30, 90, 150)


def lossy(wire: Wire) -> None:
    talk(wire, 200, lambda i, at: Fate(lost_in=i in LOST))


def tshark(capture: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> list[str]:
    done = subprocess.run(
        ["tshark", "-r", str(capture), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, **(environment or {})},
    )
    assert "Lua" not in done.stderr
    return done.stdout.splitlines()


@needs_tshark
def test_lost_requests_carry_a_comment_and_everything_else_is_as_it_was(tmp_path: Path) -> None:
    record = make_record(tmp_path / "001-made", make=lossy)
    original = (record / "capture.pcapng").read_bytes()
    case = case_of_record(record)
    out = tmp_path / "out"
    out.mkdir()
    done = annotate(case, diagnose(case), out)
    assert (record / "capture.pcapng").read_bytes() == original
    fields = ("-T", "fields", "-e", "frame.number", "-e", "frame.time_epoch", "-e", "frame.len", "-e", "udp.checksum")
    assert tshark(done.capture, *fields) == tshark(record / "capture.pcapng", *fields)
    failed = tshark(
        done.capture,
        "-Y",
        'frame.comment contains "FAIL no-loss: never answered"',
        "-T",
        "fields",
        "-e",
        "frame.number",
    )
    numbers = [8 + 2 * lost + 1 - earlier for earlier, lost in enumerate(LOST)]
    assert failed == [str(number) for number in numbers]
    assert done.focus == numbers[0]
    assert done.sha256 == hashlib.sha256(original).hexdigest()
    if shutil.which("capinfos"):
        told = subprocess.run(["capinfos", str(done.capture)], capture_output=True, text=True, check=True).stdout
        assert done.sha256 in told
        assert "FAIL made" in told
        assert "nanoseconds" in told


@needs_tshark
def test_slices_hold_the_worst_frame_where_they_say(tmp_path: Path) -> None:
    record = make_record(tmp_path / "001-made", make=lossy)
    case = case_of_record(record)
    out = tmp_path / "out"
    out.mkdir()
    done = annotate(case, diagnose(case), out)
    assert len(done.slices) == 3
    for path, place in done.slices:
        lines = tshark(
            path, "-Y", f'frame.number == {place} && frame.comment contains "FAIL"', "-T", "fields", "-e", "udp.port"
        )
        assert len(lines) == 1
        assert len(read_capture(path)) == 31
    assert not list(out.glob(".*"))


@needs_tshark
def test_the_profile_shows_token_columns_and_guesses_nothing(tmp_path: Path) -> None:
    capture = Wire(1)
    talk(capture, 5)
    capture.udp(10**9, "10.77.0.20", bytes.fromhex("8100000003") + bytes(40), 4000, 4433)
    path = capture.write(tmp_path / "made.pcapng")
    dissector = write_profile(tmp_path / "wireshark")
    environment = {"WIRESHARK_CONFIG_DIR": str(tmp_path / "wireshark")}
    lines = tshark(path, "-C", "rig", "-X", f"lua_script:{dissector}", environment=environment)
    assert any("request" in line and "id=3" in line for line in lines)
    protocols = tshark(path, "-C", "rig", "-T", "fields", "-e", "frame.protocols", environment=environment)
    assert not any("quic" in line or "wg" in line for line in protocols)


@needs_tshark
def test_every_colour_rule_and_column_is_a_filter_that_wireshark_takes(tmp_path: Path) -> None:
    path = Wire(1)
    talk(path, 2)
    capture = path.write(tmp_path / "made.pcapng")
    dissector = write_profile(tmp_path / "wireshark")
    rules = (tmp_path / "wireshark" / "profiles" / "rig" / "colorfilters").read_text().splitlines()
    assert len(rules) >= 5
    for line in rules:
        tshark(capture, "-X", f"lua_script:{dissector}", "-Y", line.split("@")[2], "-c", "1")


def test_the_command_survives_blanks_and_quotes_in_names() -> None:
    line = open_command(Path("/tmp/it's here/wireshark"), Path("/tmp/it's here/a.pcapng"), 7)
    told = subprocess.run(
        ["sh", "-c", f"set -- {line}; printf '%s|' \"$@\""], capture_output=True, text=True, check=True
    )
    parts = told.stdout.split("|")
    assert parts[0] == "WIRESHARK_CONFIG_DIR=/tmp/it's here/wireshark"
    assert parts[-5:] == ["-r", "/tmp/it's here/a.pcapng", "-g", "7", ""]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("magic", [0xA1B2C3D4, 0xA1B23C4D])
def test_classic_pcap_of_any_kind_becomes_pcapng_with_the_same_frames(order: str, magic: int, tmp_path: Path) -> None:
    wire = Wire(2)
    talk(wire, 20)
    scale = 1000 if magic == 0xA1B2C3D4 else 1
    data = struct.pack(order + "IHHIIII", magic, 2, 4, 0, 0, 65535, 1)
    for at, frame in sorted(wire.frames, key=lambda one: one[0]):
        data += (
            struct.pack(order + "IIII", 1_700_000_000 + at // 10**9, at % 10**9 // scale, len(frame), len(frame))
            + frame
        )
    source = tmp_path / "made.pcap.gz"
    source.write_bytes(gzip.compress(data))
    target = tmp_path / "out.pcapng"
    with target.open("wb") as stream:
        assert rewrite(source, [Target(stream)], comments={3: "here"}) == len(wire.frames)
    before, after = read_capture(source), read_capture(target)
    assert before.time_ns.tolist() == after.time_ns.tolist()
    assert before.number.tolist() == after.number.tolist()
    assert before.payload_len.tolist() == after.payload_len.tolist()


@needs_tshark
def test_frames_keep_their_numbers_behind_blocks_that_are_no_frames(tmp_path: Path) -> None:
    source, copy = Wire(1), tmp_path / "copy.pcapng"
    lossy(source)
    plain = source.write(tmp_path / "plain.pcapng").read_bytes()
    custom = struct.pack("<IIIII", 0xBAD, 20, 32473, 0, 20)
    first = plain.index(struct.pack("<I", 6), plain.index(struct.pack("<I", 1), 28))
    path = tmp_path / "custom.pcapng"
    path.write_bytes(plain[:first] + custom * 3 + plain[first:])
    with copy.open("wb") as stream:
        rewrite(path, [Target(stream)])
    shown = ("-T", "fields", "-e", "frame.number", "-e", "frame.time_epoch", "-Y", "udp")
    assert tshark(copy, *shown) == tshark(path, *shown)
    assert tshark(copy, *shown)[0].startswith("4\t")


def test_drop_counts_of_the_source_are_kept(tmp_path: Path) -> None:
    wire = Wire(2)
    talk(wire, 5)
    source = wire.write(tmp_path / "made.pcapng", dropped=17)
    with (tmp_path / "out.pcapng").open("wb") as stream:
        rewrite(source, [Target(stream)])
    assert read_capture(tmp_path / "out.pcapng").interfaces[0].dropped == 17


def test_a_comment_longer_than_an_option_holds_is_cut_and_the_file_stays_sound(tmp_path: Path) -> None:
    wire = Wire(2)
    talk(wire, 5)
    source = wire.write(tmp_path / "made.pcapng")
    with (tmp_path / "out.pcapng").open("wb") as stream:
        rewrite(source, [Target(stream, "é" * 70_000)], comments={1: "x" * 200_000})
    table = read_capture(tmp_path / "out.pcapng")
    assert len(table) == len(wire.frames)
    assert table.findings == ()


def test_comments_name_violations_before_causes(tmp_path: Path) -> None:
    case = case_of_record(make_record(tmp_path / "001-made", make=lossy))
    comments = comments_of(case, diagnose(case))
    first = comments[8 + 2 * LOST[0] + 1]
    assert first.startswith("FAIL no-loss: never answered")
    assert "CAUSE Frames to the board are lost (path-loss-to-board)" in first
    alone = case_of_capture(case.capture)
    assert all(text.startswith("CAUSE") for text in comments_of(alone, diagnose(alone)).values())
