"""Packets beyond limits: all of them up to the cap, in words, and those that a cause cannot explain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from made_records import change_run, make_record
from test_triage_headline import COPIES, GAPS, ORDER
from wire_captures import MS, Fate, Wire, talk

from rig.triage.annotate import comments_of, focus_of
from rig.triage.broken import MOST, broken_of, said, said_of_reference
from rig.triage.case import case_of_record
from rig.triage.diagnosis import diagnose
from rig.triage.report import render_report


def jittery(wire: Wire, late: int | None = None) -> None:
    """Answers that come 0 to 8 ms late; one request may be served 60 ms late by the board itself."""
    chance = np.random.default_rng(wire.seed)
    talk(wire, 200, lambda i, at: Fate(hold=60 * MS if i == late else int(chance.integers(0, 8 * MS))))


def test_all_packets_beyond_a_limit_are_found_worst_first_up_to_the_cap(tmp_path: Path) -> None:
    case = case_of_record(make_record(tmp_path / "001", make=jittery, limit="3 ms"))
    broken = broken_of(case)["answer-time"]
    exchanges = case.exchanges
    assert exchanges is not None
    over = exchanges.response_ns > 3 * MS + 50_000
    assert broken.total == np.count_nonzero(over) > MOST
    assert len(broken.shown) == MOST
    assert broken.cut == f"{MOST} of {broken.total} shown"
    assert [each.value_ns for each in broken.shown] == sorted(exchanges.response_ns[over].tolist(), reverse=True)[:MOST]
    assert all(each.margin_ns == 3 * MS - each.value_ns for each in broken.shown)
    page = render_report(case, diagnose(case))
    assert f"Worst packets ({broken.cut})" in page
    assert broken.display_filter in page
    commented = comments_of(case, diagnose(case))
    assert {each.frame for each in broken.shown} <= set(commented)


def test_a_packet_and_what_it_is_measured_against_say_what_they_are(tmp_path: Path) -> None:
    def twice(wire: Wire) -> None:
        talk(wire, 200, lambda i, at: Fate(times=1 + (i in (3, 60)), lost_in=i == 100, hold=9 * MS * (i == 150)))

    case = case_of_record(make_record(tmp_path / "001", make=twice, more=COPIES + GAPS + ORDER))
    assert case.result is not None
    broken = broken_of(case)
    told = {check.check: [said(check, each) for each in broken[check.check].shown] for check in case.result.checks
            if check.check in broken}  # fmt: skip
    assert told["no-loss"] == ["never answered"]
    first, copy = broken["no-copies"].shown[0].reference, broken["no-copies"].shown[0].frame
    assert copy == first + 1
    assert told["no-copies"][0] == f"copy of frame {first}, 60 us later"
    comments = comments_of(case, diagnose(case))
    assert comments[copy].startswith(f"FAIL no-copies: copy of frame {first}, 60 us later (count <= 0)")
    assert f"first copy; frame {copy} repeats it (no-copies)" in comments[first]
    assert "FAIL no-copies" not in comments[first]


def test_the_request_of_a_late_answer_is_named_and_not_marked_as_failed(tmp_path: Path) -> None:
    case = case_of_record(make_record(tmp_path / "001", make=lambda w: talk(w, 200, lambda i, at: Fate(hold=9 * MS))))
    assert case.result is not None
    check = case.result.check("answer-time")
    worst = broken_of(case)["answer-time"].shown[0]
    assert said(check, worst).startswith(f"answers frame {worst.reference} after 10.")
    assert said_of_reference(check, worst) == f"request of frame {worst.frame}"
    assert comments_of(case, diagnose(case))[worst.reference] == f"request of frame {worst.frame} (answer-time)"


def test_counted_packets_have_no_columns_without_content(tmp_path: Path) -> None:
    record = make_record(tmp_path / "001", make=lambda w: talk(w, 200, lambda i, at: Fate(lost_in=i % 40 == 7)))
    case = case_of_record(record)
    page = render_report(case, diagnose(case))
    begin = page.index("Packets that were counted")
    head = page[begin : page.index("</thead>", begin)]
    assert "margin" not in head
    assert "limit" not in head
    assert page.count("never answered") >= 5


def test_the_frame_to_begin_with_is_one_that_the_cause_explains(tmp_path: Path) -> None:
    case = case_of_record(make_record(tmp_path / "001", make=lambda wire: jittery(wire, late=120), limit="3 ms"))
    found = diagnose(case)
    assert found.first is not None
    assert found.first.name == "path-jitter-from-board"
    worst = broken_of(case)["answer-time"].shown[0]
    assert worst.value_ns > 60 * MS
    clues = [clue for clue in found.first.support.against if clue.frames]
    assert clues[0].frames == (worst.frame,)
    assert clues[0].text.startswith(f"frame {worst.frame}: 61.")
    assert "is more than this cause explains" in clues[0].text
    assert "on the way back from the board" in clues[0].text
    evidence = [frame for clue in found.first.support.for_it for frame in clue.frames]
    assert focus_of(case, found) in evidence
    assert worst.frame not in evidence
    assert "AGAINST The way from the board delays frames" in comments_of(case, found)[worst.frame]


def test_without_an_outlier_nothing_is_called_unexplained(tmp_path: Path) -> None:
    found = diagnose(case_of_record(make_record(tmp_path / "001", make=jittery, limit="3 ms"))).first
    assert found is not None
    assert not [clue for clue in found.support.against if clue.frames]


def test_the_boards_own_counts_tell_whose_copies_they_are(tmp_path: Path) -> None:
    def some_twice(wire: Wire) -> None:
        talk(wire, 200, lambda i, at: Fate(times=1 + (i % 10 == 3)))

    got = {"received": 200, "duplicates": 20}
    record = make_record(tmp_path / "001", make=some_twice, counters={"mac_tx_frames": 205}, **got)
    first = diagnose(case_of_record(record)).first
    assert first is not None
    assert first.name == "path-copies-from-board"
    (_, ledger) = first.support.for_it
    assert ledger.text == (
        "the board says that it sent 200 answers, the wire shows 220; its driver counted 205 frames sent, the capture "
        "holds 225 of them: the copies were made behind it"
    )
    own = make_record(tmp_path / "002", make=some_twice, counters={"mac_tx_frames": 225}, **got)
    against = [clue.text for cause in diagnose(case_of_record(own)).causes for clue in cause.support.against]
    assert any("the copies are its own" in text for text in against)
    case = case_of_record(record)
    page = render_report(case, diagnose(case))
    assert '<td>copies of answers seen</td><td class="n">20</td>' in page


def test_the_next_step_knows_where_the_capture_was_taken(tmp_path: Path) -> None:
    def held(wire: Wire) -> None:
        talk(wire, 200, lambda i, at: Fate(hold=5 * MS))

    said_of = {}
    for number, point in enumerate(("inline", "mirror", "jetson")):
        record = make_record(tmp_path / f"00{number}", make=held)
        bench = case_of_record(record).info.bench  # type: ignore[union-attr]
        change_run(record, bench={**bench, "capture": {"point": point, "interface": "eth1"}})
        first = diagnose(case_of_record(record)).first
        assert first is not None
        said_of[point] = first.experiment
    assert "at the board's own port (inline, eth1)" in said_of["inline"]
    assert "exchange the cable" in said_of["inline"]
    assert said_of["mirror"].startswith(
        "this capture was taken at the switch's mirror port: capture at the board's own"
    )
    assert said_of["jetson"].startswith("this capture was taken on the Jetson")
    change_run(record, bench={**bench, "emulation": {"capture": "inline"}})
    first = diagnose(case_of_record(record)).first
    assert first is not None
    assert "cable" not in first.experiment
    assert "switch" not in first.experiment
