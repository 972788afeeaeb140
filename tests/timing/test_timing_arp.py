"""Unanswered ARP, from hand-made tables and through the capture reader."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest
from timing_captures import ADDRESSES, BOARD, JETSON, MS, Capture

from rig.capture.reader import read_capture
from rig.timing.arp import unanswered

RIG = ADDRESSES["rig"]
ASK, REPLY = 1, 2


@pytest.mark.parametrize(
    ("frames", "silent"),
    [
        ([], []),
        ([(ASK, JETSON, BOARD)], [0]),
        ([(ASK, JETSON, BOARD), (REPLY, BOARD, JETSON)], []),
        ([(ASK, RIG, BOARD), (REPLY, BOARD, RIG), (ASK, JETSON, BOARD), (ASK, JETSON, BOARD)], [2, 3]),
        ([(ASK, BOARD, BOARD)], []),  # gratuitous
        ([(ASK, BOARD, JETSON), (REPLY, JETSON, BOARD)], []),
        ([(ASK, JETSON, BOARD), (REPLY, RIG, JETSON)], [0]),
    ],
)
def test_only_questions_for_the_board_without_its_answer_count(frames, silent: list[int]) -> None:
    capture = Capture()
    for at, (operation, sender, target) in enumerate(frames):
        capture.arp(at * MS, operation, sender, target)
    assert unanswered(capture.table(), BOARD).tolist() == silent


def test_an_address_that_is_no_ipv4_has_no_arp() -> None:
    capture = Capture()
    capture.arp(0, ASK, JETSON, BOARD)
    assert unanswered(capture.table(), "fe80::1").tolist() == []


def test_arp_frames_that_the_reader_decoded_are_understood(tmp_path: Path) -> None:
    packet = struct.pack(">HHBBH", 1, 0x0800, 6, 4, ASK)
    packet += bytes(6) + socket.inet_aton(JETSON) + bytes(6) + socket.inet_aton(BOARD)
    frame = b"\xff" * 6 + b"\x02" * 6 + b"\x08\x06" + packet + bytes(18)
    cut = frame[:30]
    file = tmp_path / "arp.pcap"
    file.write_bytes(
        struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
        + struct.pack("<IIII", 1_700_000_000, 5, len(cut), len(frame))
        + cut
        + struct.pack("<IIII", 1_700_000_000, 9, len(frame), len(frame))
        + frame
    )
    assert unanswered(read_capture(file), BOARD).tolist() == [1]
