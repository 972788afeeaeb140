"""What only a record tells: console, far ends' counts, schedule; and records with parts missing."""

from __future__ import annotations

import json
from pathlib import Path

from made_records import make_record, tell_host
from wire_captures import Fate, Wire, talk

from rig.timing.verdict import Verdict
from rig.triage.case import case_of_record
from rig.triage.diagnosis import diagnose
from rig.triage.sections import time_line
from rig.triage.timeline import Event, timeline


def test_a_healthy_record_passes_and_has_no_cause(tmp_path: Path) -> None:
    case = case_of_record(make_record(tmp_path / "001-made"))
    assert case.unread == ()
    assert case.result is not None
    assert case.result.verdict is Verdict.PASS
    assert diagnose(case).first is None


def test_answers_that_only_the_jetson_received_mean_capture_loss(tmp_path: Path) -> None:
    def lossy(wire: Wire) -> None:
        talk(wire, 200, lambda i, at: Fate(lost_out=i in (30, 90, 150)))

    alone = diagnose(case_of_record(make_record(tmp_path / "001-link", make=lossy)))
    assert alone.first is not None
    assert alone.first.name == "path-loss-from-board"
    seen = diagnose(case_of_record(make_record(tmp_path / "002-capture", make=lossy, received=200)))
    assert seen.first is not None
    assert seen.first.name == "capture-loss"


def test_a_fault_on_the_console_tells_a_crash_from_a_reset(tmp_path: Path) -> None:
    def restarted(wire: Wire) -> None:
        def fate(i: int, at: int) -> Fate:
            if i == 70:
                wire.boot, wire.board_sequence = 0xB008, 0
            return Fate(lost_in=60 <= i < 70)

        talk(wire, 200, fate)

    fault = {"kind": "reboot", "detail": "restarted unasked: FAULT HardFault pc=0x60", "t_ns": 1}
    crash = diagnose(case_of_record(make_record(tmp_path / "001-a", make=restarted, observations=[fault])))
    assert crash.first is not None
    assert crash.first.name == "board-crash"
    reset = {"kind": "reboot", "detail": "restarted unasked: reset=pin", "t_ns": 1}
    other = diagnose(case_of_record(make_record(tmp_path / "002-b", make=restarted, observations=[reset])))
    assert other.first is not None
    assert other.first.name == "board-reboot"


def test_a_fault_that_only_the_consoles_log_holds_is_a_crash(tmp_path: Path) -> None:
    seen = {"kind": "reboot", "detail": "restarted unasked: rig-fw reset=software", "t_ns": 1}
    log = ["rig-fw variant=x", "FAULT HardFault pc=0x60000100 lr=0x60000201 cfsr=0x00020000"]
    first = diagnose(case_of_record(make_record(tmp_path / "001-made", log=log, observations=[seen]))).first
    assert first is not None
    assert first.name == "board-crash"
    # A fault before the run's own reset is no fault of this run.
    assert diagnose(case_of_record(make_record(tmp_path / "002-made", log=log))).first is None


def test_a_limit_below_everything_that_was_measured_is_called_the_plans(tmp_path: Path) -> None:
    found = diagnose(case_of_record(make_record(tmp_path / "001-tight", limit="1 ms")))
    assert found.red
    assert found.first is not None
    assert found.first.name == "plan-limit-out-of-reach"


def test_imposed_impairments_are_shown_and_never_used(tmp_path: Path) -> None:
    record = make_record(tmp_path / "001-made")
    info = json.loads((record / "run.json").read_text())
    info["impairment"] = [{"direction": "both", "delay": "5 ms", "loss": "50 %"}]
    info["relay"] = {"to-board": {"dropped_loss": 100}}
    (record / "run.json").write_text(json.dumps(info))
    assert diagnose(case_of_record(record)).first is None


def test_a_record_with_missing_and_damaged_parts_is_triaged_by_the_rest(tmp_path: Path) -> None:
    record = make_record(
        tmp_path / "001-made", make=lambda wire: talk(wire, 200, lambda i, at: Fate(lost_in=i % 20 == 3))
    )
    (record / "jetson.jsonl").write_bytes(b"\xff{broken\n" + (record / "jetson.jsonl").read_bytes())
    (record / "board.log").unlink()
    case = case_of_record(record)
    assert case.unread
    found = diagnose(case)
    assert found.first is not None
    assert found.first.name == "path-loss-to-board"
    (record / "capture.pcapng").write_bytes(b"no capture at all")
    blind = case_of_record(record)
    assert any("capture" in sentence for sentence in blind.unread)
    assert diagnose(blind).first is None


def test_the_time_line_puts_rig_console_jetson_and_packets_on_one_clock(tmp_path: Path) -> None:
    case = case_of_record(make_record(tmp_path / "001-made", log=["rig-fw variant=x", "ready", "FAULT assert heap"]))
    events = timeline(case)
    assert {event.lane for event in events} == {"rig", "board console", "jetson", "packets"}
    assert [event.t_ns for event in events] == sorted(event.t_ns for event in events)
    # The run began a second before the first frame; its console's first line 0 s later.
    assert next(event.t_ns for event in events if event.lane == "board console") == -1_000_000_000
    assert [event.text for event in events if event.level == "bad"] == ["FAULT assert heap"]
    # The Jetson's clock is that of the capture here.
    clock = next(event for event in events if event.text == "clock")
    assert abs(clock.t_ns) < 1_000_000


def test_troubles_and_the_boards_words_are_shown_and_the_routine_is_folded(tmp_path: Path) -> None:
    record = make_record(
        tmp_path / "001-made",
        make=lambda wire: talk(wire, 200, lambda i, at: Fate(lost_in=i == 30)),
        log=["rig-fw variant=x", "FAULT assert heap"],
    )
    tell_host(record, 5, when="start", load=[7.8896484375, 6.279296875, 3.54833984375])
    case = case_of_record(record)
    events = timeline(case)
    assert next(event.text for event in events if event.text.startswith("host")) == "host at start: load 7.89 6.28 3.55"
    assert {event.text for event in events if event.level == "routine"} == {"spec", "clock"}
    page = time_line(events)
    shown, folded = page.split("<details>")
    assert "FAULT assert heap" in shown
    assert "rig-fw variant=x" in shown
    assert "no-loss: never answered (count &lt;= 0)" in shown
    for text in ("host at start", "preflight", ">clock<", ">spec<"):
        assert text not in shown
        assert text in folded
    assert "FAULT assert heap" in folded


def test_of_too_many_events_the_boards_words_stay_in_sight() -> None:
    events = [Event(i, "packets", f"no-loss: {i}", "bad", i) for i in range(200)]
    events += [Event(300 + i, "board telemetry", f"arp_wait id={i}") for i in range(200)]
    events.append(Event(600, "board console", "FAULT HardFault", "bad"))
    shown = time_line(events).split("<details>")[0]
    assert "FAULT HardFault" in shown
    assert "(40 of 401)" in shown
    assert shown.count("<tr class=") == 40
