"""Calibration: e from echoes with known noise, computed by hand; what makes it stale; which e a record carries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from rig.bench.calibrate import (
    Calibration,
    Echoes,
    Series,
    clock_error_ns,
    echoes_of,
    error_ns,
    render,
    summarise,
)
from rig.bench.model import Bench, Board, CapturePoint, Identity, Jetson, NetworkReady, Serial, Uncertainty
from rig.bench.nic import NicState
from rig.bench.uncertainty import calibration_file, declared, load, store, uncertainty_now
from rig.capture import settings
from rig.capture.points import capture_point
from rig.capture.settings import changes, flat, parse_machine
from rig.deadline import Deadline
from rig.errors import BenchError, InternalError
from rig.protocol import token_v2
from rig.timing.table import PROTO_UDP, FlowKey, FrameTable, InterfaceInfo

US, MS = 1_000, 1_000_000
T0 = 1_700_000_000_000_000_000
BOARD, JETSON = "192.0.2.10", "192.0.2.20"
ADDRESSES = {"board": BOARD, "jetson": JETSON}


# --- captures made by hand --------------------------------------------------------------------------------------------


def table_of(frames: Sequence[tuple[int, str, bytes]], resolution_ns: float = 1.0) -> FrameTable:
    """Frames as (time ns, sender, UDP payload)."""
    frames = sorted(frames, key=lambda frame: frame[0])
    flows = (FlowKey((), JETSON, BOARD, PROTO_UDP, 40000, 5005), FlowKey((), BOARD, JETSON, PROTO_UDP, 5005, 40000))
    lengths = np.array([len(payload) for _, _, payload in frames], np.uint32)
    times = np.array([T0 + at for at, _, _ in frames], np.int64)
    count = len(frames)
    return FrameTable(
        number=np.arange(1, count + 1, dtype=np.uint32),
        time_ns=times,
        first_ns=times,
        interface=np.zeros(count, np.uint16),
        wire_len=lengths + 42,
        cap_len=lengths + 42,
        proto=np.full(count, PROTO_UDP, np.uint8),
        flow=np.array([0 if sender == JETSON else 1 for _, sender, _ in frames], np.int32),
        payload_off=np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.uint64),
        payload_len=lengths,
        payload_cap=lengths,
        flows=flows,
        data=b"".join(payload for _, _, payload in frames),
        interfaces=(InterfaceInfo("board-port", 1, resolution_ns),),
    )


def exchange(
    number: int, at: int, path: int, turnaround: int, *, first: bool = True, t_rx: int | None = None
) -> list[tuple[int, str, bytes]]:
    """A request at `at` whose answer passes the capture point after path + turnaround."""
    received = 5 * 10**9 + at if t_rx is None else t_rx
    request = token_v2.Header(type=token_v2.REQUEST, request_id=number, sequence=number)
    answer = token_v2.Header(
        type=token_v2.ANSWER,
        request_id=number,
        sequence=number,
        flags=token_v2.FLAG_FIRST if first else token_v2.FLAG_LAST,
        t_rx_ns=received,
        t_send_ns=received + turnaround if received else 0,
    )
    return [
        (at, JETSON, token_v2.encode(request, token_v2.encode_request(1, [7]))),
        (at + path + turnaround, BOARD, token_v2.encode(answer, token_v2.encode_tokens([1]))),
    ]


def test_what_the_board_itself_took_is_not_part_of_the_path() -> None:
    frames = exchange(1, 0, 300 * US, 2 * MS) + exchange(2, 10 * MS, 350 * US, 7 * MS)
    echoes = echoes_of(table_of(frames), ADDRESSES)
    assert echoes.path.tolist() == [300 * US, 350 * US]
    assert echoes.turnaround.tolist() == [2 * MS, 7 * MS]


def test_exchanges_shown_twice_lost_or_answered_late_by_the_second_datagram_are_left_out() -> None:
    twice = exchange(1, 0, 300 * US, MS)
    frames = [
        *twice,
        (1, JETSON, twice[0][2]),
        exchange(2, 10 * MS, 300 * US, MS)[0],
        *exchange(3, 20 * MS, 300 * US, MS, first=False),
        *exchange(4, 30 * MS, 400 * US, MS),
    ]
    assert echoes_of(table_of(frames), ADDRESSES).path.tolist() == [400 * US]


def test_a_board_that_does_not_report_its_turnaround_cannot_calibrate() -> None:
    with pytest.raises(BenchError, match="t_rx is 0"):
        echoes_of(table_of(exchange(1, 0, 300 * US, MS, t_rx=0)), ADDRESSES)


# --- the figures ------------------------------------------------------------------------------------------------------


def echoes(path: Sequence[int], *, turnaround: int = MS, rate: float = 0.0) -> Echoes:
    at = np.arange(len(path), dtype=np.int64) * 10 * MS
    return Echoes(
        request=T0 + at,
        turnaround=np.full(len(path), turnaround, np.int64),
        path=np.array(path, np.int64),
        board=(at * (1 + rate)).astype(np.int64),
        resolution=1,
    )


def test_percentiles_are_the_order_statistics_at_the_far_end_of_their_interval() -> None:
    # 1000 values 1..1000. For q = 0.025 the largest l with P[Bin(1000, .025) >= l] >= .975 is 16, and by symmetry
    # the smallest u for q = 0.975 is 1000 - 16 + 1 = 985 (R: qbinom(.025, 1000, .025) = 16).
    found = summarise(echoes(list(range(1000, 0, -1))), "loaded")
    assert (found.low_ns, found.median_ns, found.high_ns) == (16, 500, 985)
    assert (found.min_ns, found.max_ns, found.n) == (1, 1000, 1000)


def test_a_single_outlier_is_no_part_of_e_but_three_percent_are() -> None:
    calm = [300 * US] * 1000
    held_up = [*calm[:-1], 90 * MS]
    often = [*calm[:-30], *[90 * MS] * 30]
    idle = summarise(echoes(calm), "idle")
    assert error_ns(idle, summarise(echoes(held_up), "loaded"), 0) == 0
    assert error_ns(idle, summarise(echoes(often), "loaded"), 0) == 90 * MS - 300 * US


def test_e_is_the_farther_side_from_the_idle_median_plus_the_clocks() -> None:
    idle = Series(load="idle", n=600, min_ns=0, median_ns=200, low_ns=150, high_ns=260, max_ns=900)
    loaded = Series(load="loaded", n=2000, min_ns=0, median_ns=230, low_ns=60, high_ns=290, max_ns=900)
    assert error_ns(idle, loaded, 7) == 140 + 7
    assert error_ns(idle, loaded.model_copy(update={"high_ns": 500}), 7) == 300 + 7
    assert error_ns(idle.model_copy(update={"high_ns": 600}), loaded, 7) == 400 + 7


def test_too_few_echoes_give_no_e() -> None:
    with pytest.raises(BenchError, match=r"the idle series has 399 echoes, 400 are the least"):
        summarise(echoes([1] * 399), "idle")


def test_a_board_clock_that_runs_off_adds_its_share_of_the_turnaround() -> None:
    noisy = np.random.default_rng(1).integers(0, 20 * US, 1000)
    clock_ns, ppm = clock_error_ns(echoes(noisy.tolist(), turnaround=10 * MS, rate=100e-6))
    assert ppm == pytest.approx(100, abs=0.1)
    # 100 ppm of 10 ms are 1 us; the gcd of equal turnarounds is their resolution here.
    assert clock_ns == pytest.approx(1_000 + 2 + 2 * 10 * MS, abs=2)


# --- what it is kept for ----------------------------------------------------------------------------------------------


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Bench(
        bench="lab-9",
        profile="hardware",
        capabilities=[],
        uncertainty=Uncertainty.model_validate({"declared": "50 us"}),
        network_ready=NetworkReady(),
        board=Board(
            serial=Serial(port="/dev/null"), identity=Identity(name="b", mac="02:00:00:00:00:01", address=BOARD)
        ),
        jetson=Jetson(host="h", user="u", host_key="ssh-ed25519 AAAA", bench_address=JETSON),
        capture=CapturePoint(point="inline", interface="enp3s0"),
    )


SETTINGS = {"capture point": "inline", "kernel": "6.1.0", "enp3s0 coalescing rx-usecs": "3", "enp3s0 driver": "igb"}


def calibration(**changed: object) -> Calibration:
    series = Series(load="loaded", n=2000, min_ns=1, median_ns=2, low_ns=1, high_ns=3, max_ns=4)
    fields: dict[str, object] = {
        "bench": "lab-9",
        "date_utc": "2026-03-01T08:00:00.000Z",
        "e_ns": 21_500,
        "systematic_ns": 180 * US,
        "clock_ns": 300,
        "rate_ppm": 12.5,
        "turnaround_ns": MS,
        "series": (series.model_copy(update={"load": "idle", "n": 600}), series),
        "settings": SETTINGS,
        "controller": {"version": "1", "commit": None, "dirty": False},
        "record": "captures/x",
    }
    return Calibration.model_validate(fields | changed)


@pytest.fixture
def now(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, object]]:
    """What the run's record says of e when the capture's settings are those of the calibration, with changes."""

    def ask(**changed: str) -> dict[str, object]:
        present = SETTINGS | {key.replace("_", " "): value for key, value in changed.items()}
        monkeypatch.setattr("rig.bench.uncertainty.capture_settings", lambda *_: present)
        found = uncertainty_now(bench, None, capture_point(bench.capture), ["enp3s0"], Deadline.after(1))  # type: ignore[arg-type]
        return found.model_dump(mode="json")

    return ask


def test_without_a_calibration_the_declared_e_counts(now: Callable[..., dict[str, object]]) -> None:
    found = now()
    assert (found["source"], found["e_ns"], found["declared"]) == ("declared", 50 * US, "50 us")
    assert found["note"] == "e = 50 us, declared in the bench file"


def test_a_fresh_calibration_replaces_the_declared_e_and_says_where_it_is_from(
    now: Callable[..., dict[str, object]],
) -> None:
    store(calibration())
    found = now()
    assert (found["source"], found["e_ns"], found["n"], found["stale"]) == ("calibrated", 21_500, 2600, [])
    assert found["note"] == "e = 21.5 us, calibrated 2026-03-01 with 2600 echoes"


def test_a_changed_kernel_or_nic_makes_it_stale_and_is_named(now: Callable[..., dict[str, object]]) -> None:
    store(calibration())
    found = now(kernel="6.8.0", capture_point="tap")
    assert (found["source"], found["e_ns"], found["calibrated_ns"]) == ("declared", 50 * US, 21_500)
    assert found["stale"] == ["capture point was inline, is tap", "kernel was 6.1.0, is 6.8.0"]
    assert "stale: capture point was inline, is tap; kernel was 6.1.0, is 6.8.0" in str(found["note"])


def test_a_calibration_that_cannot_be_read_or_compared_does_not_count_and_says_why(
    bench: Bench, now: Callable[..., dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store(calibration())
    now()

    def without_ethtool(*_: object) -> dict[str, str]:
        raise InternalError("cannot start 'ethtool'")

    monkeypatch.setattr("rig.bench.uncertainty.capture_settings", without_ethtool)
    point = capture_point(bench.capture)
    found = uncertainty_now(bench, None, point, ["enp3s0"], Deadline.after(1))  # type: ignore[arg-type]
    assert (found.source, found.e_ns, found.stale) == ("declared", 50 * US, ("cannot start 'ethtool'",))
    calibration_file("lab-9").write_text("{")
    found = uncertainty_now(bench, None, point, ["enp3s0"], Deadline.after(1))  # type: ignore[arg-type]
    assert found.source == "declared"
    assert "the calibration does not count:" in found.note


def test_many_changes_are_summed_up_in_the_note_and_whole_in_the_record(bench: Bench) -> None:
    found = declared(bench, calibration(), ("a", "b", "c", "d", "e"))
    assert found.note.endswith("is stale: a; b; c and 2 more")
    assert found.stale == ("a", "b", "c", "d", "e")


def test_what_was_stored_is_read_back_as_it_was(bench: Bench) -> None:
    assert load("lab-9") is None
    assert store(calibration()) == calibration_file("lab-9")
    assert load("lab-9") == calibration()
    store(calibration(e_ns=7))
    assert load("lab-9") == calibration(e_ns=7)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "rig.calibration/9"}', "\0\0\0"])
def test_a_damaged_file_is_named_and_no_traceback(bench: Bench, text: str) -> None:
    path = calibration_file("lab-9")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(InternalError, match="is not a calibration") as caught:
        load("lab-9")
    assert caught.value.hint is not None
    assert "rig bench calibrate" in caught.value.hint


# --- settings ---------------------------------------------------------------------------------------------------------


def test_settings_name_interface_group_and_key() -> None:
    nic = NicState(
        "enp3s0",
        driver="igb 6.1",
        offloads={"generic-receive-offload": "off"},
        coalescing={"rx-usecs": "3"},
        ring={"rx": "256"},
        pause={"rx": "on"},
        eee="enabled - active",
    )
    assert flat(nic) == {
        "enp3s0 driver": "igb 6.1",
        "enp3s0 offloads generic-receive-offload": "off",
        "enp3s0 coalescing rx-usecs": "3",
        "enp3s0 ring rx": "256",
        "enp3s0 EEE": "enabled",
    }


def test_a_permanent_address_is_a_setting_and_a_made_up_one_is_not() -> None:
    said = "kernel=6.1.0-18\ngovernor=\nenp3s0 address=Permanent address: 02:00:00:00:00:05\nveth0 address=Permanent "
    said += "address: not set\n"
    assert parse_machine(said) == {"kernel": "6.1.0-18", "enp3s0 address": "02:00:00:00:00:05"}


def test_changes_tell_what_came_went_and_differs() -> None:
    assert changes({"a": "1", "b": "2", "same": "x"}, {"b": "3", "c": "4", "same": "x"}) == [
        "a was 1, is not there",
        "b was 2, is 3",
        "c was not there, is 4",
    ]


def test_settings_of_this_machine_can_be_read() -> None:
    from rig.bench.host import LocalHost

    point = capture_point(CapturePoint(point="inline", interface="lo"))
    found = settings.capture_settings(LocalHost(), point, ["lo"], Deadline.after(10))
    assert found["capture point"] == "inline"
    assert found["kernel"] == Path("/proc/sys/kernel/osrelease").read_text().strip()
    assert found["lo direction"] == "both"
    assert any(key.startswith("lo offloads ") for key in found)


def test_the_table_says_what_e_means() -> None:
    text = render(calibration(), 50 * US)
    assert "e = 21.5 us: 95 % of time differences on this bench are within ±e" in text
    assert "3 e = 64.5 us" in text
    assert "declares 50 us" in text
    assert "waiting for a processor" not in text
    assert "waiting for a processor" in render(calibration(), 50 * US, emulated=True)
