"""`rig triage` as a person uses it: what it prints, where it writes, how it ends."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from made_records import make_record
from wire_captures import Fate, Wire, talk
from wire_signatures import make

from rig.cli import main
from rig.triage.command import SCHEMA, output_folder, read_diagnosis


def lossy(wire: Wire) -> None:
    talk(wire, 200, lambda i, at: Fate(lost_in=i % 40 == 7))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_red_record_is_summed_up_and_its_folder_stays_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = make_record(tmp_path / "set" / "001-made", make=lossy)
    before = tree(record)
    assert main(["triage", str(record)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "FAIL made: no-loss: 5 of 200 requests unanswered, 0 allowed"
    assert "diagnosis: Frames to the board are lost: 5 of 200" in lines
    assert any(line.startswith("next: ") for line in lines)
    assert lines[-1].startswith("capture: WIRESHARK_CONFIG_DIR=")
    assert all(len(line) <= 100 for line in lines if not line.startswith(("report:", "capture:")))
    assert tree(record) == before
    folder = tmp_path / "set" / "001-made.triage"
    assert output_folder(record) == folder
    assert {"report.html", "annotated.pcapng", "diagnosis.json"} <= set(tree(folder))


def test_a_green_record_ends_with_0_and_names_no_cause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["triage", str(make_record(tmp_path / "001-made")), "--out", str(tmp_path / "out")]) == 0
    assert "diagnosis: nothing wrong was found" in capsys.readouterr().out
    assert (tmp_path / "out" / "report.html").exists()


def test_the_json_is_for_programs(tmp_path: Path) -> None:
    record = make_record(tmp_path / "001-made", make=lossy)
    main(["triage", str(record)])
    found = read_diagnosis(output_folder(record))
    assert found is not None
    assert found["schema"] == SCHEMA
    assert (found["verdict"], found["cause"], found["side"]) == ("FAIL", "path-loss-to-board", "link")
    assert found["causes"][0]["for"][0]["frames"]
    assert read_diagnosis(tmp_path) is None


def test_a_bare_capture_is_diagnosed_and_its_folder_lies_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = make("V19 tx_dup", 1, tmp_path / "field.pcapng")
    assert main(["triage", str(capture)]) == 0
    assert "The board sends every frame twice" in capsys.readouterr().out
    assert (tmp_path / "field.pcapng.triage" / "report.html").exists()


def test_a_capture_with_a_plan_is_judged_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = make_record(tmp_path / "001-made", make=lossy)
    plan = tmp_path / "made.plan.yaml"
    plan.write_bytes((record / "plan.yaml").read_bytes())
    capture = tmp_path / "field.pcapng"
    capture.write_bytes((record / "capture.pcapng").read_bytes())
    assert main(["triage", str(capture), "--plan", str(plan)]) == 1
    assert capsys.readouterr().out.startswith("FAIL made: no-loss: 5 of 200 requests unanswered")


def test_a_set_and_a_missing_file_say_what_to_name_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_record(tmp_path / "set" / "001-made")
    assert main(["triage", str(tmp_path / "set")]) == 2
    told = capsys.readouterr().err
    assert "001-made" in told
    assert "rig triage" in told
    assert main(["triage", str(tmp_path / "nothing.pcap")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_what_is_no_capture_is_an_error_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.pcap").write_text("hello, world, this is text")
    assert main(["triage", str(tmp_path / "text.pcap")]) == 3
    assert "is no capture file" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["text.pcap"]


def test_a_record_is_never_written_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = make_record(tmp_path / "001-made")
    before = tree(record)
    assert main(["triage", str(record), "--out", str(record)]) == 3
    assert "never writes into one" in capsys.readouterr().err
    assert tree(record) == before


def test_escape_sequences_of_a_log_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = {"kind": "fault", "detail": "FAULT \x1b]0;title\x07 stack", "t_ns": 1}
    main(["triage", str(make_record(tmp_path / "001-made", observations=[fault]))])
    assert "\x1b" not in capsys.readouterr().out


def test_a_good_run_beside_it_shows_what_moved_and_what_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = make_record(tmp_path / "001-good", seed=1)
    bad = make_record(
        tmp_path / "002-bad",
        seed=2,
        build="bb22",
        make=lambda wire: talk(wire, 200, lambda i, at: Fate(hold=3_000_000)),
    )
    main(["triage", str(bad), "--against", str(good)])
    told = capsys.readouterr().out
    assert re.search(r"against 001-good: answer-time moved first: its p50 by \+(2\.9[0-9]*|3(\.0[0-9]*)?) ms", told)
    assert "firmware build id: aa11 -> bb22" in told
    page = (output_folder(bad) / "report.html").read_text()
    assert "What else changed" in page
    content = json.loads((output_folder(bad) / "diagnosis.json").read_text())
    assert content["against"]["first_moved"] == "answer-time"


def test_two_runs_of_the_same_build_did_not_move(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, other = make_record(tmp_path / "001-good", seed=1), make_record(tmp_path / "002-other", seed=2)
    main(["triage", str(other), "--against", str(good)])
    told = capsys.readouterr().out
    assert "no check moved by more than chance and e explain" in told
    assert "changed: nothing recorded" in told


def test_a_run_that_the_rig_broke_off_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = make_record(tmp_path / "001-made", outcome="error")
    info = json.loads((record / "run.json").read_text())
    info["error"] = {
        "side": "board",
        "phase": "flash",
        "what": "no answer to 0x7F",
        "seen": "nothing",
        "hint": "check BOOT0",
    }
    (record / "run.json").write_text(json.dumps(info))
    (record / "capture.pcapng").unlink()
    assert main(["triage", str(record)]) == 3
    told = capsys.readouterr().out
    assert told.startswith("ERROR made: ")
    assert "diagnosis: The rig or its bench failed: in phase `flash`" in told
    assert "check BOOT0" in told
    assert "no annotated capture: there is no capture.pcapng" in told
    assert (output_folder(record) / "report.html").exists()


def test_lines_to_copy_work_from_anywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = make_record(tmp_path / "set" / "001-made", make=lossy)
    folder = output_folder(record)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    main(["triage", "../set/001-made"])
    *_, report, capture = capsys.readouterr().out.splitlines()
    assert report == f"report:  {folder}/report.html"
    assert f"-r {folder}/annotated.pcapng" in capture
    page = (folder / "report.html").read_text()
    assert f"cd {folder} &amp;&amp; WIRESHARK_CONFIG_DIR=wireshark" in page
    assert f"rig judge {record}" in page
    monkeypatch.chdir(tmp_path)
    main(["triage", "set/001-made"])
    *_, report, capture = capsys.readouterr().out.splitlines()
    assert report == "report:  set/001-made.triage/report.html"


def test_captures_whose_names_differ_have_folders_that_differ(tmp_path: Path) -> None:
    folders = set()
    for name in ("field.1.pcapng", "field.2.pcapng", "field.pcapng", "field.pcap", "field.pcapng.gz"):
        make("healthy", 1, tmp_path / name)
        folders.add(output_folder(tmp_path / name))
    assert len(folders) == 5
    assert tmp_path / "field.1.pcapng.triage" in folders


def test_triage_of_another_state_leaves_no_frames_of_the_state_before(tmp_path: Path) -> None:
    capture = tmp_path / "field.pcapng"
    lossy(wire := Wire(1))
    wire.write(capture)
    main(["triage", str(capture)])
    folder = output_folder(capture)
    assert [path.name for path in folder.glob("frame-*.pcapng")]
    (folder / "frame-notes.txt").write_text("somebody's own")
    (folder / "frame-x.pcapng").write_text("somebody's own")
    talk(wire := Wire(2), 200)
    wire.write(capture)
    main(["triage", str(capture)])
    kept = {path.name for path in folder.iterdir() if path.is_file()}
    assert kept == {"annotated.pcapng", "diagnosis.json", "report.html", "frame-notes.txt", "frame-x.pcapng"}


def test_a_capture_in_the_folder_that_triage_writes_to_stays(tmp_path: Path) -> None:
    capture = tmp_path / "field.pcapng"
    lossy(wire := Wire(1))
    wire.write(capture)
    main(["triage", str(capture)])
    folder = output_folder(capture)
    part = next(folder.glob("frame-*.pcapng"))
    main(["triage", str(part), "--out", str(folder)])
    assert part.exists()
    # Nor is anything taken from a folder that no triage wrote.
    other = tmp_path / "mine"
    other.mkdir()
    (other / "frame-7.pcapng").write_bytes(part.read_bytes())
    main(["triage", str(capture), "--out", str(other)])
    assert (other / "frame-7.pcapng").exists()


def test_a_record_that_lost_its_capture_has_no_copy_of_it_from_before(tmp_path: Path) -> None:
    record = make_record(tmp_path / "001-made", make=lossy)
    main(["triage", str(record)])
    (record / "capture.pcapng").unlink()
    main(["triage", str(record)])
    assert not list(output_folder(record).glob("*.pcapng"))
