"""Whole runs judged: the evidence gate, `alive`, summing up, expectations, JSON and text."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from timing_captures import (
    BOARD,
    BOOT,
    BY_ORDER,
    COUNTED_LOSS,
    DUPLICATES,
    FLOWS_RAW,
    GAP,
    JETSON,
    LOSS,
    MS,
    REORDERING,
    RESPONSE_TIME,
    TO_LAST,
    US,
    Capture,
    S,
    at_most,
    count_of,
    each,
    healthy,
    percentile,
    run,
)

from rig.plan.model import Expect
from rig.protocol import token_v2
from rig.timing.evidence import Alive, Evidence, Ledger
from rig.timing.expectation import outcome, outcome_of_check
from rig.timing.rendering import render_check
from rig.timing.table import InterfaceInfo, ReaderFinding
from rig.timing.verdict import PointResult, Verdict, unjudged, worst

ALL = {
    "time": (TO_LAST, [each(100 * MS), percentile("p99", 20 * MS)]),
    "gap": (GAP, [each(100 * MS)]),
    "early": (GAP, [each(min_ns=MS)]),
    "loss": (LOSS, [count_of(0)]),
    "counted": (COUNTED_LOSS, [count_of(0)]),
    "copies": (DUPLICATES, [count_of(0)]),
    "order": (REORDERING, [count_of(0)]),
}
GOOD_BOOT = Alive(image_verified=True)
SOUND = Evidence(sentinels=True, ledger=Ledger(requests_sent=300, answers_received=300), alive=GOOD_BOOT)
NO_RECEIPTS = replace(SOUND, ledger=Ledger(requests_sent=300))


def verdicts(result: PointResult) -> dict[str, str]:
    return {check.check: check.verdict.value for check in result.checks}


def names(result: PointResult) -> list[str]:
    return [finding.name for finding in result.findings]


def faulty(*, lost: int = 0, slow: int = 0, early: int = 0, copied: int = 0, swapped: int = 0) -> Capture:
    """300 exchanges with some faults, each kind alone on its own exchanges."""
    capture = Capture()
    capture.sentinel(0, 1, answered_at=MS)
    faults = ["lost"] * lost + ["slow"] * slow + ["early"] * early + ["copied"] * copied + ["swapped"] * swapped
    end = 10 * MS + 300 * 200 * MS
    for i in range(300):
        at = 10 * MS + i * 200 * MS
        capture.request(at, i)
        fault = faults[i - 1] if 1 <= i <= len(faults) else ""
        sequence = capture.sequence["board"]
        if fault == "lost":
            capture.sequence["board"] += 1
            continue
        capture.answer(at + {"slow": 150 * MS}.get(fault, 2 * MS), i)
        if fault == "copied":
            capture.answer(at + 3 * MS, i, sequence=sequence)
        if fault == "early":
            capture.answer(at + 2 * MS + 10 * US, i)
        if fault == "swapped":
            capture.frames.pop()
            capture.sequence["board"] = sequence
            capture.answer(at + 2 * MS, i, sequence=sequence + 1)
            capture.answer(at + 4 * MS, i, sequence=sequence)
            capture.sequence["board"] = sequence + 2
    answered = 300 + early + swapped
    capture.sentinel(end + 2 * S, 2, answered_at=end + 2 * S + MS, counters=(300, 0, answered, 0, 0, 0, 1, 0))
    return capture


def test_healthy_run_passes_every_check() -> None:
    result = run(faulty(), ALL | {"gap": (GAP, [each(500 * MS)])}, SOUND, requests=300)
    assert set(verdicts(result).values()) == {"PASS"}
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    assert result.counts["answers sent"] == 300
    assert result.window_ns == (0, 10 * MS + 60 * S + 2 * S)


@pytest.mark.parametrize(
    ("fault", "failing"),
    [
        ({"lost": 1}, {"time", "loss", "counted", "gap"}),
        ({"slow": 1}, {"time"}),
        ({"early": 1}, {"early"}),
        ({"copied": 2}, {"copies"}),
        ({"swapped": 1}, {"order"}),
    ],
)
def test_each_fault_turns_exactly_its_checks_red(fault: dict[str, int], failing: set[str]) -> None:
    checks = {**ALL, "gap": (GAP, [each(360 * MS)])}
    result = run(faulty(**fault), checks, NO_RECEIPTS, requests=300)
    assert {name for name, value in verdicts(result).items() if value == "FAIL"} == failing
    assert {value for name, value in verdicts(result).items() if name not in failing} == {"PASS"}


# --- the gate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("evidence", "finding"),
    [
        (replace(SOUND, drops={"isb": 1, "dumpcap": -1}), "capture-drops"),
        (replace(SOUND, nic={"rx_missed_errors": 4}), "nic-drops"),
        (replace(SOUND, clock_step_ns=-2 * MS), "clock-step"),
        (replace(SOUND, carrier_changes=2), "carrier-changed"),
        (replace(SOUND, degraded=("the engine fell back to the CPU",)), "jetson-degraded"),
        (replace(SOUND, ledger=Ledger(requests_sent=120)), "short-run"),
        (replace(SOUND, ledger=Ledger(requests_received=301)), "capture-loss"),
        (replace(SOUND, ledger=Ledger(answers_received=302)), "capture-loss"),
    ],
)
def test_bad_evidence_voids_every_pass(evidence: Evidence, finding: str) -> None:
    result = run(healthy(300), ALL, evidence, requests=300)
    assert names(result) == [finding]
    values = verdicts(result)
    assert values.pop("alive") == "PASS"
    assert set(values.values()) == {"INCONCLUSIVE"}
    assert {item.name for item in result.check("time").voided_by} == {finding}


def test_board_that_pushes_less_than_it_was_armed_for_cannot_pass() -> None:
    capture = Capture()
    capture.sentinel(0, 1, answered_at=MS)
    for i in range(10):
        capture.answer(10 * MS + i * MS, i)
    capture.sentinel(S, 2, answered_at=S + MS, counters=(0, 0, 0, 0, 10, 0, 1, 0))
    checks = {"gap": (GAP, [each(S)]), "counted": (COUNTED_LOSS, [count_of(0)])}
    assert run(capture, checks, mode="push", requests=10).verdict is Verdict.PASS
    result = run(capture, checks, mode="push", requests=11)
    assert names(result) == ["short-run"]
    assert set(verdicts(result).values()) == {"INCONCLUSIVE"}


def test_missed_schedule_voids_beyond_the_share_that_the_plan_allows() -> None:
    load = {"open": {"every": "5 ms", "overrun": "5 %"}}
    at_limit = replace(SOUND, late_sends=15, sends=300)
    beyond = replace(SOUND, late_sends=16, sends=300)
    assert run(healthy(300), ALL, at_limit, load=load).verdict is Verdict.PASS
    assert names(run(healthy(300), ALL, beyond, load=load)) == ["schedule-missed"]


def test_late_sends_excuse_as_many_losses_but_not_a_mute_board() -> None:
    load = {"open": {"every": "200 ms", "overrun": "5 %"}}
    evidence = replace(NO_RECEIPTS, late_sends=20, sends=300)
    assert run(faulty(lost=20), ALL, evidence, load=load).check("loss").verdict is Verdict.INCONCLUSIVE
    assert run(faulty(lost=21), ALL, evidence, load=load).check("loss").verdict is Verdict.FAIL


@pytest.mark.parametrize(
    "kind", ["cut-file", "corrupt-block", "unsupported-linktype", "no-timestamp", "too-many-flows", "time-step-back"]
)
def test_damage_of_the_file_voids_every_pass(kind: str) -> None:
    result = run(healthy(300), ALL, SOUND, findings=[ReaderFinding(kind, "said the reader")])
    assert {value for name, value in verdicts(result).items() if name != "alive"} == {"INCONCLUSIVE"}


def test_a_step_back_within_e_is_a_remark_and_beyond_it_voids_every_pass() -> None:
    within, beyond = (
        run(healthy(300), ALL, SOUND, findings=[ReaderFinding("time-step-back", "back", step)], e_ns=10_000)
        for step in (10_000, 10_001)
    )
    assert within.verdict is Verdict.PASS
    assert names(within) == ["time-step-back"]
    assert beyond.verdict is Verdict.INCONCLUSIVE


def test_an_unsound_recording_voids_every_pass() -> None:
    result = run(healthy(300), ALL, replace(SOUND, recording=("dumpcap died",)))
    assert {value for name, value in verdicts(result).items() if name != "alive"} == {"INCONCLUSIVE"}


def test_a_remark_of_the_reader_voids_nothing() -> None:
    result = run(healthy(300), ALL, SOUND, findings=[ReaderFinding("snaplen-cut", "payloads are cut at 96 bytes")])
    assert result.verdict is Verdict.PASS
    assert names(result) == ["snaplen-cut"]


@pytest.mark.parametrize(("known", "missing"), [({}, 757), ({"isb": 757}, 757), ({"isb": 1}, 757), ({"isb": 900}, 900)])
def test_drops_that_the_file_itself_tells_of_count_once(known: dict[str, int], missing: int) -> None:
    said = [ReaderFinding("interface-drops", "the capture says that packets were dropped: 757 of 9361")]
    interfaces = [InterfaceInfo("any", 1, 1.0, 9361, 757), InterfaceInfo("other", 1, 1.0)]
    result = run(healthy(300), ALL, replace(SOUND, drops=known), findings=said, interfaces=interfaces)
    assert result.verdict is Verdict.INCONCLUSIVE
    (finding,) = result.findings
    assert (finding.name, finding.doubt.missing) == ("capture-drops", missing)


def test_drops_excuse_only_as_many_losses_as_frames_were_dropped() -> None:
    few = run(faulty(lost=3), ALL, replace(NO_RECEIPTS, drops={"isb": 3}), timeout="100 ms")
    many = run(faulty(lost=4), ALL, replace(NO_RECEIPTS, drops={"isb": 3}), timeout="100 ms")
    assert [few.check(name).verdict.value for name in ("time", "loss", "counted")] == ["INCONCLUSIVE"] * 3
    assert [many.check(name).verdict.value for name in ("time", "loss", "counted")] == ["FAIL"] * 3


def test_drops_cannot_have_caused_copies_reordering_or_early_packets() -> None:
    result = run(faulty(copied=1, swapped=1, early=1), ALL, replace(SOUND, drops={"isb": 1000}))
    assert [result.check(name).verdict.value for name in ("copies", "order", "early")] == ["FAIL"] * 3


def test_loss_on_the_wire_that_the_far_end_denies_is_capture_loss() -> None:
    result = run(faulty(lost=1), ALL, SOUND)
    assert names(result) == ["capture-loss"]
    assert result.check("loss").verdict is Verdict.INCONCLUSIVE
    assert "300 answers, the capture holds 299" in result.findings[0].sentence


def test_clock_step_cannot_have_caused_a_loss() -> None:
    result = run(faulty(lost=1, slow=1), ALL, replace(NO_RECEIPTS, clock_step_ns=80 * MS), timeout="190 ms")
    assert result.check("loss").verdict is Verdict.FAIL
    assert result.check("time").verdict is Verdict.FAIL  # for the lost one
    result = run(faulty(slow=1), ALL, replace(NO_RECEIPTS, clock_step_ns=80 * MS))
    assert result.check("time").verdict is Verdict.INCONCLUSIVE


def test_copies_of_a_capture_point_that_shows_frames_twice_prove_nothing() -> None:
    result = run(faulty(copied=3), ALL, replace(SOUND, frames_twice=True))
    assert result.check("copies").verdict is Verdict.INCONCLUSIVE
    assert result.check("order").verdict is Verdict.PASS


def test_slow_jetson_does_not_excuse_a_slow_board() -> None:
    evidence = replace(SOUND, degraded=("clocks throttled at 92 °C",))
    assert run(faulty(slow=1), ALL, evidence).check("time").verdict is Verdict.FAIL


def test_missing_sentinels_void_a_pass_but_no_loss_that_the_capture_shows() -> None:
    capture = healthy(300, sentinels=False)
    result = run(capture, ALL, SOUND)
    assert names(result) == ["no-start-sentinel", "no-end-sentinel"]
    assert result.check("time").verdict is Verdict.INCONCLUSIVE
    capture.request(3 * S, 999)
    capture.arp(9 * S, 1, JETSON, JETSON)
    assert run(capture, ALL, SOUND).check("time").verdict is Verdict.FAIL


def test_unanswered_sentinel_is_a_finding_that_voids_nothing() -> None:
    capture = healthy(300, sentinels=False)
    capture.sentinel(0, 1)
    capture.sentinel(5 * S, 2)
    checks = {name: ALL[name] for name in ("time", "loss")}
    result = run(capture, checks, SOUND)
    assert names(result) == ["start-sentinel-unanswered", "end-sentinel-unanswered"]
    assert result.verdict is Verdict.PASS


def test_a_capture_that_never_had_sentinels_is_judged_as_a_whole() -> None:
    assert run(healthy(300, sentinels=False), {"time": ALL["time"]}).verdict is Verdict.PASS


def test_request_copied_behind_the_capture_point_is_no_capture_loss() -> None:
    capture = healthy(3)
    capture.answer(30 * MS, 2)  # the board answers the copy that the capture point never saw
    evidence = Evidence(ledger=Ledger(requests_received=4, answers_sent=4))
    result = run(capture, {"loss": (LOSS, [count_of(0)])}, evidence)
    assert (result.verdict, names(result)) == (Verdict.PASS, [])


def test_header_cut_by_the_snaplen_is_the_captures_fault() -> None:
    capture = healthy(300)
    capture.request(20 * MS + 1, 999)
    capture.from_board(22 * MS, token_v2.encode(token_v2.Header(type=2, request_id=999), bytes(4)), captured=40)
    result = run(capture, {"loss": (LOSS, [count_of(0)])}, replace(SOUND, ledger=Ledger()))
    assert (result.verdict, names(result)) == (Verdict.INCONCLUSIVE, ["headers-cut"])


def test_no_packets_are_never_a_pass() -> None:
    capture = Capture()
    capture.sentinel(0, 1, answered_at=MS)
    capture.sentinel(S, 2, answered_at=S + MS)
    values = verdicts(run(capture, ALL, Evidence(sentinels=True)))
    assert set(values.values()) == {"INCONCLUSIVE"}
    assert set(verdicts(run(Capture(), ALL)).values()) == {"INCONCLUSIVE"}


# --- resolution of the stamps -----------------------------------------------------------------------------------------


def coarse(step_ns: int, answer_ns: int) -> Capture:
    """50 exchanges as stamps of that resolution show them: cut to whole steps."""
    capture = Capture()
    for i in range(50):
        capture.request(i * 10 * MS, i)
        capture.answer((i * 10 * MS + answer_ns) // step_ns * step_ns, i)
    return capture


@pytest.mark.parametrize(("answer_ns", "shown"), [(1_900 * US, MS), (2_100 * US, 2 * MS)])
def test_stamps_coarser_than_e_prove_nothing_that_lies_within_one_step_of_them(answer_ns: int, shown: int) -> None:
    checks = {"time": (RESPONSE_TIME, [each(1_500 * US)]), "far": (RESPONSE_TIME, [each(10 * MS)])}
    result = run(coarse(MS, answer_ns), checks, interfaces=[InterfaceInfo("", 1, 1e6)], e_ns=50 * US)
    assert result.check("time").summary.max_ns == shown  # type: ignore[union-attr]
    assert verdicts(result) == {"time": "INCONCLUSIVE", "far": "PASS"}
    assert result.e_ns == MS
    note = "the stamps of this capture resolve 1 ms, coarser than the bench's e = 50 us: e = 1 ms was judged by"
    assert result.check("far").notes == (note,)


def test_a_limit_finer_than_three_steps_of_the_stamps_cannot_pass() -> None:
    checks = {"time": (RESPONSE_TIME, [each(2_900 * US)])}
    result = run(coarse(MS, 100 * US), checks, interfaces=[InterfaceInfo("", 1, 1e6)], e_ns=50 * US)
    assert result.check("time").verdict is Verdict.INCONCLUSIVE
    assert "finer than 3 e = 3 ms" in result.check("time").reason


def test_stamps_finer_than_e_change_nothing_and_neither_do_interfaces_without_packets_of_the_plan() -> None:
    checks = {"time": (RESPONSE_TIME, [each(2_100 * US)])}
    fine, coarser = InterfaceInfo("a", 1, 1e3), InterfaceInfo("b", 1, 1e9)
    for interfaces in ([fine], [fine, coarser]):
        result = run(coarse(US, 1_800 * US), checks, interfaces=interfaces, e_ns=50 * US)
        assert (result.verdict, result.e_ns, result.check("time").notes) == (Verdict.PASS, 50 * US, ())


# --- boards that do not answer ----------------------------------------------------------------------------------------


def test_silent_board_fails_response_time_and_loss() -> None:
    capture = Capture()
    capture.sentinel(0, 1)
    for i in range(5):
        capture.request((i + 1) * 100 * MS, i)
    capture.sentinel(3 * S, 2)
    result = run(capture, {"time": ALL["time"], "loss": ALL["loss"]}, Evidence(sentinels=True))
    assert verdicts(result) == {"time": "FAIL", "loss": "FAIL"}


def test_board_that_does_not_answer_arp_fails_although_no_request_was_captured() -> None:
    capture = Capture()
    for i in range(30):
        capture.arp(i * S, 1, JETSON, BOARD)
    evidence = Evidence(sentinels=True, ledger=Ledger(requests_sent=20))
    result = run(capture, {"time": ALL["time"], "loss": ALL["loss"]}, evidence, requests=20)
    assert verdicts(result) == {"time": "FAIL", "loss": "FAIL"}
    assert result.check("time").counts["requests that never left (ARP unanswered)"] == 20
    assert result.check("time").violations[0].frame == 1
    assert "ARP requests for the board were not answered" in result.findings[0].sentence


def test_requests_that_vanish_without_unanswered_arp_are_no_proof_against_the_board() -> None:
    capture = Capture()
    capture.arp(0, 1, JETSON, BOARD)
    capture.arp(1 * MS, 2, BOARD, JETSON)
    evidence = Evidence(sentinels=True, ledger=Ledger(requests_sent=20))
    result = run(capture, {"time": ALL["time"], "loss": ALL["loss"]}, evidence, requests=20)
    assert verdicts(result) == {"time": "INCONCLUSIVE", "loss": "INCONCLUSIVE"}
    assert "requests-not-seen" in names(result)


# --- alive ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alive", "word"),
    [
        (replace(GOOD_BOOT, no_boot="the board did not boot within 5 s"), "did not boot"),
        (replace(GOOD_BOOT, faults=("FAULT HardFault pc=0x1234",)), "HardFault"),
        (
            replace(GOOD_BOOT, resets=("the board restarted 3 s after the start sentinel (reset=software)",)),
            "restarted",
        ),
    ],
)
def test_alive_fails_after_a_verified_flash_and_decides_the_run(alive: Alive, word: str) -> None:
    result = run(healthy(300), ALL, replace(SOUND, alive=alive))
    assert result.check("alive").verdict is Verdict.FAIL
    assert word in result.check("alive").reason
    assert result.verdict is Verdict.FAIL


def test_dead_board_without_a_verified_image_is_an_error_of_the_bench() -> None:
    result = run(
        healthy(300), ALL, replace(SOUND, alive=Alive(image_verified=False, no_boot="not one line on the console"))
    )
    assert result.check("alive").verdict is Verdict.ERROR
    assert result.verdict is Verdict.ERROR


def test_change_of_boot_id_among_the_packets_fails_alive_even_without_a_console() -> None:
    capture = healthy(3)
    capture.answer(30 * MS, 2, boot=BOOT + 1, sequence=0)
    result = run(capture, {"time": (RESPONSE_TIME, [each(S)])})
    assert result.check("alive").verdict is Verdict.FAIL
    assert "0000b007, 0000b008" in result.check("alive").reason


def test_without_a_console_there_is_no_alive_check() -> None:
    assert set(verdicts(run(healthy(3), {"time": (RESPONSE_TIME, [each(S)])}))) == {"time"}


# --- results ----------------------------------------------------------------------------------------------------------


def test_order_of_verdicts() -> None:
    assert worst([Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.ERROR, Verdict.FAIL]) is Verdict.FAIL
    assert worst([Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.ERROR]) is Verdict.ERROR
    assert worst([Verdict.SKIP, Verdict.PASS, Verdict.INCONCLUSIVE]) is Verdict.INCONCLUSIVE
    assert worst([Verdict.SKIP, Verdict.PASS]) is Verdict.PASS
    assert worst([Verdict.SKIP]) is Verdict.SKIP


def test_json_is_the_same_twice_and_names_what_a_person_needs() -> None:
    first, second = (run(faulty(slow=2), ALL, SOUND).to_json() for _ in range(2))
    assert first == second
    data = json.loads(first)
    (time,) = [check for check in data["checks"] if check["check"] == "time"]
    assert time["verdict"] == "FAIL"
    assert time["violations"][0] == {
        "rule": "each <= 100 ms",
        "place": "x.plan.yaml:14",
        "frame": 6,
        "reference": 5,
        "at_ns": 360 * MS,
        "value_ns": 150 * MS,
        "limit_ns": 100 * MS,
        "margin_ns": -50 * MS,
        "unit": "ns",
    }
    assert time["display_filter"] == "frame.number in {5,6,7,8}"
    assert time["limits"][1]["rule"] == "p99 <= 20 ms"
    assert json.dumps(data, sort_keys=True, indent=1, ensure_ascii=False) + "\n" == first


def test_json_writes_lost_samples_as_a_word() -> None:
    data = json.loads(run(faulty(lost=1), ALL, NO_RECEIPTS, timeout="100 ms").to_json())
    (time,) = [check for check in data["checks"] if check["check"] == "time"]
    assert time["violations"][0]["value_ns"] == "lost"
    assert time["violations"][0]["margin_ns"] is None
    assert time["summary"]["max_ns"] == "lost"


def test_rendered_check_begins_with_the_verdict_and_shows_rule_n_and_packets() -> None:
    text = render_check(run(faulty(slow=2, lost=1), ALL, NO_RECEIPTS, timeout="190 ms").check("time"))
    assert text.split()[0] == "FAIL"
    for part in ("each <= 100 ms", "[x.plan.yaml:14]", "n = 300 requests, 1 lost", "p50 2 ms"):
        assert part in text
    assert "frame.number in {" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(("lost", "more"), [(5, ""), (9, "the worst 5 of 9; `rig triage` lists more")])
def test_how_many_violations_are_left_out_is_said(lost: int, more: str) -> None:
    text = render_check(run(faulty(lost=lost), ALL, NO_RECEIPTS).check("loss"))
    assert more in text
    assert ("lists more" in text) == bool(more)


def test_rendered_check_names_the_evidence_that_voids_it() -> None:
    text = render_check(run(healthy(300), ALL, replace(SOUND, drops={"isb": 7})).check("time"))
    assert text.startswith("INCONCLUSIVE time: the capture lost frames (isb 7)")


def test_profile_whose_limit_applied_is_shown() -> None:
    limit = replace(each(MS), source="hardware")
    text = render_check(run(healthy(3), {"time": (TO_LAST, [limit])}).check("time"))
    assert "limit of profile hardware" in text


def test_sample_proof_is_said_in_the_verdict_line() -> None:
    checks = {"time": ({**TO_LAST, "proof": "sample"}, [percentile("p99", 20 * MS)])}
    text = render_check(run(healthy(300), checks).check("time"))
    assert "proof: sample" in text.splitlines()[0]


def test_correlated_samples_are_remarked() -> None:
    capture = Capture()
    for i in range(300):
        capture.request(i * 10 * MS, i)
        capture.answer(i * 10 * MS + (1 + i // 60) * MS, i)
    capture.arp(20 * S, 1, JETSON, JETSON)
    checks = {"time": (TO_LAST, [percentile("p50", 3 * MS)]), "far": (TO_LAST, [percentile("p50", 20 * MS)])}
    result = run(capture, checks)
    assert result.check("far").verdict is Verdict.PASS  # no sample is anywhere near
    check = result.check("time")
    assert "depend on each other" in check.notes[0]
    assert check.limits[0].block > 1
    assert check.verdict is Verdict.INCONCLUSIVE
    assert "blocks of" in check.reason


def test_a_percentile_that_holds_only_for_short_stretches_says_so() -> None:
    note = "p99 <= 20 ms is proven for samples beyond it that come in stretches of at most"
    checks = {"time": (TO_LAST, [percentile("p50", 20 * MS), percentile("p99", 20 * MS)])}
    for requests, stretch in ((300, 1), (900, 3)):
        check = run(healthy(requests), checks).check("time")
        assert (check.verdict, check.notes) == (Verdict.PASS, (f"{note} {stretch}",))
        assert f"note: {note} {stretch}" in " ".join(render_check(check).split())
    assert run(healthy(3_000), checks).check("time").notes == ()


def test_matching_by_order_beside_stray_responses_never_passes() -> None:
    capture = Capture()
    for at in (0, 1):
        capture.request(at * MS, at)
    for at in (2, 3, 4):
        capture.answer(at * MS, at)
    capture.arp(20 * S, 1, JETSON, JETSON)
    result = run(capture, {"time": (BY_ORDER, [each(S)])}, flows=FLOWS_RAW)
    assert result.check("time").verdict is Verdict.INCONCLUSIVE


# --- expectations -----------------------------------------------------------------------------------------------------


def judged(**values: str) -> PointResult:
    result = unjudged("p", "", "emulated", 0, [(name, "loss") for name in values], Verdict.PASS, "for the test")
    checks = tuple(replace(check, verdict=Verdict(values[check.check])) for check in result.checks)
    return replace(result, checks=checks, verdict=worst(check.verdict for check in checks))


@pytest.mark.parametrize(
    ("values", "fail", "green"),
    [
        ({"a": "PASS", "b": "PASS"}, None, True),
        ({"a": "PASS", "b": "PASS"}, [], True),
        ({"a": "PASS", "b": "FAIL"}, ["b"], True),
        ({"a": "PASS", "b": "PASS"}, ["b"], False),
        ({"a": "FAIL", "b": "FAIL"}, ["b"], False),
        ({"a": "PASS", "b": "INCONCLUSIVE"}, ["b"], False),
        ({"a": "PASS", "b": "ERROR"}, ["b"], False),
        ({"a": "INCONCLUSIVE", "b": "FAIL"}, ["b"], False),
        ({"a": "PASS", "b": "FAIL"}, None, False),
        ({"a": "PASS"}, ["alive"], False),
        ({"a": "PASS", "alive": "FAIL"}, ["alive"], True),
        ({"a": "SKIP"}, None, False),
    ],
)
def test_expectation_is_strict(values: dict[str, str], fail: list[str] | None, green: bool) -> None:
    expect = None if fail is None else Expect(fail=fail)
    assert outcome(judged(**values), expect).green is green


def test_expected_failure_is_green_and_says_so() -> None:
    result = run(faulty(slow=1), ALL, SOUND).check("time")
    assert outcome_of_check(result, Expect(fail=["time"])).sentence.startswith("FAIL as expected: each <= 100 ms")
    assert outcome_of_check(result, Expect(fail=[])).green is False


def test_unjudged_run_gives_every_check_its_error() -> None:
    result = unjudged("p", "", "emulated", 0, [("a", "loss")], Verdict.ERROR, "board: port busy", hint="close minicom")
    assert (result.verdict, result.check("a").reason) == (Verdict.ERROR, "board: port busy")
    assert "next step: close minicom" in render_check(result.check("a"))


def test_at_most_and_percentile_of_one_check_are_judged_apart() -> None:
    checks = {"time": (TO_LAST, [at_most(2, 100 * MS), percentile("p50", 20 * MS)])}
    assert run(faulty(slow=2), checks).check("time").verdict is Verdict.PASS
    result = run(faulty(slow=3), checks).check("time")
    assert [limit.verdict for limit in result.limits] == ["FAIL", "PASS"]


def test_confidence_of_the_check_takes_the_place_of_the_plans() -> None:
    strict = {"time": ({**TO_LAST, "confidence": "99 %"}, [percentile("p99", 20 * MS)])}
    result = run(healthy(300), strict).check("time")
    assert (result.verdict, result.limits[0].needed) == (Verdict.INCONCLUSIVE, 159)
    assert result.confidence == Fraction(99, 100)
