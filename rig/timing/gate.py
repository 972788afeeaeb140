"""The evidence gate: what could make a verdict worthless. Pure: observations in, findings out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

from rig.plan.units import format_ns
from rig.timing.copies import AT_ONCE_NS, Copies
from rig.timing.evidence import Evidence, Finding, Ledger, Seen, Subject
from rig.timing.limits import Doubt
from rig.timing.merged import LONGEST_JUMBO, Merged
from rig.timing.table import ReaderFinding
from rig.timing.window import Window

# Reader findings, by what they mean for a verdict: packets missing, times wrong.
_MISSING = {
    "cut-file",
    "corrupt-block",
    "unsupported-linktype",
    "no-timestamp",
    "incomplete-datagram",
    "too-many-flows",
}
_SHIFTED = {"time-step-back"}
_DROPS = {"interface-drops"}

UNKNOWN = Doubt(missing=None, shift_ns=0)
ANYTHING = Doubt(missing=None, shift_ns=None)

# What can cause a FAIL of which metric. A missing packet cannot look like a copy or like a late one.
_BY_ABSENCE = {"response_time", "gap", "one_way_delay", "jitter", "ttft", "itl", "tpot", "loss", "throughput"}
_BY_CLOCK = _BY_ABSENCE - {"loss"} | {"ipdv", "pdv", "reordering", "burst"}


def gate(
    evidence: Evidence,
    reader: Iterable[ReaderFinding],
    window: Window,
    seen: Seen,
    subjects: Iterable[Subject],
    *,
    e_ns: int,
    overrun: Fraction | None = None,
    expected: tuple[str, int] = ("jetson", 0),
    file_drops: int = 0,
    copied: Mapping[str, Copies] = MappingProxyType({}),
    merged: Mapping[str, Merged] = MappingProxyType({}),
) -> tuple[Finding, ...]:
    """All findings about a run, in a fixed order.

    overrun: share of sends that may be late (open load). expected: who begins the plan's exchanges, `jetson` (requests)
    or `board` (pushes), and with how many datagrams. file_drops: what the capture file itself says was dropped. copied:
    flow → the copies in it, of flows that are in the capture twice. merged: flow → its frames that are several packets.
    """
    known = {place: count for place, count in evidence.drops.items() if count > 0}
    if file_drops > sum(known.values()):  # else the recorder has told of the same frames already
        evidence = replace(evidence, drops={"capture file": file_drops})
    every = tuple(subjects)
    return (
        *_gate(evidence, reader, window, seen, every, e_ns, overrun, expected),
        *_of_the_copies(copied, every),
        *_of_the_merged(merged, every),
    )


def _gate(
    evidence: Evidence,
    reader: Iterable[ReaderFinding],
    window: Window,
    seen: Seen,
    subjects: tuple[Subject, ...],
    e_ns: int,
    overrun: Fraction | None,
    expected: tuple[str, int],
) -> Iterator[Finding]:
    every = tuple(subject.name for subject in subjects)
    wired = tuple(subject for subject in subjects if subject.on_wire)
    absence = tuple(subject.name for subject in wired if subject.metric in _BY_ABSENCE)
    clock = tuple(subject.name for subject in wired if subject.metric in _BY_CLOCK)
    copies = tuple(subject.name for subject in subjects if subject.metric == "duplicates")
    counted = tuple(subject.name for subject in subjects if subject.counted)

    yield from _of_the_file(reader, every, absence, clock, e_ns)
    yield from _of_the_clocks(wired)
    yield from _of_the_recording(evidence, every, absence, clock, copies, e_ns)
    for subject in subjects:
        if subject.cut:
            yield Finding(
                "headers-cut",
                "capture",
                f"{subject.cut} token headers of check `{subject.name}` were cut by the snaplen; capture more bytes",
                (subject.name,),
                tuple({subject.name} & set(absence)),
                Doubt(subject.cut),
            )
        if subject.both is not None:
            requests, answers, count = subject.both
            yield Finding(
                "flows-overlap",
                "plan",
                f"{count} packets are in both `{requests}` and `{answers}`, so each would answer itself in check "
                f"`{subject.name}`: tell in the flows who asks (`from:`, `to:`, `filter:`)",
                (subject.name,),
                (subject.name,),
                ANYTHING,
            )
    yield from _of_the_sentinels(evidence, window, seen, every, counted)
    yield from _of_the_ledger(evidence.ledger, seen, every, absence)
    yield from _of_the_jetson(evidence, subjects, overrun)
    yield from _of_the_exchanges(evidence.ledger, seen, every, absence, expected)


def _of_the_file(
    reader: Iterable[ReaderFinding],
    every: tuple[str, ...],
    absence: tuple[str, ...],
    clock: tuple[str, ...],
    e_ns: int,
) -> Iterator[Finding]:
    for kind, detail, amount in reader:
        if kind in _MISSING:
            yield Finding(kind, "capture", detail, every, absence, UNKNOWN)
        elif kind in _SHIFTED and not 0 < amount <= e_ns:  # cores stamp before they queue: less than e is usual
            yield Finding(kind, "capture", detail, every, clock, ANYTHING)
        elif kind not in _DROPS:  # drops are judged by their number, below; the rest voids nothing by itself
            yield Finding(kind, "capture", detail)


def _of_the_clocks(wired: tuple[Subject, ...]) -> Iterator[Finding]:
    for subject in wired:
        timed = subject.metric in _BY_CLOCK
        if len(subject.systems) > 1 and (timed or subject.metric == "loss"):
            yield Finding(
                "several-clocks",
                "capture",
                f"the packets of check `{subject.name}` were stamped on {len(subject.systems)} hosts "
                f"({', '.join(subject.systems)}), and nobody knows how far their clocks are apart; judge the capture "
                "of one host",
                (subject.name,),
                (subject.name,) if timed else (),
                ANYTHING,
            )


def _of_the_recording(
    evidence: Evidence,
    every: tuple[str, ...],
    absence: tuple[str, ...],
    clock: tuple[str, ...],
    copies: tuple[str, ...],
    e_ns: int,
) -> Iterator[Finding]:
    for sentence in evidence.recording:
        yield Finding("recording-unsound", "capture", sentence, every, absence, UNKNOWN)
    for name, source, counts in (
        ("capture-drops", "the capture lost", evidence.drops),
        ("nic-drops", "the capturing NIC lost", evidence.nic),
    ):
        lost = {place: count for place, count in sorted(counts.items()) if count > 0}
        if lost:
            places = ", ".join(f"{place} {count}" for place, count in lost.items())
            # Places report the same loss or different ones: the sum is the most it can be.
            yield Finding(
                name, "capture", f"{source} frames ({places})", every, absence, Doubt(missing=sum(lost.values()))
            )
    step = abs(evidence.clock_step_ns)
    if step > e_ns:
        yield Finding(
            "clock-step",
            "rig",
            f"the capture clock moved by {format_ns(step)} against monotonic time, more than e = {format_ns(e_ns)}",
            every,
            clock,
            Doubt(missing=0, shift_ns=step),
        )
    if evidence.carrier_changes:
        yield Finding(
            "carrier-changed",
            "capture",
            f"the bench link changed its carrier {evidence.carrier_changes} times while packets were measured",
            every,
            absence,
            UNKNOWN,
        )
    if evidence.frames_twice:
        yield Finding(
            "frames-twice",
            "capture",
            "this capture point is known to show frames twice, so copies prove nothing",
            (),
            copies,
            UNKNOWN,
        )


def _of_the_copies(copied: Mapping[str, Copies], subjects: tuple[Subject, ...]) -> Iterator[Finding]:
    for flow, copies in copied.items():
        misled = tuple(subject.name for subject in subjects if flow in subject.takes_copies)
        yield Finding(
            "frames-twice",
            "capture",
            f"flow `{flow}` is in the capture more than once: {len(copies.row)} of {copies.looked_at} packets looked "
            f"at repeat another, headers and all, within {format_ns(AT_ONCE_NS)}; judge the file without them, which "
            "`editcap -w 0.0002 IN OUT` writes",
            misled,
            misled,
            ANYTHING,
        )


def _of_the_merged(merged: Mapping[str, Merged], subjects: tuple[Subject, ...]) -> Iterator[Finding]:
    """What is merged hides packets: what is counted is wrong, and a response that is hidden looks lost or late."""
    wired = tuple(subject for subject in subjects if subject.on_wire)
    for flow, (frames, of, longest) in merged.items():
        perhaps = "; a link with jumbo frames would look the same" if longest <= LONGEST_JUMBO else ""
        yield Finding(
            "frames-merged",
            "capture",
            f"{frames} of {of} frames of flow `{flow}` are longer than an Ethernet frame (the longest: {longest} "
            "bytes): the capturing host joined packets (GRO, LRO) or was yet to cut them (TSO, GSO); capture again "
            f"after `ethtool -K IFACE gro off lro off gso off tso off`, or outside of that host{perhaps}",
            tuple(subject.name for subject in wired if flow in subject.counts_packets),
            tuple(subject.name for subject in wired if flow in subject.meets and subject.metric in _BY_ABSENCE),
            UNKNOWN,
        )


def _of_the_sentinels(
    evidence: Evidence, window: Window, seen: Seen, every: tuple[str, ...], counted: tuple[str, ...]
) -> Iterator[Finding]:
    if not evidence.sentinels and not window.start_seen and not window.end_seen:
        return
    silent = f"; {seen.arp_unanswered} ARP requests for the board were not answered" if seen.arp_unanswered else ""
    for which, was_seen, answered in (
        ("start", window.start_seen, window.start_answered),
        ("end", window.end_seen, window.end_answered),
    ):
        if not was_seen:
            yield Finding(
                f"no-{which}-sentinel",
                "board" if silent else "capture",
                f"the {which} sentinel is not in the capture, so nothing shows that it is complete there{silent}",
                every,
                () if silent else counted,
                UNKNOWN,
            )
        elif not answered:
            yield Finding(
                f"{which}-sentinel-unanswered",
                "board",
                f"the board did not answer the {which} sentinel; the capture itself worked, as the sentinel is in it",
            )


def _of_the_ledger(ledger: Ledger, seen: Seen, every: tuple[str, ...], absence: tuple[str, ...]) -> Iterator[Finding]:
    restarted = len(seen.board_boots) > 1  # then the board's counters began anew
    for name, far, received, captured in (
        (
            "requests",
            "board",
            None if restarted else ledger.requests_received,
            seen.requests + seen.of_others + seen.repeated_answers,
        ),
        ("answers", "Jetson", ledger.answers_received, seen.answers),
    ):
        if received is not None and received > captured:
            yield Finding(
                "capture-loss",
                "capture",
                f"the {far} received {received} {name}, the capture holds {captured}: {received - captured} were lost "
                "by the capture, whatever its counters say",
                every,
                absence,
                Doubt(missing=received - captured),
            )


def _of_the_jetson(evidence: Evidence, subjects: tuple[Subject, ...], overrun: Fraction | None) -> Iterator[Finding]:
    every = tuple(subject.name for subject in subjects)
    absence = tuple(subject.name for subject in subjects if subject.on_wire and subject.metric in _BY_ABSENCE)
    if overrun is not None and evidence.sends and Fraction(evidence.late_sends, evidence.sends) > overrun:
        yield Finding(
            "schedule-missed",
            "jetson",
            f"{evidence.late_sends} of {evidence.sends} sends left behind schedule, {float(overrun * 100):.6g} % are "
            "allowed: the load was not the plan's",
            every,
            absence,
            Doubt(missing=evidence.late_sends),
        )
    paced = tuple(subject.name for subject in subjects if "jetson" in subject.sides)
    for sentence in evidence.degraded:
        yield Finding("jetson-degraded", "jetson", sentence, every, paced, ANYTHING)


def _of_the_exchanges(
    ledger: Ledger, seen: Seen, every: tuple[str, ...], absence: tuple[str, ...], expected: tuple[str, int]
) -> Iterator[Finding]:
    side, count = expected
    sent, made = (ledger.answers_sent, "board pushed") if side == "board" else (ledger.requests_sent, "runner sent")
    if sent is not None and sent < count:
        yield Finding("short-run", side, f"the {made} {sent} of {count} datagrams that the plan asks for", every)
    requests = ledger.requests_sent
    if requests and not seen.requests and not seen.arp_unanswered:
        yield Finding(
            "requests-not-seen",
            "capture",
            f"the Jetson sent {requests} requests and none is in the capture, nor an ARP request that went unanswered",
            every,
            absence,
            UNKNOWN,
        )
