"""Choosing checks the way pytest users do: node ids, -k, -m, --collect-only, --lf, -x."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time

import pytest
from desk import MATRIX, ROOT, Desk

HEAVY = ("numpy", "paramiko", "serial", "scapy", "pyshark", "rich", "onnxruntime")


CHECKS = ["answer-time", "no-loss", "alive"]
ONE = [f"one::{check}" for check in CHECKS]
TWO = {variant: [f"two[variant-{variant}]::{check}" for check in CHECKS] for variant in ("copy", "zero_copy")}


def collected(desk: Desk, *selections: list[str]) -> list[list[str]]:
    """What each list of arguments selects; all in one process, since starting pytest takes most of the time."""
    common = desk.command("--collect-only", "-q")[3:]
    script = f"import pytest\nfor each in {selections!r}:\n    print('---')\n    pytest.main({common!r} + each)\n"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=desk.folder,
        env=desk.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    found = [block.splitlines() for block in done.stdout.split("---\n")[1:]]
    return [[line.partition(".plan.yaml::")[2] for line in lines if ".plan.yaml::" in line] for lines in found]


@pytest.fixture
def plans(desk: Desk) -> Desk:
    desk.plan("one", "requirement: NET-12\nrequires: [link-relay, power-switch]")
    desk.plan("two", MATRIX)
    return desk


def test_each_check_of_each_point_is_an_item(plans: Desk) -> None:
    assert collected(plans, []) == [[*ONE, *TWO["copy"], *TWO["zero_copy"]]]


def test_a_printed_node_id_selects_what_it_names(plans: Desk) -> None:
    named = {
        "one.plan.yaml::one": ONE,
        "one.plan.yaml::one::no-loss": ["one::no-loss"],
        "two.plan.yaml::two[variant-copy]::no-loss": ["two[variant-copy]::no-loss"],
        "two.plan.yaml::two[variant-copy]": TWO["copy"],
        "two.plan.yaml::two": [*TWO["copy"], *TWO["zero_copy"]],
    }
    assert dict(zip(named, collected(plans, *([one] for one in named)), strict=True)) == named


def test_expressions_select_by_name_capability_and_requirement(plans: Desk) -> None:
    wanted = {
        ("-k", "no-loss and not two"): ["one::no-loss"],
        ("-k", "variant-copy and alive"): ["two[variant-copy]::alive"],
        ("-k", "NET-12 and alive"): ["one::alive"],
        ("-k", "power-switch"): ONE,
        ("-m", 'requirement(id="NET-12")'): ONE,
        ("-m", 'requires(capability="link-relay")'): ONE,
        ("-m", "plan and not requires"): [*TWO["copy"], *TWO["zero_copy"]],
        ("-m", "not plan"): [],
    }
    found = collected(plans, *map(list, wanted))
    assert dict(zip(wanted, found, strict=True)) == wanted


def test_one_run_serves_all_checks_of_a_point_and_only_what_is_selected_runs(desk: Desk) -> None:
    desk.plan("one")
    desk.plan("two", MATRIX)
    done = desk.pytest("-k", "one or variant-copy")
    assert done.status == 0, done.text
    assert done.titles == ["one", "two[variant-copy]"]


def test_last_failed_runs_the_failed_checks_again_and_nothing_else(desk: Desk) -> None:
    desk.plan("fail-it")
    desk.plan("fine")
    assert desk.pytest().status == 1
    again = desk.pytest("--lf")
    assert again.titles == ["fail-it"]
    assert "1 failed" in again.text
    assert "passed" not in again.text


def test_stop_at_first_failure_starts_no_further_run(desk: Desk) -> None:
    desk.plan("a-fine")
    desk.plan("fail-it")
    desk.plan("later")
    done = desk.pytest("-x")
    assert done.status == 1
    assert done.titles == ["a-fine", "fail-it"]


def test_an_unexpected_exception_of_the_rig_is_shown_for_each_check_after_one_run(desk: Desk) -> None:
    desk.plan("bug-it")
    done = desk.pytest()
    assert done.titles == ["bug-it"]
    assert "3 errors" in done.text
    assert "ZeroDivisionError" in done.text


def test_a_faulty_plan_is_a_collection_error_with_its_places_and_no_traceback(desk: Desk) -> None:
    path = desk.plan("typo")
    path.write_text(path.read_text().replace("max: 1 s", "max: 1"))
    done = desk.pytest()
    assert done.status == 2
    assert "typo.plan.yaml:11:" in done.text
    assert "Traceback" not in done.text
    assert done.runs == []


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "two-workers"])
def test_the_second_of_two_plans_of_one_name_is_refused_at_collection(desk: Desk, workers: list[str]) -> None:
    first = desk.plan("fine-it")
    shutil.copy(first, desk.folder / "other.plan.yaml")
    done = desk.pytest(*workers)
    assert done.status == (1 if workers else 2)
    assert "other.plan.yaml:1:7: plan name `fine-it` is that of fine-it.plan.yaml too; records" in done.text
    assert "Traceback" not in done.text
    assert len(done.runs) == (1 if workers else 0), "pytest-xdist runs what could be collected"
    same = desk.pytest(f"{first}::fine-it::no-loss", f"{first}::fine-it::alive")
    assert same.titles == ["fine-it"]


def test_rig_run_and_check_refuse_two_plans_of_one_name(desk: Desk) -> None:
    shutil.copy(desk.plan("fine-it"), desk.folder / "other.plan.yaml")
    for command in ("run", "check"):
        done = desk.rig(command, desk.folder)
        assert (done.status, done.runs) == (2, [])
        assert "plan name `fine-it` is that of" in done.text
    assert desk.rig("check", *[desk.folder / "other.plan.yaml"] * 2).status == 0


def test_collecting_200_plans_is_quick_and_imports_nothing_heavy(desk: Desk) -> None:
    for number in range(200):
        desk.plan(f"plan-{number:03d}", MATRIX if number % 4 == 0 else "")
    probe = desk.test(
        "probe.py",
        "import sys\n"
        "def pytest_unconfigure():\n"
        f"    print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])\n",
    )
    began = time.monotonic()
    done = subprocess.run(
        desk.command("-p", probe.stem, "--collect-only", "-q"),
        cwd=desk.folder,
        env=desk.environment() | {"PYTHONPATH": f"{ROOT}:{desk.folder}"},
        capture_output=True,
        text=True,
        check=False,
    )
    took = time.monotonic() - began
    assert f"{(200 + 50) * 3} tests collected" in done.stdout, done.stdout[-2000:] + done.stderr
    assert "HEAVY []" in done.stdout
    print(f"{took:.2f} s on {sys.platform}")
