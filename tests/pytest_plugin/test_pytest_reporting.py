"""What a person sees: phases while they run, the table at the end, and what is no success."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

from desk import Desk

PHASE = "  flash              1.25 s  22 KiB written\n"


def on_a_terminal(desk: Desk, *arguments: str) -> str:
    """All that reaches a terminal of 120 columns."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        desk.command("-p", "stub_campaign", *arguments),
        cwd=desk.folder,
        env=desk.environment(TERM="xterm"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ):
        os.close(theirs)
        shown = b""
        try:
            while block := os.read(ours, 65536):
                shown += block
        except OSError:  # EIO: the other side is closed
            pass
    os.close(ours)
    return shown.decode()


def test_a_terminal_shows_the_phase_in_place_and_gets_its_line_back(desk: Desk) -> None:
    desk.plan("fine-it")
    shown = on_a_terminal(desk)
    place = "fine-it.plan.yaml "
    assert f"\r\x1b[K  flash            …  (fine-it)\r\x1b[K{place}" in shown
    assert "22 KiB written" not in shown


def test_verbose_leaves_a_line_per_phase_without_control_codes_in_a_log(desk: Desk) -> None:
    desk.plan("fine-it")
    done = desk.pytest("-v")
    assert f"\nfine-it\n{PHASE}" in done.text
    assert "fine-it.plan.yaml::fine-it::answer-time PASSED" in done.text
    assert "\x1b" not in done.text
    assert "\r" not in done.text


def test_a_log_without_v_has_the_phases_of_failed_runs_only(desk: Desk) -> None:
    desk.plan("fine-it")
    desk.plan("vague-it")
    done = desk.pytest()
    assert done.text.count(PHASE) == 1
    assert "rig phases" in done.text


def test_what_several_runs_warn_of_is_shown_once_and_without_v_too(desk: Desk) -> None:
    desk.plan("warned-a")
    desk.plan("warned-b")
    line = "\n  warning          disk: 1.0 GiB free (fix: remove old sets)\n"
    assert desk.pytest().text.count(line) == 1
    assert desk.pytest("-v").text.count(line) == 1
    assert desk.pytest("-v", "-n", "1").text.count(line) >= 1


def test_the_table_has_a_line_per_run_and_names_what_to_look_at(desk: Desk) -> None:
    desk.plan("fail-it")
    desk.plan("fine-it")
    table = desk.pytest().text.partition("= runs =")[2].splitlines()
    assert table[1].split() == ["verdict", "run", "n", "p50", "p99", "checks"]
    assert table[2].split() == ["FAIL", "fail-it", "7", "-", "-", "answer-time", "FAIL"]
    assert table[3].split() == ["PASS", "fine-it", "7", "-", "-", "3", "pass"]
    assert table[4].startswith("records: records/")


def test_nothing_but_skips_is_not_success(desk: Desk) -> None:
    desk.plan("skip-it")
    done = desk.pytest()
    assert done.status == 5
    assert "nothing but skips is not success" in done.text
    desk.plan("fine-it")
    assert desk.pytest("-n", "2").status == 0


def test_a_missing_firmware_image_is_refused_at_once(desk: Desk) -> None:
    desk.plan("fine-it")
    done = desk.pytest("--firmware", "build/app.elf")
    assert done.status == 4
    assert "--firmware build/app.elf: not an existing" in done.text


def test_the_bench_of_the_environment_is_used_and_the_option_goes_before_it(desk: Desk, tmp_path: Path) -> None:
    desk.plan("fine-it")
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(
            (Path(__file__).parents[2] / "benches" / "emulated.yaml").read_text().replace("bench: ", f"bench: {name}-")
        )
    assert desk.pytest(RIG_BENCH="a.yaml").runs[0][1] == "a.yaml"
    assert desk.pytest("--bench=b.yaml", RIG_BENCH="a.yaml").runs[0][1] == "b.yaml"
    wrong = desk.pytest(RIG_BENCH="none.yaml")
    assert wrong.status == 4
    assert "none.yaml: does not exist" in wrong.text
