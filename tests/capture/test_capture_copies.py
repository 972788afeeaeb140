"""A flow without sequence numbers that the capture shows twice: told from the file's octets, and what it voids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from capture_files import A4, B4, T0, ethernet, ipv4, pcap, udp

from rig.capture.reader import read_capture
from rig.plan.bounds import AtMost, CountBound, DurationBound
from rig.plan.model import Plan
from rig.timing.evidence import Evidence
from rig.timing.judge import judge
from rig.timing.limits import LimitSpec
from rig.timing.verdict import PointResult

MS, US = 1_000_000, 1_000
KEY = {"key": {"offset": 0, "bytes": 2}}
CHECKS: dict[str, tuple[dict[str, Any], LimitSpec]] = {
    "key": (
        {"response_time": {"request": "requests", "response": "answers", "match": "key"}},
        LimitSpec("each", DurationBound.model_construct(max=5 * MS, min=None)),
    ),
    "order": (
        {"response_time": {"request": "requests", "response": "answers", "match": "order"}},
        LimitSpec("at_most", AtMost.model_construct(count=0, beyond=5 * MS, in_any=None)),
    ),
    "gap": ({"gap": {"of": "answers"}}, LimitSpec("each", DurationBound.model_construct(max=None, min=MS))),
    "burst": ({"burst": {"of": "answers", "within": "1 ms"}}, LimitSpec("packets", CountBound(max=1))),
}


def exchange(at_ns: int, number: int) -> list[tuple[int, bytes]]:
    payload = number.to_bytes(2, "big") + b"read"
    request = ethernet(ipv4(udp(payload), ident=number))
    answer = ethernet(ipv4(udp(payload, sport=5005, dport=40000), ident=number, src=B4, dst=A4))
    return [(at_ns, request), (at_ns + 2 * MS, answer)]


def result_of(frames: list[tuple[int, bytes]], folder: Path) -> PointResult:
    path = folder / "file.pcap"
    path.write_bytes(pcap(*sorted(frames, key=lambda frame: frame[0])))
    limits = {"each": {"max": "1 s"}}
    some = {"key": limits, "order": limits, "gap": limits, "burst": {"packets": {"max": 1}}}
    plan = Plan.model_validate(
        {
            "plan": "made-by-hand",
            "inference": {"timeout": "1 s", "requests": 1},
            "flows": {"requests": {"udp.dstport": 5005, **KEY}, "answers": {"udp.srcport": 5005, **KEY}},
            "checks": {name: {"limits": some[name], **check} for name, (check, _) in CHECKS.items()},
        }
    )
    wanted = {name: [limit] for name, (_, limit) in CHECKS.items()}
    return judge(read_capture(path), plan, wanted, Evidence(), {}, 0, "emulated")


def verdicts(result: PointResult) -> dict[str, str]:
    return {check.check: str(check.verdict) for check in result.checks}


ONCE = [frame for number in range(60) for frame in exchange(T0 + number * 10 * MS, number)]


def test_each_frame_once_is_no_finding(tmp_path: Path) -> None:
    result = result_of(ONCE, tmp_path)
    assert [finding.name for finding in result.findings] == []
    assert set(verdicts(result).values()) == {"PASS"}


@pytest.mark.parametrize("later_ns", [0, 7 * US, 200 * US])
def test_copies_void_what_takes_them_for_packets(tmp_path: Path, later_ns: int) -> None:
    copies = [(at + later_ns, frame) for at, frame in ONCE[2:]]  # the first exchange was not copied
    result = result_of(ONCE + copies, tmp_path)
    assert [finding.name for finding in result.findings] == ["frames-twice"] * 2
    assert "flow `answers` is in the capture more than once: 59 of 119 packets" in result.findings[1].sentence
    assert verdicts(result) == {"key": "PASS", "order": "INCONCLUSIVE", "gap": "INCONCLUSIVE", "burst": "INCONCLUSIVE"}


def test_copies_are_found_behind_other_packets_of_their_flow(tmp_path: Path) -> None:
    frames = [frame for number in range(60) for frame in exchange(T0 + number * 20 * US, number)]
    result = result_of(frames + [(at + 90 * US, frame) for at, frame in frames], tmp_path)
    assert [finding.name for finding in result.findings] == ["frames-twice"] * 2


def test_what_is_sent_again_is_no_copy(tmp_path: Path) -> None:
    """A sender that repeats itself gives each packet its own identification; a copy that comes later is one of its."""
    repeated = [(at, frame) for number in range(60) for at, frame in exchange(T0 + number * 10 * MS, number)]
    marked = [(at + 7 * US, frame[:18] + b"\x77\x77" + frame[20:]) for at, frame in repeated]
    late = [(at + 201 * US, frame) for at, frame in repeated]
    for again in (marked, late, ONCE[:60]):
        assert result_of(repeated + again, tmp_path).findings == ()
