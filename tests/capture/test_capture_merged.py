"""Frames that passed as several packets: found by their length, and what they void."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from capture_files import A4, B4, T0, ethernet, ipv4, pcap, udp

from rig.capture.reader import read_capture
from rig.plan.bounds import CountBound, DurationBound, RateBound
from rig.plan.model import Plan
from rig.timing.evidence import Evidence
from rig.timing.judge import judge
from rig.timing.limits import LimitSpec
from rig.timing.verdict import PointResult

MS = 1_000_000
AT_MOST_2_MS = LimitSpec("each", DurationBound.model_construct(max=2 * MS, min=None))
RATE = LimitSpec("rate", RateBound.model_construct(max=None, min=1))
RESPONSE_TIME = {"response_time": {"request": "requests", "response": "answers", "match": "order"}}


def tcp(payload: int, at: int = 0, *, sport: int = 5001, dport: int = 40000, src: bytes = A4) -> bytes:
    """A segment of so many bytes whose payload begins at byte `at` of its stream."""
    head = struct.pack(">HHIIBBHHH", sport, dport, at, 0, 0x50, 0x18, 8192, 0, 0)
    return ethernet(ipv4(head + bytes(payload), proto=6, src=src, dst=B4 if src == A4 else A4))


def judged(
    folder: Path, frames: list[bytes], flows: dict[str, Any], checks: dict[str, tuple[dict[str, Any], LimitSpec]]
) -> PointResult:
    """Judge frames that lie 1 ms apart."""
    path = folder / "file.pcap"
    path.write_bytes(pcap(*((T0 + i * MS, frame) for i, frame in enumerate(frames))))
    some = {"burst": {"packets": {"max": 1}}, "throughput": {"rate": {"min": "1 bit/s"}}, "loss": {"count": {"max": 0}}}
    plan = Plan.model_validate(
        {
            "plan": "made-by-hand",
            "inference": {"timeout": "10 ms", "requests": 1},
            "flows": flows,
            "checks": {
                name: {"limits": some.get(next(iter(check)), {"each": {"max": "1 s"}}), **check}
                for name, (check, _) in checks.items()
            },
        }
    )
    limits = {name: [limit] for name, (_, limit) in checks.items()}
    return judge(read_capture(path), plan, limits, Evidence(), {}, 0, "emulated")


def verdicts(result: PointResult) -> dict[str, str]:
    return {check.check: str(check.verdict) for check in result.checks}


def test_merged_frames_void_what_counts_or_times_packets_one_by_one(tmp_path: Path) -> None:
    frames = [tcp(14_480 if i % 4 else 1_448, i * 20_000) for i in range(40)]
    checks: dict[str, tuple[dict[str, Any], LimitSpec]] = {
        "gap": ({"gap": {"of": "data"}}, AT_MOST_2_MS),
        "burst": ({"burst": {"of": "data", "within": "500 us"}}, LimitSpec("packets", CountBound(max=2))),
        "payload": ({"throughput": {"of": "data"}}, RATE),
        "slices": ({"throughput": {"of": "data", "per": "10 ms"}}, RATE),
        "frames": ({"throughput": {"of": "data", "layer": "frame"}}, RATE),
    }
    result = judged(tmp_path, frames, {"data": {"tcp.srcport": 5001}}, checks)
    assert verdicts(result) == {name: "PASS" if name == "payload" else "INCONCLUSIVE" for name in checks}
    (finding,) = result.findings
    assert finding.name == "frames-merged"
    assert finding.sentence.startswith(
        "30 of 40 frames of flow `data` are longer than an Ethernet frame (the longest: 14534"
    )
    assert "jumbo" not in finding.sentence


@pytest.mark.parametrize(
    ("frame", "found"),
    [
        (tcp(1522 - 54), False),
        (tcp(1523 - 54), True),
        (ethernet(ipv4(udp(bytes(1523 - 42), sport=5001))), False),
        (ethernet(ipv4(udp(bytes(9018 - 42), sport=5001))), False),
        (ethernet(ipv4(udp(bytes(9019 - 42), sport=5001))), True),
    ],
)
def test_a_frame_is_merged_when_no_link_carries_it(tmp_path: Path, frame: bytes, found: bool) -> None:
    protocol = "tcp" if frame[23] == 6 else "udp"
    flows = {"data": {f"{protocol}.srcport": 5001}}
    result = judged(tmp_path, [frame] * 2, flows, {"gap": ({"gap": {"of": "data"}}, AT_MOST_2_MS)})
    assert [finding.name for finding in result.findings] == ["frames-merged"] * found
    assert all(("jumbo" in finding.sentence) == (len(frame) <= 9018) for finding in result.findings)


def test_packets_outside_of_the_plans_flows_void_nothing(tmp_path: Path) -> None:
    frames = [tcp(100, 100 * i) for i in range(20)] + [tcp(14_480, sport=5002)]
    result = judged(tmp_path, frames, {"data": {"tcp.srcport": 5001}}, {"gap": ({"gap": {"of": "data"}}, AT_MOST_2_MS)})
    assert (verdicts(result), result.findings) == ({"gap": "PASS"}, ())


FLOWS = {"requests": {"tcp.dstport": 5001}, "answers": {"tcp.srcport": 5001}}


def exchanges(answer: int, *, request: int = 100, lost: int | None = None) -> list[bytes]:
    """20 requests, each answered 1 ms later, of so many bytes, and packets of others until the time-out is over."""
    frames = []
    for i in range(20):
        frames.append(tcp(request, 10_000 * i, sport=40000, dport=5001, src=B4))
        frames.append(ethernet(ipv4(udp(b"x"))) if i == lost else tcp(answer, 10_000 * i))
    return frames + [ethernet(ipv4(udp(b"x")))] * 20


def test_merged_answers_show_in_time_but_may_hide_one_that_seems_lost(tmp_path: Path) -> None:
    checks = {
        "time": (RESPONSE_TIME, AT_MOST_2_MS),
        "loss": (
            {"loss": {"of": "requests", "answered_by": "answers", "match": "order"}},
            LimitSpec("count", CountBound(max=0)),
        ),
    }
    assert set(verdicts(judged(tmp_path, exchanges(5_000), FLOWS, checks)).values()) == {"PASS"}
    assert verdicts(judged(tmp_path, exchanges(500, lost=19), FLOWS, checks))["loss"] == "FAIL"
    result = judged(tmp_path, exchanges(5_000, lost=19), FLOWS, checks)
    assert verdicts(result)["loss"] == "INCONCLUSIVE"
    assert [finding.name for finding in result.check("loss").voided_by] == ["frames-merged"]


def test_merged_requests_void_what_asks_whether_all_were_answered(tmp_path: Path) -> None:
    result = judged(tmp_path, exchanges(500, request=5_000), FLOWS, {"time": (RESPONSE_TIME, AT_MOST_2_MS)})
    (check,) = result.checks
    assert (str(check.verdict), check.limits[0].verdict) == ("INCONCLUSIVE", "PASS")


def test_gaps_that_are_too_short_stay_so_beside_merged_frames(tmp_path: Path) -> None:
    frames = [tcp(14_480, i * 20_000) for i in range(20)]
    short = LimitSpec("each", DurationBound.model_construct(max=None, min=2 * MS))
    result = judged(tmp_path, frames, {"data": {"tcp.srcport": 5001}}, {"gap": ({"gap": {"of": "data"}}, short)})
    assert verdicts(result) == {"gap": "FAIL"}
