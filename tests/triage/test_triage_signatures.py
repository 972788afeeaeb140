"""Every wire signature, rebuilt with other noise each time, is told apart by the capture alone."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from wire_captures import Fate, Wire, talk
from wire_signatures import SIGNATURES, make

from rig.triage.case import case_of_capture
from rig.triage.diagnosis import BELIEVED, Diagnosis, all_rules, diagnose, picture_of

MS = 1_000_000


def of(name: str, seed: int, folder: Path) -> Diagnosis:
    return diagnose(case_of_capture(make(name, seed, folder / "made.pcapng")))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", SIGNATURES)
def test_the_wire_picture_of_the_cause_comes_first(name: str, seed: int, tmp_path: Path) -> None:
    found = of(name, seed, tmp_path)
    said = found.first.name if found.first else "none"
    told = [(cause.name, cause.score) for cause in found.causes]
    assert picture_of(said) == picture_of(SIGNATURES[name][1]), told


@pytest.mark.parametrize("name", [name for name in SIGNATURES if "healthy" in name])
def test_no_healthy_capture_is_called_faulty_whatever_the_noise(name: str, tmp_path: Path) -> None:
    assert [seed for seed in range(15) if of(name, seed, tmp_path).first is not None] == []


def test_every_believed_cause_shows_frames_that_are_in_the_capture(tmp_path: Path) -> None:
    for name in ("V05 ref_reuse_before_dma", "V08 tx_kick_lost", "requests lost in the link", "clock stepped"):
        capture = case_of_capture(make(name, 1, tmp_path / "made.pcapng"))
        first = diagnose(capture).first
        assert first is not None
        frames = [frame for clue in first.support.for_it for frame in clue.frames]
        assert frames
        assert set(frames) <= set(capture.table.number.tolist())


def test_frames_of_a_loss_are_the_requests_that_got_no_answer(tmp_path: Path) -> None:
    wire = Wire(3)
    talk(wire, 100, lambda i, at: Fate(lost_in=i in (10, 40, 41)))
    found = diagnose(case_of_capture(wire.write(tmp_path / "made.pcapng"))).first
    assert found is not None
    assert found.name == "path-loss-to-board"
    # Three probes and a start sentinel (8 frames), then two frames per exchange; a lost one has only its request.
    assert found.support.for_it[0].frames == (8 + 21, 8 + 21 + 59, 8 + 21 + 60)


def test_one_direction_of_delay_is_told_from_the_other_and_measured(tmp_path: Path) -> None:
    for way, fate in (("to-board", Fate(there=5 * MS)), ("from-board", Fate(hold=5 * MS))):
        wire = Wire(4)
        talk(wire, 80, lambda i, at, fate=fate: fate)  # type: ignore[misc]
        found = diagnose(case_of_capture(wire.write(tmp_path / f"{way}.pcapng"))).first
        assert found is not None
        assert found.name == f"path-delay-{way}"
        measured = float(found.support.about.removesuffix(" ms"))
        assert abs(measured - 5) < 0.1


def test_a_delay_below_the_noise_of_scheduling_is_no_cause(tmp_path: Path) -> None:
    wire = Wire(5)
    talk(wire, 80, lambda i, at: Fate(there=MS // 2))
    assert diagnose(case_of_capture(wire.write(tmp_path / "made.pcapng"))).first is None


def test_a_stall_that_passes_is_no_step_of_the_clock(tmp_path: Path) -> None:
    wire = Wire(6)
    talk(wire, 250, lambda i, at: Fate(hold=max(0, (920 + 120) * MS - at) if at > 920 * MS else 0))
    found = diagnose(case_of_capture(wire.write(tmp_path / "made.pcapng")))
    assert found.first is None
    assert "board-stall" in [cause.name for cause in found.causes]


def test_a_board_clock_that_falls_behind_and_catches_up_is_no_step_of_the_captures_clock(tmp_path: Path) -> None:
    """An emulator that got no processor: answers wait, then requests do, and afterwards all is as before."""
    wire = Wire(6)

    def fate(i: int, at: int) -> Fate:
        behind = 100 * MS if 800 * MS <= at < 950 * MS else 0
        ahead = 100 * MS if 950 * MS <= at < 1100 * MS else 0
        return Fate(hold=behind, there=ahead)

    talk(wire, 250, fate)
    found = diagnose(case_of_capture(wire.write(tmp_path / "made.pcapng")))
    assert "clock-step" not in [cause.name for cause in found.causes]


def test_requests_that_are_late_at_random_in_dense_traffic_missed_no_interrupt(tmp_path: Path) -> None:
    said = []
    for seed in range(30):
        wire = Wire(seed)
        chance = np.random.default_rng(seed)
        late = {int(i): int(chance.integers(1_050_000, 1_600_000)) for i in chance.choice(300, 4, replace=False)}
        talk(wire, 300, lambda i, at, late=late: Fate(there=late.get(i, 0)), every=MS)  # type: ignore[misc]
        found = diagnose(case_of_capture(wire.write(tmp_path / "made.pcapng")))
        said += [cause.name for cause in found.causes if cause.score >= BELIEVED]
    assert "rx-interrupt-missed" not in said


def test_requests_that_were_overtaken_did_not_wait_in_a_fifo(tmp_path: Path) -> None:
    wire = Wire(12)
    for i in range(4):
        wire.sentinel(i * MS, 1 if i == 3 else 3)
    for i in range(200):
        wire.request((10 + 4 * i) * MS, i + 1)
    for i in sorted(range(200), key=lambda i: i + 1.5 * (i % 7 == 3)):
        # Every seventh request is held until the next one has passed.
        received = (10 + 4 * i) * MS + wire.noise() + (4_250_000 if i % 7 == 3 else 0)
        sent = received + MS
        wire.answer(sent, sent + wire.noise(), i + 1, received=received, ready=sent)
    wire.sentinel(1200 * MS, 2)
    found = diagnose(case_of_capture(wire.write(tmp_path / "made.pcapng")))
    assert found.first is not None
    assert found.first.name == "path-reordering-to-board"
    assert "rx-interrupt-missed" not in [cause.name for cause in found.causes]


def test_drops_that_the_file_admits_explain_a_loss(tmp_path: Path) -> None:
    wire = Wire(7)
    talk(wire, 100, lambda i, at: Fate(lost_out=i in (20, 60)))
    case = case_of_capture(wire.write(tmp_path / "made.pcapng", dropped=2))
    names = [cause.name for cause in diagnose(case).causes]
    assert names[0] == "capture-loss"


def test_an_empty_capture_and_one_of_other_traffic_are_diagnosed_without_a_fault(tmp_path: Path) -> None:
    empty = Wire(8)
    assert diagnose(case_of_capture(empty.write(tmp_path / "empty.pcapng"))).first is None
    other = Wire(9)
    for i in range(50):
        other.udp(i * MS, "10.77.0.20", b"hello", 4000, 53)
        other.udp(i * MS + 300_000, "10.77.0.10", b"there", 53, 4000)
    assert diagnose(case_of_capture(other.write(tmp_path / "other.pcapng"))).first is None


def test_one_way_traffic_of_an_unknown_protocol_accuses_nobody(tmp_path: Path) -> None:
    wire = Wire(9)
    for i in range(60):
        wire.udp(i * 50 * MS, "10.77.0.20", b"sensor reading", 4000, 514)
    for i in range(3):
        wire.udp(i * MS, "10.77.0.10", b"hello", 514, 4000)
    assert diagnose(case_of_capture(wire.write(tmp_path / "made.pcapng"))).first is None


def test_frames_of_an_unknown_protocol_that_come_twice_are_the_capture_points(tmp_path: Path) -> None:
    wire = Wire(10)
    for i in range(40):
        wire.udp(i * 10 * MS, "10.77.0.20", f"ask {i}".encode(), 4000, 53)
        wire.udp(i * 10 * MS + MS, "10.77.0.10", f"answer {i}".encode(), 53, 4000)
    wire.frames += [(at + 4_000, frame) for at, frame in wire.frames]
    found = diagnose(case_of_capture(wire.write(tmp_path / "made.pcapng"))).first
    assert found is not None
    assert found.name == "capture-copies"


def test_equal_payloads_in_packets_of_their_own_are_no_copies(tmp_path: Path) -> None:
    wire = Wire(10)
    for i in range(80):
        wire.udp(i // 2 * 10 * MS + i % 2 * 50_000, "10.77.0.20", b"poll", 4000, 53)
        wire.udp(i // 2 * 10 * MS + MS + i % 2 * 50_000, "10.77.0.10", b"value", 53, 4000)
    causes = diagnose(case_of_capture(wire.write(tmp_path / "made.pcapng"))).causes
    assert "capture-copies" not in [cause.name for cause in causes]


@pytest.mark.parametrize(("length", "score"), [(1468, 0), (1469, 0.5), (8964, 0.5), (8965, 0.7)])
def test_tcp_frames_that_ethernet_does_not_carry_were_merged(tmp_path: Path, length: int, score: float) -> None:
    wire = Wire(10)
    for i in range(50):
        segment = struct.pack(">HHIIBBHHH", 4000, 80, i * length, 0, 0x50, 0x18, 8192, 0, 0) + bytes(length)
        wire.ip(i * MS, "10.77.0.20", "10.77.0.10", 6, segment)
    causes = diagnose(case_of_capture(wire.write(tmp_path / "made.pcapng"))).causes
    assert [cause.score for cause in causes if cause.name == "capture-offload"] == [score] * bool(score)


def test_rules_have_unique_names_and_tell_what_to_do() -> None:
    rules = all_rules()
    assert len({rule.name for rule in rules}) == len(rules)
    for rule in rules:
        assert rule.title[0].isupper()
        assert len(rule.experiment) > 20
    assert 0 < BELIEVED < 1
