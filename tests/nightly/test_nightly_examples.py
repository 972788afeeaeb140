"""The examples are what they say: units that systemd takes, YAML with the keys that count, commands that parse."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from rig.cli.parser import make_parser
from rig.nightly.quarantine import load_quarantine

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
UNITS = sorted((EXAMPLES / "systemd").iterdir())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace("/srv/rig/bench", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", *(str(tmp_path / unit.name) for unit in UNITS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if "rig-" in line]) == (0, [])


def test_every_timer_has_its_service() -> None:
    names = {unit.name for unit in UNITS}
    assert {"rig-nightly.service", "rig-morning.service"} <= {
        f"{Path(name).stem}.service" for name in names if name.endswith(".timer")
    }
    assert {f"{Path(name).stem}.service" for name in names if name.endswith(".timer")} <= names


@pytest.mark.parametrize("file", [path for path in EXAMPLES.rglob("*") if path.is_file()], ids=lambda path: path.name)
def test_commands_of_the_examples_are_commands_of_the_rig(file: Path) -> None:
    for line in re.findall(r"bench (rig [^'\n\"]+)", file.read_text()):
        make_parser().parse_args(shlex.split(line)[1:])


def test_github_workflow_has_what_github_asks_for() -> None:
    text = (EXAMPLES / "github" / "nightly.yml").read_text()
    flow = yaml.load(text, yaml.BaseLoader)  # `on:` is a word there, not a truth value
    assert set(flow) == {"name", "on", "permissions", "concurrency", "jobs"}
    job = flow["jobs"]["nightly"]
    assert set(job) == {"runs-on", "timeout-minutes", "env", "steps"}
    for step in job["steps"]:
        assert set(step) <= {"name", "uses", "run", "with", "if"}
        assert ("uses" in step) != ("run" in step)


def test_gitlab_job_has_what_gitlab_asks_for() -> None:
    job = yaml.safe_load((EXAMPLES / "gitlab" / "gitlab-ci.yml").read_text())["nightly"]
    known = {"stage", "tags", "rules", "resource_group", "timeout", "variables", "script", "allow_failure", "artifacts"}
    assert set(job) == known
    assert set(job["artifacts"]) == {"when", "expire_in", "paths", "reports"}
    assert set(job["artifacts"]["reports"]) == {"junit", "codequality"}


def test_jenkinsfile_closes_what_it_opens() -> None:
    text = re.sub(r"//.*|'[^'\n]*'|\"[^\"\n]*\"", "", (EXAMPLES / "jenkins" / "Jenkinsfile").read_text())
    for opened, closed in ("{}", "()", "[]"):
        assert text.count(opened) == text.count(closed)
    assert text.split("{")[0].strip() == "pipeline"
    assert re.findall(r"^    (\w+) \{", text, re.M) == ["agent", "triggers", "options", "environment", "stages", "post"]


def test_no_secret_stands_in_an_example() -> None:
    for file in EXAMPLES.rglob("*"):
        if file.is_file():
            for name, value in re.findall(r"(RIG_\w*(?:TOKEN|PASSWORD)\w*)\s*[:=]\s*(\S+)", file.read_text()):
                assert value.startswith(("${{", "…")), (file, name)


def test_the_quarantine_example_loads() -> None:
    assert len(load_quarantine(EXAMPLES / "quarantine.yaml", required=True)) == 3
