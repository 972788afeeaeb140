"""What a reader sees first: value against limit, what the plan wanted and imposed, and where the fault is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_records import change_run, make_record
from wire_captures import MS, Fate, Wire, talk

from rig.cli import main
from rig.triage.case import case_of_capture, case_of_record
from rig.triage.diagnosis import Cause, Diagnosis, Support, all_rules, diagnose
from rig.triage.headline import as_expected, badge, headlines, imposed
from rig.triage.location import WHERE, soundness, where
from rig.triage.report import render_report

MANY = "".join(
    f"  limit-{i}:\n    response_time: {{request: requests, response: answers, match: request_id, to: last}}\n"
    f"    limits: {{p90: {{max: {i} ms}}}}\n"
    for i in (2, 3, 4, 5, 6)
)
GAPS = "  answer-gap:\n    gap: {of: answers, within: flow}\n    limits: {p90: {max: 9 ms}, each: {min: 1 ms}}\n"
COPIES = "  no-copies:\n    duplicates: {of: answers}\n    limits: {count: {max: 0}}\n"
ORDER = "  in-order:\n    reordering: {of: answers}\n    limits: {ratio: {max: 1 %}}\n"


def lossy(wire: Wire) -> None:
    talk(wire, 200, lambda i, at: Fate(lost_in=i % 40 == 7))


def slow(wire: Wire) -> None:
    talk(wire, 200, lambda i, at: Fate(hold=9 * MS))


def test_a_quantile_is_shown_against_its_limit_with_what_is_over(tmp_path: Path) -> None:
    (line,) = headlines(case_of_record(make_record(tmp_path / "001", make=slow)))
    # 1 ms of the board, 9 ms held, and noise of some 0.1 ms.
    assert line.startswith("p50 of answer-time 10.")
    assert ", limit 4 ms (6." in line
    assert line.endswith(" ms over)")


def test_counts_say_what_they_count_and_how_many_are_allowed(tmp_path: Path) -> None:
    assert headlines(case_of_record(make_record(tmp_path / "001", make=lossy))) == [
        "no-loss: 5 of 200 requests unanswered, 0 allowed"
    ]
    twice = make_record(
        tmp_path / "002", make=lambda wire: talk(wire, 200, lambda i, at: Fate(times=1 + (i % 50 == 3))), more=COPIES
    )
    assert headlines(case_of_record(twice)) == ["no-copies: 4 copies among 200 packets, 0 allowed"]


def test_every_failed_check_has_a_line_up_to_four(tmp_path: Path) -> None:
    lines = headlines(case_of_record(make_record(tmp_path / "001", make=slow, more=MANY)))
    assert len(lines) == 5
    assert lines[1].startswith("p90 of limit-2 10.")
    assert lines[-1] == "and 2 more checks FAIL"


def test_a_check_by_sample_names_how_many_are_beyond(tmp_path: Path) -> None:
    each = "  every-one:\n    response_time: {request: requests, response: answers, match: request_id, to: last}\n"
    each += "    limits: {each: {max: 5 ms}}\n"
    record = make_record(
        tmp_path / "001", make=lambda wire: talk(wire, 200, lambda i, at: Fate(hold=6 * MS * (i in (9, 90)))), more=each
    )
    (line,) = headlines(case_of_record(record))
    assert line.startswith("every-one: 2 of 200 requests over 5 ms, the worst 7.")


def test_a_board_that_died_comes_first_without_its_registers(tmp_path: Path) -> None:
    fault = {"kind": "fault", "detail": "FAULT HardFault pc=0x60000102 lr=0x0", "t_ns": 1}
    first, *_ = headlines(case_of_record(make_record(tmp_path / "001", make=lossy, observations=[fault])))
    assert first == "alive: the board reported: FAULT HardFault"


@pytest.mark.parametrize(
    ("expect", "shown", "met"),
    [
        ("expect: {fail: [no-loss]}\n", "FAIL, as the plan expects", True),
        ("expect: {fail: [answer-time]}\n", "FAIL, not as the plan expects", False),
        ("", "FAIL", None),
    ],
)
def test_the_badge_says_whether_the_plan_wants_it_red(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], expect: str, shown: str, met: bool | None
) -> None:
    record = make_record(tmp_path / "001", make=lossy, more=expect)
    case = case_of_record(record)
    assert (badge(case), as_expected(case)) == (shown, met)
    assert f'<span class="chip FAIL">{shown}</span>' in render_report(case, diagnose(case))
    main(["triage", str(record)])
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"{shown}{':' if met is not None else ''} made: no-loss")


def test_what_the_plan_imposes_is_said_on_page_and_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = [
        {"delay": "0 ns", "direction": "from-board", "jitter": "8 ms", "select": {"udp.srcport": 5005}},
        {"direction": "both", "loss": "1 %"},
    ]
    record = change_run(make_record(tmp_path / "001", variant="fault_mute"), impairment=rules)
    case = case_of_record(record)
    said = "jitter 8 ms from the board (udp.srcport 5005); loss 1 % in both directions; "
    assert imposed(case) == said + "firmware with a fault built in, `fault_mute`"
    page = render_report(case, diagnose(case))
    assert f"<b>The plan imposes:</b> {said}" in page
    assert "<b>Plan:</b> Made for a test." in page
    main(["triage", str(record)])
    assert "  the plan imposes: jitter 8 ms from the board" in capsys.readouterr().out
    assert imposed(case_of_record(make_record(tmp_path / "002"))) == ""
    assert imposed(case_of_capture(record / "capture.pcapng")) == ""


def test_the_json_tells_expectation_and_what_was_imposed(tmp_path: Path) -> None:
    record = make_record(tmp_path / "001", make=lossy, more="expect: {fail: [no-loss]}\n")
    main(["triage", str(record)])
    found = json.loads((tmp_path / "001.triage" / "diagnosis.json").read_text())
    assert (found["verdict"], found["as_expected"], found["imposed"]) == ("FAIL", True, None)
    assert found["reason"] == "no-loss: 5 of 200 requests unanswered, 0 allowed"


def test_every_cause_has_a_place_in_words_and_names_places_of_the_same_picture(tmp_path: Path) -> None:
    assert {rule.side for rule in all_rules()} <= set(WHERE)
    case = case_of_record(make_record(tmp_path / "001", make=lambda w: talk(w, 200, lambda i, at: Fate(hold=5 * MS))))
    first = diagnose(case).first
    assert first is not None
    assert first.name == "path-delay-from-board"
    assert where(first) == "the bench: the link between capture point and board"
    late = next(rule for rule in all_rules() if rule.name == "path-some-late-from-board")
    told = where(Cause(late, Support(0.9)))
    assert told.endswith("the same picture could come from the product: the board's firmware")


def test_the_measurement_is_called_sound_only_when_nothing_speaks_against_it(tmp_path: Path) -> None:
    case = case_of_record(make_record(tmp_path / "001", make=lossy))
    assert soundness(case, diagnose(case)).startswith("The measurement is sound: ")
    lost = case_of_record(make_record(tmp_path / "002", make=lossy, received=230))
    assert soundness(lost, diagnose(lost)) == "The measurement is not sound: mend it before anything else is believed."
    voided = soundness(lost, Diagnosis((), 0, red=True))
    assert voided.startswith("The measurement is not sound for ")
    assert "no-loss" in voided
    assert voided.endswith(".")
    assert not voided.endswith("..")
    bare = case_of_capture(case.capture)
    assert soundness(bare, diagnose(bare)) == "The capture shows no damage; nobody counted what it may have lost."
