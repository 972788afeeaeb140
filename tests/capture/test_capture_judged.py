"""A capture that is no record of ours: what its verdicts take for granted is said beside them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from capture_files import A4, B4, T0, epb, ethernet, idb, ipv4, shb, udp

import rig.capture.columns
import rig.capture.reader
from rig.bench.load import load_bench
from rig.bench.model import BenchFile
from rig.cli import main
from rig.cli.exit_codes import INCONCLUSIVE
from rig.judging import Capture, judge_capture
from rig.plan.load import load_plan
from rig.timing.verdict import PointResult

MS = 1_000_000
EMULATED = Path(__file__).parents[2] / "benches" / "emulated.yaml"
BY_NAME = ("{from: jetson, to: board, udp.dstport: 5005}", "{from: board, to: jetson, udp.srcport: 5005}")
BY_PORT = ("{udp.dstport: 5005}", "{udp.srcport: 5005}")
PLAN = """\
plan: field
inference: {{timeout: 10 ms}}
flows:
  requests: {}
  answers: {}
checks:
  answer-time:
    response_time: {{request: requests, response: answers, match: order}}
    limits: {{each: {{max: {}}}}}
  answered:
    loss: {{of: requests, answered_by: answers, match: order}}
    limits: {{count: {{max: 0}}}}
  steady:
    gap: {{of: answers}}
    limits: {{each: {{min: 1 ms, max: 20 ms}}}}
"""
BENCH = "judged as a capture of bench `emulated`: limits of profile emulated, e = 50 us"
ENDS = "board 10.77.0.10, jetson 10.77.0.20"
STRANGE = (
    f"no frame has the addresses of bench `emulated` ({ENDS}): name the bench of this capture with --bench, or write "
    "addresses into the plan's flows"
)


def capture(
    folder: Path, *, ours: bool, interfaces: int = 1, tsresol: int = 9, systems: Sequence[bytes] = (b"",) * 3
) -> Path:
    """20 requests, each answered after 1.9 ms, on the bench's addresses or on others; answers on the last interface."""
    jetson, board = (bytes([10, 77, 0, 20]), bytes([10, 77, 0, 10])) if ours else (A4, B4)
    blocks = [shb(), *(idb(name=f"eth{i}".encode(), tsresol=tsresol, system=systems[i]) for i in range(interfaces))]
    for i in range(20):
        at = T0 + i * 10 * MS
        for time_ns, frame, interface in (
            (at, ethernet(ipv4(udp(b"ask"), src=jetson, dst=board)), 0),
            (
                at + 1_900_000,
                ethernet(ipv4(udp(b"say", sport=5005, dport=40000), src=board, dst=jetson)),
                interfaces - 1,
            ),
        ):
            blocks.append(epb(time_ns // 10 ** (9 - tsresol), frame, interface=interface))
    path = folder / "field.pcapng"
    path.write_bytes(b"".join(blocks))
    return path


def bench() -> BenchFile:
    return load_bench(EMULATED)


def plan_in(folder: Path, flows: tuple[str, str], limit: str = "5 ms") -> Path:
    path = folder / "field.plan.yaml"
    path.write_text(PLAN.format(*flows, limit))
    return path


def judged(path: Path, flows: tuple[str, str], limit: str = "5 ms") -> PointResult:
    plan_file = load_plan(plan_in(path.parent, flows, limit))
    return judge_capture(Capture(path), plan_file, plan_file.points[0], bench())


def test_the_bench_whose_limits_e_and_addresses_were_taken_is_named(tmp_path: Path) -> None:
    assert judged(capture(tmp_path, ours=True), BY_NAME).notes == (f"{BENCH}, {ENDS}",)
    assert judged(capture(tmp_path, ours=False), BY_PORT).notes == (BENCH,)


def test_a_capture_without_the_benchs_addresses_says_why_nothing_was_judged(tmp_path: Path) -> None:
    result = judged(capture(tmp_path, ours=False), BY_NAME)
    assert (str(result.verdict), result.notes) == ("INCONCLUSIVE", (f"{BENCH}, {ENDS}", STRANGE))


def test_several_interfaces_are_named_whose_stamps_were_taken_for_one_clocks(tmp_path: Path) -> None:
    note = "packets were captured on 2 interfaces (eth0, eth2), whose stamps are taken for one clock's"
    for systems in ([b""] * 3, [b"Linux 6.1"] * 3, [b"Linux 6.1", b"", b""]):
        result = judged(capture(tmp_path, ours=True, interfaces=3, systems=systems), BY_PORT)
        assert (result.notes, result.findings) == ((BENCH, note), ())


@pytest.mark.parametrize(("limit", "word"), [("5 ms", "PASS"), ("1 ms", "FAIL")])
def test_stamps_of_two_hosts_prove_nothing_between_them(tmp_path: Path, limit: str, word: str) -> None:
    same = judged(capture(tmp_path, ours=True, interfaces=2, systems=[b"Linux 6.1"] * 2), BY_PORT, limit)
    assert [str(check.verdict) for check in same.checks] == [word, "PASS", "PASS"]
    two = judged(
        capture(tmp_path, ours=True, interfaces=2, systems=[b"Linux 5.10-tegra", b"Linux 6.1"]), BY_PORT, limit
    )
    assert [str(check.verdict) for check in two.checks] == ["INCONCLUSIVE", "INCONCLUSIVE", "PASS"]
    assert {finding.name for finding in two.findings} == {"several-clocks"}
    assert "stamped on 2 hosts (Linux 5.10-tegra, Linux 6.1)" in two.findings[0].sentence
    assert two.notes == (BENCH,)


def test_names_in_a_file_cannot_move_the_terminals_cursor(tmp_path: Path) -> None:
    systems = [b"Linux\x1b[2J 1", b"Linux 2"]
    result = judged(capture(tmp_path, ours=True, interfaces=2, systems=systems), BY_PORT)
    assert "(Linux\ufffd[2J 1, Linux 2)" in result.findings[0].sentence


def test_stamps_in_milliseconds_prove_no_limit_that_lies_between_two_of_them(tmp_path: Path) -> None:
    assert str(judged(capture(tmp_path, ours=True), BY_PORT, "1.5 ms").verdict) == "FAIL"
    coarse = judged(capture(tmp_path, ours=True, tsresol=3), BY_PORT, "1.5 ms")
    assert (str(coarse.verdict), coarse.e_ns) == ("INCONCLUSIVE", MS)
    assert str(judged(capture(tmp_path, ours=True, tsresol=6), BY_PORT).verdict) == "PASS"


def test_the_command_shows_the_notes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, plan = capture(tmp_path, ours=False), plan_in(tmp_path, BY_NAME)
    arguments = ["judge", str(path), "--plan", str(plan), "--bench", str(EMULATED)]
    assert main(arguments) == INCONCLUSIVE
    assert f"note: {STRANGE}\nINCONCLUSIVE answer-time" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == INCONCLUSIVE
    assert json.loads(capsys.readouterr().out)["notes"] == [f"{BENCH}, {ENDS}", STRANGE]


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("command", ["judge", "triage"])
def test_a_capture_is_read_once_and_dissected_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Whatever the number of points, and whoever looks at the packets besides the checks."""
    read: list[str] = []

    def counted(module: ModuleType, name: str) -> None:
        function = getattr(module, name)

        def count(*arguments: Any, **more: Any) -> Any:
            read.append(name)
            return function(*arguments, **more)

        monkeypatch.setattr(module, name, count)

    counted(rig.capture.reader, "read_capture")
    counted(rig.capture.columns, "dissect_columns")
    path, plan = capture(tmp_path, ours=True), tmp_path / "field.plan.yaml"
    text = PLAN.format(*(flow.replace("{", "{filter: udp.length > 8, ") for flow in BY_PORT), "5 ms")
    plan.write_text(text + "matrix:\n  inference.requests: [20, 30, 40]\n")
    named = ["--out", str(tmp_path / "found")] if command == "triage" else []
    assert main([command, str(path), "--plan", str(plan), "--bench", str(EMULATED), *named]) == 0
    assert sorted(read) == ["dissect_columns", "read_capture"]
