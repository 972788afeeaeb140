"""Windows without edges, and stamps, counters and boot ids that no sound board sends: bounded work, never a PASS."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from timing_captures import BOARD, BOOT, JETSON, MS, T0, Capture, S, each, percentile, run

from rig.plan.bounds import RateBound
from rig.timing.evidence import Alive, Evidence, Ledger
from rig.timing.limits import LimitSpec
from rig.timing.metrics.measurement import INFINITE_NS
from rig.timing.metrics.stamps import Stamps

FROM_BOARD = {"one_way_delay": {"of": "answers", "opposite": "requests"}}
TO_BOARD = {"one_way_delay": {"of": "requests", "opposite": "answers"}}
WHOLE = {"turnaround": {"of": "answers"}}


def rate(per: str | None = None, **bound: int) -> tuple[dict, list[LimitSpec]]:
    limit = RateBound.model_construct(**{"min": None, "max": None, **bound})
    return {"throughput": {"of": "answers", **({"per": per} if per else {})}}, [LimitSpec("rate", limit)]


# --- intervals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per", ["10 ms", None])
@pytest.mark.parametrize("kind", [1, 2, None])
def test_a_window_without_both_edges_has_no_intervals(kind: int | None, per: str | None) -> None:
    capture = Capture()
    capture.request(0, 1)
    if kind is not None:
        capture.sentinel(S, kind, answered_at=S + MS)
    check = run(capture, {"rate": rate(per, min=1)}).check("rate")
    assert (str(check.verdict), check.n) == ("INCONCLUSIVE", 0)
    assert any("no length" in note for note in check.notes)


def test_between_two_sentinels_nothing_is_a_rate_of_zero() -> None:
    capture = Capture()
    capture.sentinel(0, 1, answered_at=MS)
    capture.sentinel(S, 2, answered_at=S + MS)
    check = run(capture, {"rate": rate("10 ms", min=1)}).check("rate")
    assert (check.n, check.limits[0].reason) == (100, "100 of 100 intervals under, least 0 bit/s")


def test_more_intervals_than_can_be_judged_are_refused() -> None:
    capture = Capture()
    for index in range(10):
        capture.answer(index * S, index)
    check = run(capture, {"rate": rate("1 ns", min=1)}).check("rate")
    assert (str(check.verdict), check.n) == ("INCONCLUSIVE", 0)
    assert any("hold 9000000000 intervals of 1 ns" in note for note in check.notes)


# --- stamps -----------------------------------------------------------------------------------------------------------


def test_a_stamp_beyond_any_clock_proves_no_pass() -> None:
    capture = Capture()
    for index, send in enumerate((10 * MS + 1, 20 * MS + 1, 2**63 + 10 * MS, 2**64 - 1)):
        capture.request(index * 10 * MS, index + 1)
        capture.answer(index * 10 * MS + MS, index + 1, t_rx_ns=(index + 1) * 10 * MS, t_send_ns=send)
    capture.arp(5 * S, 2, BOARD, JETSON)
    metrics = {
        "whole": WHOLE,
        **{name: {name: {"of": "answers"}} for name in ("ipdv", "pdv", "jitter")},
        "to": FROM_BOARD,
    }
    result = run(capture, {name: (metric, [each(3600 * S)]) for name, metric in metrics.items()})
    for name in metrics:
        check = result.check(name)
        assert (str(check.verdict), check.counts["with an impossible stamp"]) == ("INCONCLUSIVE", 2)
        assert "beyond 146 years" in check.reason


@pytest.mark.parametrize("column", [0, 1])
def test_only_sound_stamps_are_used(column: int) -> None:
    columns = [np.full(6, 5, np.uint64), np.full(6, 5, np.uint64)]
    columns[column] = np.array([1, 0, 2**62 - 1, 2**62, 2**63, 2**64 - 1], np.uint64)
    stamps = Stamps.of(*columns)
    assert stamps.sound.tolist() == [True, False, True, False, False, False]
    assert stamps.missing == {"without a stamp": 1, "with an impossible stamp": 3}


def test_no_stamp_makes_arithmetic_overflow() -> None:
    rng = np.random.default_rng(7)
    extremes = [0, 1, S, 2**31, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
    metrics = [FROM_BOARD, TO_BOARD, WHOLE, *({name: {"of": "answers"}} for name in ("ipdv", "pdv", "jitter"))]
    metrics.append({"pdv": {"of": "answers", "opposite": "requests"}})
    for _ in range(40):
        capture = Capture()
        for index in range(4):
            stamps = dict(zip(("t_rx_ns", "t_ready_ns", "t_send_ns"), rng.choice(len(extremes), 3), strict=True))
            capture.request(index * S, index + 1)
            capture.answer(
                index * S + MS,
                index + 1,
                **{name: extremes[place] for name, place in stamps.items()},
                boot=BOOT + index // 3,
            )
        with warnings.catch_warnings(), np.errstate(all="raise"):
            warnings.simplefilter("error")
            run(capture, {f"it-{index}": (metric, [each(MS)]) for index, metric in enumerate(metrics)}).to_json()


def test_a_capture_time_gone_wrong_is_a_long_delay() -> None:
    capture = Capture()
    for index, at in enumerate((-(2**62) - T0, 2**63 - 2 - T0)):
        capture.answer(at, index, t_send_ns=S + index * 10 * MS)
    result = run(capture, {name: ({name: {"of": "answers"}}, [each(MS)]) for name in ("ipdv", "pdv", "jitter")})
    assert [str(check.verdict) for check in result.checks] == ["FAIL"] * 3


# --- counters and boots -----------------------------------------------------------------------------------------------


def test_a_counter_of_billions_is_judged_by_a_part_of_them() -> None:
    capture = Capture()
    for index in range(4):
        capture.request(index * 10 * MS, index + 1)
        capture.answer(index * 10 * MS + MS, index + 1, t_rx_ns=S + index * 10 * MS, t_send_ns=S + index * 10 * MS + 1)
    capture.arp(5 * S, 2, BOARD, JETSON)
    limits = [each(S), percentile("p50", S)]
    check = run(capture, {"to": (FROM_BOARD, limits)}, Evidence(ledger=Ledger(answers_sent=2**32 - 1))).check("to")
    assert str(check.verdict) != "PASS"
    assert check.counts["lost"] == 2**32 - 5
    assert check.n == 4 + 10_000_000
    assert check.summary is not None
    assert check.summary.max_ns == INFINITE_NS


def test_many_boots_and_faults_are_told_in_few_words() -> None:
    capture = Capture()
    for index in range(300):
        capture.request(index * 10 * MS, index + 1)
        stamps = {"t_rx_ns": S + index * 10 * MS, "t_send_ns": S + index * 10 * MS + 1}
        capture.answer(index * 10 * MS + MS, index + 1, boot=index + 1, **stamps)
    faults = tuple(f"HardFault {index}" for index in range(1000))
    evidence = Evidence(alive=Alive(True, faults=faults, resets=faults))
    result = run(capture, {"to": (FROM_BOARD, [each(S)])}, evidence)
    alive = result.check("alive")
    assert str(alive.verdict) == "FAIL"
    assert "300 boot ids (00000001, 00000002, 00000003, 00000004, 00000005, 295 more)" in alive.reason
    assert "the board reported: HardFault 4; 995 more" in alive.reason
    assert len(alive.reason) < 500
    assert len(result.check("to").notes) == 6
