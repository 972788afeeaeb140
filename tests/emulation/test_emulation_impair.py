"""The relay's scheduling, with the clock in the test's hand: every number here is computed by hand."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.emulation.impair import (
    HOLD_MAX_NS,
    OVERTAKEN_NS,
    QUEUE_MAX,
    Direction,
    Rule,
    Schedule,
    matches,
    rule_from_json,
    rule_to_json,
)

MS = 1_000_000


def udp_frame(source: int = 5005, destination: int = 5005, *, tags: tuple[int, ...] = (), fragment: int = 0) -> bytes:
    vlan = b"".join(struct.pack(">HH", 0x8100, tag) for tag in tags)
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 36, 1, fragment, 64, 17, 0, bytes(4), bytes(4))
    return bytes(12) + vlan + b"\x08\x00" + ip + struct.pack(">HHHH", source, destination, 16, 0) + bytes(8)


def arp_frame() -> bytes:
    return bytes(12) + b"\x08\x06" + bytes(28)


def schedule(*rules: Rule, direction: Direction = "to-board") -> Schedule:
    made = Schedule(direction)
    made.set_rules(list(rules))
    return made


def run(made: Schedule, arrivals: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Feed arrivals (ns, frame) and wake exactly when due; returns what left and when."""
    left: list[tuple[int, bytes]] = []

    def wake_until(end: float) -> None:
        while (due := made.due_ns()) is not None and due <= end:
            left.extend((due, frame) for frame in made.release(due))

    for at, frame in arrivals:
        wake_until(at)
        made.arrive(at, frame)
    wake_until(float("inf"))
    return left


def numbered(count: int, every_ns: int = MS) -> list[tuple[int, bytes]]:
    return [(n * every_ns, n.to_bytes(60, "big")) for n in range(count)]


def test_without_rules_a_frame_leaves_at_once() -> None:
    assert run(schedule(), [(7, b"a"), (9, b"b")]) == [(7, b"a"), (9, b"b")]


def test_delay_is_exact() -> None:
    assert run(schedule(Rule(delay_ns=5 * MS)), [(0, b"a"), (MS, b"b")]) == [(5 * MS, b"a"), (6 * MS, b"b")]


def test_rule_of_the_other_direction_does_nothing() -> None:
    rule = Rule(direction="from-board", delay_ns=MS)
    assert run(schedule(rule), [(0, b"a")]) == [(0, b"a")]
    assert run(schedule(rule, direction="from-board"), [(0, b"a")]) == [(MS, b"a")]


def test_jitter_spreads_over_its_range_and_keeps_order() -> None:
    arrivals = numbered(500, 10 * MS)
    left = run(schedule(Rule(delay_ns=2 * MS, jitter_ns=3 * MS)), arrivals)
    extra = [out - came for (out, _), (came, _) in zip(left, arrivals, strict=True)]
    assert min(extra) >= 2 * MS
    assert max(extra) <= 5 * MS
    assert min(extra) < 2.1 * MS < 4.9 * MS < max(extra)
    dense = run(schedule(Rule(jitter_ns=3 * MS)), numbered(500, MS // 10))
    assert [frame for _, frame in dense] == [frame for _, frame in numbered(500)]


def test_same_seed_same_fate_whatever_the_other_direction_does() -> None:
    rule = Rule(loss=0.3, duplicate=0.2, jitter_ns=MS, seed=7)
    assert run(schedule(rule), numbered(200)) == run(schedule(rule), numbered(200))
    assert run(schedule(rule), numbered(200)) != run(schedule(Rule(**{**rule.__dict__, "seed": 8})), numbered(200))


def test_directions_of_one_rule_draw_independently() -> None:
    rule = Rule(loss=0.5)
    assert run(schedule(rule), numbered(100)) != run(schedule(rule, direction="from-board"), numbered(100))


def test_two_rules_of_one_seed_draw_independently() -> None:
    rule = Rule(jitter_ns=3 * MS)
    once = [at for at, _ in run(schedule(rule), numbered(20, 10 * MS))]
    twice = [at for at, _ in run(schedule(rule, rule), numbered(20, 10 * MS))]
    assert [second - first for first, second in zip(once, twice, strict=True)] != [
        first - n * 10 * MS for n, first in enumerate(once)
    ]


def test_loss_of_everything_and_of_nothing() -> None:
    gone = schedule(Rule(loss=1.0))
    assert run(gone, numbered(50)) == []
    assert gone.counters.dropped_loss == 50
    assert len(run(schedule(Rule(loss=0.0)), numbered(50))) == 50


def test_every_takes_each_nth_of_the_frames_that_match_the_rest() -> None:
    dropped_third = schedule(Rule(loss=1.0, select={"udp.dstport": 5005, "every": 3}))
    arrivals = []
    for n in range(9):  # ARP between the datagrams must not count
        arrivals += [(2 * n, udp_frame(source=1000 + n)), (2 * n + 1, arp_frame())]
    ports = [
        int.from_bytes(frame[34:36], "big") for _, frame in run(dropped_third, arrivals) if frame[12:14] == b"\x08\x00"
    ]
    assert ports == [1000, 1001, 1003, 1004, 1006, 1007]


def test_every_zero_selects_nothing() -> None:
    assert len(run(schedule(Rule(loss=1.0, select={"every": 0})), numbered(10))) == 10


def test_duplicate_follows_its_original_at_once() -> None:
    made = schedule(Rule(duplicate=1.0, delay_ns=MS))
    assert run(made, [(0, b"a"), (10, b"b")]) == [(MS, b"a"), (MS, b"a"), (MS + 10, b"b"), (MS + 10, b"b")]
    assert made.counters.duplicated == 2


def test_reordered_frame_leaves_a_moment_after_the_next_one() -> None:
    made = schedule(Rule(reorder=1.0))
    left = run(made, numbered(4))
    assert [(at, frame[-1]) for at, frame in left] == [
        (MS, 1),
        (MS + OVERTAKEN_NS, 0),
        (3 * MS, 3),
        (3 * MS + OVERTAKEN_NS, 2),
    ]
    assert made.counters.reordered == 2
    assert made.counters.hold_expired == 0


def test_frame_that_nobody_overtakes_leaves_after_the_longest_hold() -> None:
    made = schedule(Rule(reorder=1.0, delay_ns=MS))
    assert run(made, [(0, b"a")]) == [(MS + HOLD_MAX_NS, b"a")]
    assert (made.counters.reordered, made.counters.hold_expired) == (0, 1)


def test_late_next_frame_does_not_count_as_reordering() -> None:
    made = schedule(Rule(reorder=1.0, select={"every": 2}))
    arrivals = [(0, b"a"), (MS, b"b"), (MS + HOLD_MAX_NS, b"c")]
    assert run(made, arrivals) == [(0, b"a"), (MS + HOLD_MAX_NS, b"b"), (MS + HOLD_MAX_NS, b"c")]
    assert made.counters.reordered == 0


def test_hold_ends_in_its_place_when_the_relay_wakes_late() -> None:
    made = schedule(Rule(reorder=1.0, select={"every": 2}))
    made.arrive(0, b"a")
    made.arrive(0, b"b")
    assert made.release(0) == [b"a"]
    made.arrive(HOLD_MAX_NS + MS, b"c")
    assert made.release(HOLD_MAX_NS + 2 * MS) == [b"b", b"c"]
    assert (made.counters.reordered, made.counters.hold_expired) == (0, 1)


def test_rate_serialises_frames_by_their_captured_length() -> None:
    # 100 bytes at 1 Mbit/s take 800 us; the second waits for the first, the third finds the line free
    arrivals = [(0, bytes(100)), (0, bytes(100)), (5 * MS, bytes(50))]
    left = run(schedule(Rule(rate_bps=1_000_000)), arrivals)
    assert [at for at, _ in left] == [800_000, 1_600_000, 5_400_000]


def test_rules_follow_one_another() -> None:
    made = schedule(Rule(duplicate=1.0), Rule(rate_bps=1_000_000), Rule(delay_ns=MS))
    assert [at for at, _ in run(made, [(0, bytes(100))])] == [1_800_000, 2_600_000]


def test_unselected_frames_overtake_delayed_ones() -> None:
    made = schedule(Rule(delay_ns=MS, select={"ethertype": 0x0806}))
    left = run(made, [(0, arp_frame()), (1, udp_frame())])
    assert left == [(1, udp_frame()), (MS, arp_frame())]


def test_new_rules_leave_frames_in_flight_alone() -> None:
    made = schedule(Rule(delay_ns=5 * MS))
    made.arrive(0, b"a")
    made.set_rules([])
    made.arrive(MS, b"b")
    assert made.release(MS) == [b"b"]
    assert made.due_ns() == 5 * MS


def test_full_queue_drops_and_counts() -> None:
    made = schedule(Rule(delay_ns=MS))
    for _ in range(QUEUE_MAX + 5):
        made.arrive(0, b"a")
    assert made.in_flight() == QUEUE_MAX
    assert made.counters.overflow == 5


@pytest.mark.parametrize(
    ("select", "frame", "expected"),
    [
        ({}, b"", True),
        ({"udp.dstport": 5005}, udp_frame(1, 5005), True),
        ({"udp.dstport": 5005}, udp_frame(5005, 1), False),
        ({"udp.srcport": 5005, "udp.dstport": 9}, udp_frame(5005, 9), True),
        ({"udp.srcport": 5005}, udp_frame(5005, 9, tags=(5, 6)), True),
        ({"udp.srcport": 5005}, udp_frame(5005, 9, fragment=0x2000), True),
        ({"udp.srcport": 5005}, udp_frame(5005, 9, fragment=0x0001), False),
        ({"udp.srcport": 5005}, udp_frame(5005, 9)[:35], False),
        ({"udp.srcport": 0}, arp_frame(), False),
        ({"ethertype": 0x0806}, arp_frame(), True),
        ({"ethertype": 0x0800}, udp_frame(tags=(5,)), True),
        ({"ethertype": 0x8100}, udp_frame(tags=(5,)), False),
        ({"ethertype": 0x0800, "udp.dstport": 1}, udp_frame(1, 2), False),
        ({"ethertype": 0x0800}, bytes(13), False),
    ],
)
def test_selector(select: dict[str, int], frame: bytes, expected: bool) -> None:
    assert matches(select, frame) is expected


def test_tcp_has_no_udp_ports() -> None:
    frame = bytearray(udp_frame(1, 2))
    frame[14 + 9] = 6
    assert not matches({"udp.srcport": 1}, bytes(frame))


rules = st.builds(
    Rule,
    delay_ns=st.integers(0, 3 * MS),
    jitter_ns=st.integers(0, 3 * MS),
    loss=st.sampled_from([0.0, 0.2, 1.0]),
    duplicate=st.sampled_from([0.0, 0.3, 1.0]),
    reorder=st.sampled_from([0.0, 0.3, 1.0]),
    rate_bps=st.sampled_from([0, 500_000]),
    seed=st.integers(0, 2**32 - 1),
    select=st.sampled_from([{}, {"every": 2}, {"ethertype": 0}]),
)


@given(st.lists(rules, max_size=3), st.lists(st.integers(0, 2 * MS), max_size=40))
def test_every_frame_is_accounted_for_and_none_leaves_early(some: list[Rule], gaps: list[int]) -> None:
    made = schedule(*some)
    arrivals = []
    at = 0
    for n, gap in enumerate(gaps):
        at += gap
        arrivals.append((at, n.to_bytes(60, "big")))
    left = run(made, arrivals)
    counters = made.counters
    assert counters.received + counters.duplicated == counters.dropped_loss + counters.released + counters.overflow
    assert len(left) == counters.released
    assert made.in_flight() == 0
    came = {frame: at for at, frame in arrivals}
    assert all(at >= came[frame] for at, frame in left)
    assert [at for at, _ in left] == sorted(at for at, _ in left)


@given(rules)
def test_rules_survive_the_way_to_the_relay(rule: Rule) -> None:
    assert rule_from_json(rule_to_json(rule)) == rule
