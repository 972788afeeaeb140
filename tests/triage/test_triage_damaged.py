"""Damaged parts of a record are named, and the rest is triaged: nothing of it ends in a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_records import change_run, make_record, tell_host
from wire_captures import Fate, Wire, talk

from rig.errors import RigError
from rig.triage.case import case_of_record
from rig.triage.command import output_folder, read_diagnosis, triage
from rig.triage.diagnosis import diagnose
from rig.triage.report import render_report

HUGE = "9" * 400


def lossy(wire: Wire) -> None:
    talk(wire, 60, lambda i, at: Fate(lost_in=i in (7, 27, 47)))


@pytest.fixture
def record(tmp_path: Path) -> Path:
    made = make_record(tmp_path / "001-made", make=lossy, requests=60, observations=[{"kind": "silent", "detail": "x"}])
    tell_host(made, 5, when="start", temperature_c={"cpu": 40}, load=[1.0, 2.0])
    event = {"t_ns": 1_000, "event": "rx", "values": {"depth": 1}}
    (made / "telemetry.jsonl").write_text(json.dumps(event) + "\n")
    return made


def said(record: Path) -> str:
    """What triage notes of a record, all of it; triage itself goes through."""
    lines: list[str] = []
    triage(record, say=lines.append)
    found = read_diagnosis(output_folder(record))
    assert found is not None
    return "\n".join(found["unread"])


EVENTS = [
    ('{"event":"request","t_ns":1,"request_id":[1],"send_ns":5}', "no events of the runner"),
    ('{"event":"request","t_ns":1,"request_id":1,"send_ns":"x"}', "no events of the runner"),
    ('{"event":"request","t_ns":1,"request_id":1,"send_ns":null}', "jetson.jsonl lacks what a runner writes"),
    ('{"event":"end","t_ns":1,"reason":"done","counts":[],"sentinels":[],"boot_ids":[]}', "no events of the runner"),
    ('{"event":"end","t_ns":1,"counts":{"answers_unique":"x"}}', "no events of the runner"),
    ('{"event":"host","t_ns":1,"when":"run","temperature_c":[1],"load":5}', "no events of the runner"),
    ('{"event":"host","t_ns":1}', "jetson.jsonl lacks what a runner writes"),
    ('{"event":"clock","t_ns":1,"realtime_ns":"a"}', "no events of the runner"),
    ('{"event":"error","t_ns":' + HUGE + ',"what":"x"}', "no events of the runner"),
    ('{"event":"error","t_ns":1,"what":null}', "no events of the runner"),
    ('{"event":"x","t_ns":' + "[" * 100_000, "no events of the runner"),
    ('{"event":["x"],"t_ns":1}', "no events of the runner"),
]


@pytest.mark.parametrize(("line", "note"), EVENTS, ids=range(len(EVENTS)))
def test_a_damaged_event_of_the_jetson_is_counted_and_left_out(record: Path, line: str, note: str) -> None:
    with (record / "jetson.jsonl").open("a") as log:
        log.write(line + "\n")
    assert note in said(record)


@pytest.mark.parametrize(
    "line",
    [
        '{"t_ns":1,"values":{"x":1}}',
        '{"t_ns":2,"event":"rx","values":{"x":' + HUGE + "}}",
        '{"t_ns":2,"event":"rx","values":{"x":NaN}}',
        '{"t_ns":' + HUGE + ',"event":"rx","values":{}}',
        '{"t_ns":1,"event":"rx","values":' + "[" * 100_000,
        "[1]",
        "nothing",
    ],
)
def test_a_damaged_event_of_the_board_is_counted_and_left_out(record: Path, line: str) -> None:
    with (record / "telemetry.jsonl").open("a") as ring:
        ring.write(line + "\n")
    assert said(record) == "1 lines of telemetry.jsonl are no events of the board"
    assert len(case_of_record(record).telemetry) == 1


@pytest.mark.parametrize("name", ["board.log", "jetson.jsonl", "telemetry.jsonl"])
def test_a_part_that_cannot_be_read_is_named(record: Path, name: str) -> None:
    (record / name).unlink()
    (record / name).mkdir()
    assert f"{name} cannot be read: Is a directory" in said(record)


@pytest.mark.parametrize(
    ("section", "part", "value", "noted"),
    [
        ("board", "observations", None, False),
        ("board", "observations", ["x"], True),
        ("board", "counters", {"mac_tx_frames": "many"}, True),
        ("bench", "capture", None, False),
        ("bench", "capture", ["x"], True),
        ("capture", "interfaces", None, False),
        ("capture", "interfaces", [{"name": "port", "dropped_nic": [1]}], True),
        ("jetson", "engine", None, False),
        ("jetson", "host", "x", True),
    ],
)
def test_a_damaged_part_of_run_json_is_named_and_left_out(
    record: Path, section: str, part: str, value: Any, noted: bool
) -> None:
    info = json.loads((record / "run.json").read_text())
    change_run(record, **{section: {**info[section], part: value}})
    assert (f"run.json: `{section}.{part}` is not what a run writes" in said(record)) is noted


def test_phases_without_times_are_left_out(record: Path) -> None:
    phase = {"name": "boot", "start_ns": "x", "duration_ns": 1, "budget_ns": 1, "outcome": "ok"}
    change_run(record, phases=[phase, {**phase, "start_ns": 1}])
    assert "run.json: 1 phases are not what a run writes" in said(record)


@pytest.mark.parametrize("e_ns", [10**19, -1, "x"])
def test_an_uncertainty_that_is_none_is_named(record: Path, e_ns: Any) -> None:
    bench = json.loads((record / "run.json").read_text())["bench"]
    change_run(record, bench={**bench, "uncertainty": {"e_ns": e_ns}})
    assert "run.json does not hold what a run writes" in said(record)


def test_half_characters_of_a_log_do_not_reach_a_file(record: Path) -> None:
    with (record / "jetson.jsonl").open("a") as log:
        log.write('{"event":"engine","t_ns":1,"fallback":true,"provider":"\\ud800","provider_wanted":"CUDA"}\n')
    assert said(record) == ""
    assert "and got ?" in (output_folder(record) / "diagnosis.json").read_text()


def test_sound_records_are_called_damaged_by_nobody(record: Path) -> None:
    assert said(record) == ""
    first = diagnose(case_of_record(record)).first
    assert first is not None
    assert first.name == "path-loss-to-board"


ODD: tuple[Any, ...] = (None, [], {}, "x", -1, 2**70, 1.5, float("nan"), "\ud800", [1], {"a": 1}, [[]], {"a": None})


def test_whatever_is_spoilt_no_rule_and_no_page_breaks(record: Path) -> None:
    """Every value of run.json's measurements and of the last events, by one odd value each."""
    for number, name in enumerate(("run.json", "jetson.jsonl", "telemetry.jsonl")):
        whole = (record / name).read_text()
        head, _, last = whole.rstrip("\n").rpartition("\n") if name != "run.json" else ("", "", whole)
        places = [place for place in _places(json.loads(last)) if place[:1] not in (("files",), ("tools",))]
        for index, place in enumerate(places[number % 2 :: 5]):
            spoilt = _with(json.loads(last), place, ODD[index % len(ODD)])
            (record / name).write_text(f"{head}\n{json.dumps(spoilt)}\n".lstrip("\n"))
            _survives(record, (name, place))
        (record / name).write_text(whole)


def _survives(record: Path, what: object) -> None:
    try:
        case = case_of_record(record)
        render_report(case, diagnose(case))
    except RigError:
        pass
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}") from error


def _places(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        keys = value if isinstance(value, dict) else range(len(value))
        return [place for key in keys for place in _places(value[key], (*above, key))] + [above] * bool(above)
    return [above]


def _with(value: Any, place: tuple[Any, ...], other: Any) -> Any:
    inner = value
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = other
    return value
