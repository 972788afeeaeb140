"""A record that cannot be judged again is never called healthy: its verdicts of the time count, or it is an ERROR."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_records import make_record
from wire_captures import Fate, Wire, talk

from rig.cli import main
from rig.history.prune import captures, remove
from rig.judging import judge_record
from rig.record import SET_SCHEMA, VERDICTS
from rig.triage.case import case_of_record
from rig.triage.diagnosis import diagnose
from rig.triage.headline import verdict_of

PRUNED_MS = 1_790_000_000_000
EXPECTS = "expect: {fail: [no-loss]}\n"


def lossy(wire: Wire) -> None:
    talk(wire, 200, lambda i, at: Fate(lost_in=i % 40 == 7))


def judged_record(folder: Path, *, bad: bool, more: str = "") -> Path:
    """A record with its verdicts, as a run leaves it."""
    record = make_record(folder, make=lossy if bad else lambda wire: talk(wire, 200), more=more)
    result, _ = judge_record(record)
    (record / VERDICTS).write_text(result.to_json())
    return record


@pytest.mark.parametrize(("bad", "more", "code"), [(True, "", 1), (False, "", 0), (True, EXPECTS, 0)])
def test_triage_of_a_pruned_record_ends_as_its_verdicts_of_the_time_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: bool, more: str, code: int
) -> None:
    record = judged_record(tmp_path / "set" / "001-made", bad=bad, more=more)
    (tmp_path / "set" / "set.json").write_text(json.dumps({"schema": SET_SCHEMA}))
    before = verdict_of(case_of_record(record))
    (found,) = captures(tmp_path)
    remove(found, PRUNED_MS)
    assert main(["triage", str(record)]) == code
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith(before)
    assert "note: its capture was pruned on 2026-09-21; the verdicts are those of the time of the run" in told
    assert "diagnosis: unknown: there is no capture in which a cause could show" in told
    assert "nothing wrong was found" not in told
    assert "sound as far as it goes" not in told


def test_what_was_found_wrong_with_the_evidence_is_kept(tmp_path: Path) -> None:
    record = judged_record(tmp_path / "001-made", bad=False)
    info = json.loads((record / "run.json").read_text())
    info["capture"]["interfaces"][0]["dropped"] = 3
    (record / "run.json").write_text(json.dumps(info))
    result, _ = judge_record(record)
    (record / VERDICTS).write_text(result.to_json())
    (record / "capture.pcapng").unlink()
    case = case_of_record(record)
    assert case.unread == ("the record holds no capture.pcapng; the verdicts are those of the time of the run",)
    assert case.result is not None
    assert [(one.check, one.verdict, one.reason, one.n) for one in case.result.checks] == [
        (one.check, one.verdict, one.reason, one.n) for one in result.checks
    ]
    assert [(one.name, one.voids, one.explains) for one in case.result.findings] == [
        (one.name, one.voids, one.explains) for one in result.findings
    ]
    assert case.result.findings


@pytest.mark.parametrize("damage", [None, "{", '{"schema": 1}', '{"schema": 99}', "[]"])
def test_without_capture_and_verdicts_a_record_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str | None
) -> None:
    record = make_record(tmp_path / "001-made")
    (record / "capture.pcapng").unlink()
    if damage is not None:
        (record / VERDICTS).write_text(damage)
    assert main(["triage", str(record)]) == 3
    assert capsys.readouterr().out.startswith(
        "ERROR made: answer-time, no-loss: the record cannot be judged: the record holds no"
    )
    assert diagnose(case_of_record(record)).red
    assert main(["judge", str(record)]) == 3


def test_a_record_without_plan_and_verdicts_is_an_error_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = make_record(tmp_path / "001-made")
    (record / "plan.yaml").unlink()
    assert main(["triage", str(record)]) == 3
    assert capsys.readouterr().out.startswith("ERROR made: every check: the record cannot be judged")


def test_another_plan_cannot_be_answered_with_old_verdicts(tmp_path: Path) -> None:
    record = judged_record(tmp_path / "001-made", bad=False)
    plan = tmp_path / "made.plan.yaml"
    plan.write_bytes((record / "plan.yaml").read_bytes())
    (record / "capture.pcapng").unlink()
    assert main(["triage", str(record), "--plan", str(plan)]) == 3


@pytest.mark.parametrize("as_json", [False, True])
def test_records_that_cannot_be_judged_hinder_no_other_of_their_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    for number in range(1, 5):
        judged_record(tmp_path / f"{number:03d}-made", bad=number == 4)
    (tmp_path / "001-made" / "run.json").write_text("{ broken")
    (tmp_path / "002-made" / "capture.pcapng").unlink()
    assert main(["judge", str(tmp_path), *(["--json"] if as_json else [])]) == 1
    told = capsys.readouterr().out
    if as_json:
        decoder, verdicts = json.JSONDecoder(), []
        while told.strip():
            found, end = decoder.raw_decode(told)
            verdicts.append(found["verdict"])
            told = told[end:].lstrip()
        assert verdicts == ["ERROR", "ERROR", "PASS", "FAIL"]
        return
    lines = told.splitlines()
    assert [line for line in lines if line.startswith(f"{tmp_path}/")] == [
        f"{tmp_path}/001-made: 001-made",
        *(f"{tmp_path}/{number:03d}-made: made" for number in (2, 3, 4)),
    ]
    assert sum(line.startswith("ERROR ") for line in lines) == 2
    assert "PASS: every check passes" in lines
    assert "shows its verdicts of the time: PASS" in " ".join(told.split())  # lines are folded


def test_a_set_with_an_unjudgeable_record_is_no_success(tmp_path: Path) -> None:
    judged_record(tmp_path / "001-made", bad=False)
    (judged_record(tmp_path / "002-made", bad=False) / "capture.pcapng").unlink()
    assert main(["judge", str(tmp_path)]) == 3


@pytest.mark.parametrize(("bad", "more", "code"), [(True, EXPECTS, 0), (False, EXPECTS, 1), (True, "", 1)])
def test_triage_ends_as_judge_does(tmp_path: Path, bad: bool, more: str, code: int) -> None:
    record = make_record(tmp_path / "001-made", make=lossy if bad else lambda wire: talk(wire, 200), more=more)
    plan, capture = tmp_path / "made.plan.yaml", tmp_path / "field.pcapng"
    plan.write_bytes((record / "plan.yaml").read_bytes())
    capture.write_bytes((record / "capture.pcapng").read_bytes())
    for named in ([str(record)], [str(capture), "--plan", str(plan)]):
        assert [main([command, *named]) for command in ("judge", "triage")] == [code, code]


@pytest.mark.parametrize("command", ["judge", "triage"])
@pytest.mark.parametrize("fault", ["a point", "a filter", "no file"])
def test_what_the_command_line_or_the_plan_has_wrong_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, fault: str
) -> None:
    record = make_record(tmp_path / "001-made")
    plan = tmp_path / "made.plan.yaml"
    text = (record / "plan.yaml").read_text()
    if fault == "a filter":
        text = text.replace("protocol: token-v2}", 'protocol: token-v2, filter: "udp.por == 3"}')
    plan.write_text(text)
    capture = str(record / "capture.pcapng") if fault != "no file" else str(tmp_path / "gone.pcapng")
    point = ["--point", "nosuch"] if fault == "a point" else []
    assert main([command, capture, "--plan", str(plan), *point]) == 2
    said = capsys.readouterr().err
    expected = {"a point": "has no point `nosuch`", "a filter": f"{plan}:5:", "no file": "gone.pcapng does not exist"}
    assert expected[fault] in said


@pytest.mark.parametrize("command", ["judge", "triage"])
def test_a_named_plan_that_does_not_fit_the_record_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    record = make_record(tmp_path / "001-made")
    plan = tmp_path / "made.plan.yaml"
    plan.write_text((record / "plan.yaml").read_text() + "matrix: {firmware.variant: [copy, zero_copy]}\n")
    assert main([command, str(record), "--plan", str(plan)]) == 2
    assert "has no point ``" in capsys.readouterr().err


def test_a_capture_needs_a_plan_to_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = make_record(tmp_path / "001-made")
    assert main(["judge", str(record / "capture.pcapng")]) == 2
    assert "--plan PLAN" in capsys.readouterr().err
