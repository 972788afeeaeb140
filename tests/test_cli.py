"""The command line without a bench: what it says and how it ends."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from rig.cli import exit_code, main
from rig.timing.verdict import Verdict

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def _own_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.chdir(ROOT)


def test_a_defect_of_the_rig_is_no_fail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def breaks(*_: object) -> None:
        raise ZeroDivisionError("of ours")

    parser = argparse.ArgumentParser()
    parser.set_defaults(command=breaks, keeps_records=False)
    monkeypatch.setattr("rig.cli.make_parser", lambda: parser)
    assert main([]) == 3
    said = capsys.readouterr().err
    assert "ZeroDivisionError: of ours" in said
    assert "a defect of the rig" in said


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([Verdict.PASS, Verdict.PASS], 0),
        ([Verdict.PASS, Verdict.SKIP], 0),
        ([Verdict.INCONCLUSIVE, Verdict.ERROR, Verdict.FAIL], 1),
        ([Verdict.INCONCLUSIVE, Verdict.ERROR], 3),
        ([Verdict.PASS, Verdict.INCONCLUSIVE], 4),
        ([Verdict.SKIP, Verdict.SKIP], 5),
        ([], 5),
    ],
)
def test_the_worst_verdict_decides_the_exit_code(verdicts: list[Verdict], code: int) -> None:
    assert exit_code(verdicts) == code


@pytest.mark.parametrize(
    "command",
    [
        *("", "check", "run", "judge", "triage", "flash", "doctor", "nightly", "history"),
        *("bench", "bench up", "bench impair", "bench status", "bench calibrate"),
    ],
)
def test_every_command_teaches_by_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert "exit codes" in printed or command == "bench"
    assert "examples:" in printed or command in ("", "bench")


def test_describing_the_commands_loads_nothing_that_only_some_of_them_need() -> None:
    heavy = ("json", "numpy", "paramiko", "pydantic", "rich", "scapy", "serial", "yaml")
    script = f"import sys, rig.cli.parser as p; p.make_parser(); print(*sorted(set({heavy}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_package_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rig.cli", "check", "testplans/copy-latency.plan.yaml"], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout[:4]) == (0, b"ok  ")


def rig_into(stdout: int | IO[bytes], *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "rig.cli", *arguments]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, check=False)


def unread_pipe() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize(("plan", "code"), [("testplans/copy-latency.plan.yaml", 0), ("no/such.plan.yaml", 2)])
def test_output_that_nobody_reads_any_more_changes_no_exit_code(plan: str, code: int) -> None:
    done = rig_into(unread_pipe(), "check", plan)
    assert (done.returncode, b"Traceback" in done.stderr, b"Exception" in done.stderr) == (code, False, False)


def test_output_that_found_no_room_is_an_error_where_it_is_all_there_is() -> None:
    with Path("/dev/full").open("wb") as full:
        done = rig_into(full, "check", "testplans/copy-latency.plan.yaml")
    assert done.stderr == b"rig: the output is not complete: No space left on device\n"
    assert done.returncode == 3


@pytest.mark.parametrize(("before", "ends"), [("IGN", False), ("DFL", True)])
def test_a_lost_terminal_ends_a_command_unless_it_runs_under_nohup(before: str, ends: bool) -> None:
    script = (
        "import signal as s; from rig.cli import main; from rig.interrupts import interrupt\n"
        f"s.signal(s.SIGHUP, s.SIG_{before}); main(['check', 'testplans/copy-latency.plan.yaml'])\n"
        "print([s.getsignal(one) is interrupt for one in (s.SIGINT, s.SIGTERM, s.SIGHUP)])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str([True, True, ends])


def test_check_lists_every_fault_of_every_file_and_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = ROOT / "testplans" / "zero-copy-latency.plan.yaml"
    bad = tmp_path / "bad.plan.yaml"
    bad.write_text(good.read_text().replace("p50: {max: 5 ms}", "p50: {max: 5}").replace("requests: 600", "request: 1"))
    assert main(["check", str(bad), str(good)]) == 2
    printed = capsys.readouterr().out
    assert printed.count(f"{bad}:") == 2
    assert "requests" in printed
    assert f"ok  {good}" in printed


def test_every_plan_of_the_project_is_sound(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "testplans", "testplans/faults"]) == 0
    assert capsys.readouterr().out.count("ok  ") >= 11


COMPARED, SINGLE = "testplans/copy-vs-zero-copy.plan.yaml", "testplans/copy-latency.plan.yaml"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([COMPARED, SINGLE, "--point", "variant-copy"], f"({SINGLE}) has no point `variant-copy`"),
        ([SINGLE, "--firmware", "no/such.elf"], "no/such.elf is not an existing .elf, .hex, .bin file"),
        ([SINGLE, "--firmware", "README.md"], "README.md is not an existing .elf, .hex, .bin file"),
    ],
)
def test_what_the_command_line_names_is_looked_up_before_anything_runs(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert main(["run", *arguments, "--record-dir", str(tmp_path / "records")]) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "no/such.plan.yaml"], 2, "no/such.plan.yaml: does not exist"),
        (["run", "tests/end_to_end"], 3, "holds no *.plan.yaml"),
        (["judge", "testplans"], 2, "holds no run record"),
        (["judge", "README.md"], 2, "a plan must say what to judge"),
        (["judge", "README.md", "--plan", "testplans/copy-latency.plan.yaml"], 3, "README.md"),
        (["run", "testplans/copy-latency.plan.yaml", "--bench", "no-bench.yaml"], 2, "no-bench.yaml: does not exist"),
        (["bench", "impair", "delay: 5"], 2, "RULE:1:9: bare number 5: expected a duration with a unit"),
        (["bench", "impair", "dilay: 5 ms"], 2, "did you mean `delay`"),
        (["bench", "status", "--bench", "no-bench.yaml"], 2, "no-bench.yaml: does not exist"),
    ],
)
def test_wrong_arguments_get_one_sentence(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code
    printed = "".join(capsys.readouterr())
    assert words in printed
    assert "Traceback" not in printed
