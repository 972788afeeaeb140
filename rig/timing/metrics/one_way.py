"""Delays between a sender's stamp and the capture point: one-way delay, IPDV, PDV and interarrival jitter.

One-way delay (RFC 7679) needs the board's clock aligned with the capture's, whose error is part of every verdict
(`rig.timing.clock`). IPDV and PDV (RFC 5481) and jitter (RFC 3550 A.8) are differences of delays, in which the offset
cancels. All need the sender's stamp `t_send` of token-v2; first copies of the measured window only.
Start and stop: a packet from the board starts at its `t_send` (before the datagram is handed to the stack) and stops at
the capture point; a request starts at the capture point and stops at the board's `t_rx`, which the answer repeats.
Mode `request`: either way. Mode `push`: packets from the board, for IPDV, PDV and jitter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rig.errors import PlanError
from rig.plan.metrics import Ipdv, Jitter, OneWayDelay, Pdv
from rig.timing.clock import Alignment, align
from rig.timing.flows import Packets
from rig.timing.metrics.matching import Matching
from rig.timing.metrics.measurement import INFINITE_NS, MOST_LOST, NO_FLOOR_NS, Measurement, Scene, durations, present
from rig.timing.metrics.stamps import Stamps
from rig.timing.tokens import Tokens

_GAIN = 1 / 16
"""Noise reduction of the jitter estimator (RFC 3550 section 6.4.1)."""
_LONGEST: Final = (1 << 62) - 1
"""ns: a longer delay, as of a capture time gone wrong, is held here, so that differences of delays fit into 64 bits."""
_TOLD = 5
"""Boots of the board whose clocks are described."""


@dataclass(frozen=True)
class _Stamped:
    """Positions, in order of capture, of packets with a send stamp; delay_ns: capture time less stamp, offset in it.
    missing: counts of packets without such a stamp. unprovable: what stamps that no clock can show leave open."""

    packets: Packets
    position: NDArray[np.int64]
    delay_ns: NDArray[np.int64]
    missing: dict[str, int]
    unprovable: str

    @cached_property
    def space(self) -> NDArray[np.int64]:
        return self.packets.stream.space[self.position]

    def boots(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """(number of the sender's sequence space, indices into `position`)."""
        yield from _by_space(self.space)


def one_way_delay(metric: OneWayDelay, scene: Scene) -> Measurement:
    """One sample per packet from the board, or per request; a lost one is infinite (RFC 7679 section 3.4)."""
    packets, other = scene.packets[metric.of], scene.packets[metric.opposite]
    from_board = packets.source == "board"
    answers, requests = (packets, other) if from_board else (other, packets)
    found = scene.matchings.match(requests, answers, "request_id", "first", scene.timeout_ns)
    clocks = _clocks(requests, answers, found, scene.e_ns)
    error = max((clock.error_ns for clock in clocks.values() if clock), default=0)
    notes = _about(clocks)
    uneven = any(clock is None for clock in clocks.values())
    unprovable = "no even clock fits the stamps of both directions, so there is no one-way delay" if uneven else ""
    more = {"error_ns": error, "notes": notes, "unprovable": unprovable}
    if uneven or not clocks:
        none = np.empty(0, np.int64)
        return durations("one_way_delay", none, none.astype(np.uint32), none.astype(np.uint32), none, "packets", **more)
    if not from_board:
        return _towards_board(requests, answers, found, clocks, more)

    stamped = _stamped(packets)
    value = stamped.delay_ns + _theta(clocks, stamped.space, packets.time_ns[stamped.position])
    number, time = packets.number[stamped.position], packets.time_ns[stamped.position]
    sent = scene.sent.get(metric.of)
    lost = 0 if sent is None else max(0, sent.count - sent.seen)
    infinite = min(lost, MOST_LOST)
    value = np.concatenate((value, np.full(infinite, INFINITE_NS)))
    number = np.concatenate((number, np.zeros(infinite, np.uint32)))
    time = np.concatenate((time, np.full(infinite, scene.end_ns)))
    more["unprovable"] = stamped.unprovable
    if sent is not None and sent.most is None:
        more["unprovable"] = "what was sent and what was seen do not reconcile, so packets may be lost"
    if lost > infinite:
        more["unprovable"] = f"{lost} packets that their sender counted were not seen, more than can be judged"
    counts = {**present({"lost": lost}), **stamped.missing}
    measured = durations(
        "one_way_delay", value, number, np.zeros(len(value), np.uint32), time, "packets", counts=counts, **more
    )
    if sent is None or (sent.whole and sent.least == lost):
        return measured
    # What is missing may have been of another flow.
    return replace(measured, floor_ns=np.where(value == INFINITE_NS, NO_FLOOR_NS, value))


def ipdv(metric: Ipdv, scene: Scene) -> Measurement:
    """D_i - D_(i-1) of packets that follow each other in sending order; undefined beside a lost one."""
    packets = scene.packets[metric.of]
    stamped = _stamped(packets)
    position, delay = stamped.position, stamped.delay_ns
    space, sequence = stamped.space, packets.stream.extended[position]
    if (np.diff(space) < 0).any() or (np.diff(sequence) < 0).any():
        order = np.lexsort((sequence, space))
        position, delay, space, sequence = position[order], delay[order], space[order], sequence[order]
    follows = np.flatnonzero((np.diff(sequence) == 1) & (np.diff(space) == 0)) + 1
    value = delay[follows] - delay[follows - 1]
    alone = max(0, len(position) - len(follows) - (int(np.count_nonzero(np.diff(space))) + 1 if len(space) else 0))
    return durations(
        "ipdv",
        value,
        packets.number[position[follows]],
        packets.number[position[follows - 1]],
        packets.time_ns[position[follows]],
        "pairs of packets",
        counts={**present({"without their predecessor": alone}), **stamped.missing},
        unprovable=stamped.unprovable,
    )


def pdv(metric: Pdv, scene: Scene) -> Measurement:
    """D_i - D_min, D_min the smallest of the measured window (of each boot of the sender)."""
    packets = scene.packets[metric.of]
    stamped = _stamped(packets)
    delay, space = stamped.delay_ns, stamped.space
    notes: tuple[str, ...] = ("the sender's clock is taken as it runs: its drift is part of the variation",)
    error, unprovable = 0, ""
    if metric.opposite is not None:
        other = scene.packets[metric.opposite]
        answers, requests = (packets, other) if packets.source == "board" else (other, packets)
        clocks = _clocks(
            requests,
            answers,
            scene.matchings.match(requests, answers, "request_id", "first", scene.timeout_ns),
            scene.e_ns,
        )
        notes = _about(clocks)
        if packets.source != "board" or None in clocks.values() or not clocks:
            unprovable = "no even clock fits the stamps of both directions, so the drift is not known"
        else:
            delay = delay + _theta(clocks, space, packets.time_ns[stamped.position])
            error = max(clock.drift_error_ns for clock in clocks.values() if clock)
    value, least = delay.copy(), np.zeros(len(delay), np.uint32)
    for _, mine in stamped.boots():
        smallest = mine[int(np.argmin(delay[mine]))]
        value[mine] -= delay[smallest]
        least[mine] = packets.number[stamped.position[smallest]]
    return durations(
        "pdv",
        value,
        packets.number[stamped.position],
        least,
        packets.time_ns[stamped.position],
        "packets",
        counts=stamped.missing,
        notes=notes,
        error_ns=error,
        unprovable=unprovable or stamped.unprovable,
    )


def jitter(metric: Jitter, scene: Scene) -> Measurement:
    """J after each packet: J += (|D(i-1,i)| - J) / 16 from J = 0, in order of arrival, anew with each boot."""
    packets = scene.packets[metric.of]
    stamped = _stamped(packets)
    value = np.zeros(len(stamped.position), np.int64)
    for _, mine in stamped.boots():
        step = np.abs(np.diff(stamped.delay_ns[mine])).astype(np.float64)
        value[mine[1:]] = np.rint(_smoothed(step)).astype(np.int64)
    before = np.concatenate((np.zeros(min(1, len(value)), np.uint32), packets.number[stamped.position[:-1]]))
    return durations(
        "jitter",
        value,
        packets.number[stamped.position],
        before,
        packets.time_ns[stamped.position],
        "packets",
        counts=stamped.missing,
        unprovable=stamped.unprovable,
    )


def _smoothed(step: NDArray[np.float64], block: int = 256) -> NDArray[np.float64]:
    """The first-order filter y += (x - y) / 16, a block at a time as one matrix product, the last value carried on."""
    padded = np.zeros(-(-len(step) // block) * block)
    padded[: len(step)] = step
    weight, fading = _filter(block)
    result = padded.reshape(-1, block) @ weight.T
    carried = 0.0
    starts = np.empty(len(result))
    for index, last in enumerate(result[:, -1].tolist()):
        starts[index] = carried
        carried = last + carried * float(fading[-1])
    smoothed: NDArray[np.float64] = (result + starts[:, None] * fading).reshape(-1)[: len(step)]
    return smoothed


@cache
def _filter(block: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(the filter as a matrix over one block, what is left of the value before the block at each of its places)."""
    decay = 1 - _GAIN
    lag = np.arange(block)[:, None] - np.arange(block)[None, :]
    weight: NDArray[np.float64] = np.where(lag >= 0, _GAIN * decay ** np.maximum(lag, 0), 0.0)
    return weight, decay ** np.arange(1, block + 1, dtype=np.float64)


def _by_space(space: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """(number, indices) of each sequence space that occurs in `space`."""
    if not len(space):
        return
    if (space == space[0]).all():
        yield int(space[0]), np.arange(len(space))
        return
    order = np.argsort(space, kind="stable")
    heads = np.flatnonzero(np.diff(space[order], prepend=-1))
    yield from zip(space[order[heads]].tolist(), np.split(order, heads[1:]), strict=True)


def _stamped(packets: Packets) -> _Stamped:
    tokens = _tokens(packets)
    chosen = np.flatnonzero(packets.measured & packets.stream.first_copy)
    stamps = Stamps.of(tokens.t_send_ns[chosen])
    (stamp,) = stamps.columns
    if not stamps.sound.all():
        chosen, stamp = chosen[stamps.sound], stamp[stamps.sound]
    delay = np.clip(packets.time_ns[chosen] - stamp, -_LONGEST, _LONGEST)
    return _Stamped(packets, chosen, delay, stamps.missing, stamps.unprovable)


def _tokens(packets: Packets) -> Tokens:
    if packets.tokens is None or packets.tokens.sequence_bits == 16:
        raise PlanError(
            f"flow `{packets.name}` carries no send stamps: its selector does not name token-v2",
            hint="add `protocol: token-v2` to the flow",
        )
    return packets.tokens


def _clocks(requests: Packets, answers: Packets, found: Matching, e_ns: int) -> dict[int, Alignment | None]:
    """The board's clock in each of its boots that answered."""
    tokens = _tokens(answers)
    answered = found.response >= 0
    asked, back = found.request[answered], found.response[answered]
    stamps = Stamps.of(tokens.t_rx_ns[back], tokens.t_send_ns[back])
    asked, back, received, sent = (column[stamps.sound] for column in (asked, back, *stamps.columns))
    space = answers.stream.space[back]
    clocks: dict[int, Alignment | None] = {}
    for one, mine in _by_space(space):
        out, home = requests.time_ns[asked[mine]], answers.time_ns[back[mine]]
        round_trip = int(((home - out) - (sent[mine] - received[mine])).min())
        clocks[one] = align(out, received[mine], sent[mine], home, round_trip, e_ns)
    return clocks


def _theta(
    clocks: dict[int, Alignment | None], space: NDArray[np.int64], at_ns: NDArray[np.int64]
) -> NDArray[np.int64]:
    if len(clocks) == 1 and (only := next(iter(clocks.values()))) is not None and (space == next(iter(clocks))).all():
        return only.theta_ns(at_ns)
    theta = np.zeros(len(at_ns), np.int64)
    for one, mine in _by_space(space):
        clock = clocks.get(one)
        if clock is not None:
            theta[mine] = clock.theta_ns(at_ns[mine])
    return theta


def _about(clocks: dict[int, Alignment | None]) -> tuple[str, ...]:
    from rig.plan.units import format_ns

    aligned = [clock for clock in clocks.values() if clock is not None]
    notes = [
        f"board clock aligned with the capture's: drift {clock.drift * 1e6:+.3f} ppm, "
        f"error {format_ns(clock.error_ns)} (smallest round trip less turnaround: {format_ns(clock.round_trip_ns)})"
        for clock in aligned[:_TOLD]
    ]
    if len(aligned) > _TOLD:
        notes.append(f"the board's clocks of {len(aligned) - _TOLD} more boots were aligned as well")
    return tuple(notes)


def _towards_board(
    requests: Packets,
    answers: Packets,
    found: Matching,
    clocks: dict[int, Alignment | None],
    more: dict[str, object],
) -> Measurement:
    """A request without a stamped answer may have arrived: it proves neither PASS nor FAIL."""
    tokens = _tokens(answers)
    asked_ns = requests.time_ns[found.request]
    value = np.full(len(asked_ns), INFINITE_NS)
    floor = np.full(len(asked_ns), NO_FLOOR_NS)
    answered = np.flatnonzero(found.response >= 0)
    back = found.response[answered]
    stamps = Stamps.of(tokens.t_rx_ns[back])
    answered, back, received = (column[stamps.sound] for column in (answered, back, *stamps.columns))
    theta = _theta(clocks, answers.stream.space[back], asked_ns[answered])
    value[answered] = received - theta - asked_ns[answered]
    floor[answered] = value[answered]
    reference = np.zeros(len(value), np.uint32)
    reference[answered] = answers.number[back]
    counts = present({"unknown, because no answer tells": int(np.count_nonzero(value == INFINITE_NS))})
    number = requests.number[found.request]
    measured = durations("one_way_delay", value, number, reference, asked_ns, "requests", counts=counts, **more)
    return replace(measured, floor_ns=floor)
