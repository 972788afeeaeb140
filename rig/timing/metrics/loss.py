"""Loss: what was sent and did not come (RFC 7680 section 2.4; round trip: RFC 6673 section 4).

`answered_by`: a request of the measured window is lost when its complete answer (the datagram with the `last` flag
and as many tokens as the request asked for) is not captured within the time-out. Denominator: requests sent.
Without it: packets that their sender counted between the sentinels and that the capture point did not see. Denominator:
that counter. Without a counter, or with one that does not count every packet of the flow, nothing proves that 0 were
lost; holes in the sequence of token-v2 still prove loss. A flow that holds only some of what its sender counts or
numbers is charged with nothing that is missing: it may be missing from the rest.
Mode `request`: either form. Mode `push`: the second form only, nothing is asked.
Copies count once, so a copy never hides a loss. A corrupt datagram is a lost one (RFC 7680 section 2.6).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rig.plan.metrics import Loss
from rig.protocol import token_v2
from rig.timing.flows import Packets
from rig.timing.metrics.measurement import INFINITE_NS, Measurement, Scene, present

_COUNTED: Final = "packets counted by the sender"


def loss(metric: Loss, scene: Scene) -> Measurement:
    """One event per lost request, shown by the request's frame; bounds only where a counter is all there is."""
    return _unanswered(metric, metric.answered_by, scene) if metric.answered_by else _uncounted(metric, scene)


def _unanswered(metric: Loss, answered_by: str, scene: Scene) -> Measurement:
    requests, responses = scene.packets[metric.of], scene.packets[answered_by]
    found = scene.matchings.match(requests, responses, metric.match, "last", scene.timeout_ns)
    lost = ~found.complete
    asked_ns = requests.time_ns[found.request]
    undecided = lost & ~found.late & (asked_ns > scene.end_ns - scene.timeout_ns)
    never = scene.never_left.get(metric.of)
    never_left = never.count if never is not None else 0
    number = requests.number[found.request[lost]]
    time = asked_ns[lost]
    if never is not None and never_left:
        asking, asking_ns = never.shown()
        number, time = np.concatenate((number, asking)), np.concatenate((time, asking_ns))

    seen = len(found.request)
    sent = scene.sent.get(metric.of)
    unseen = 0 if sent is None else max(0, sent.count - sent.seen - never_left)
    notes = []
    if unseen:
        notes.append(f"{unseen} requests that their sender counted were not seen at the capture point")
    if found.perhaps_lost:
        notes.append(
            f"{found.perhaps_lost} requests repeat the key of an answered one: whether any of them was lost stays open"
        )
    total = int(lost.sum()) + never_left
    value = np.full(len(number), INFINITE_NS)
    return Measurement(
        metric="loss",
        kind="events",
        value_ns=value,
        floor_ns=value,
        number=number,
        reference=np.zeros(len(number), np.uint32),
        time_ns=time,
        denominator=seen + found.repeated + never_left + unseen,
        of="requests sent",
        counts=present(
            {
                "unanswered": int(lost.sum()) - found.counts.get("incomplete answers", 0) + never_left,
                **found.counts,
                "undecided at the end of the capture": int(undecided.sum()),
                "requests that never left (ARP unanswered)": never_left,
                "requests not seen": unseen,
            }
        ),
        least=total - int((undecided | found.elsewhere).sum()),
        most=total + unseen + found.perhaps_lost,
        notes=tuple(notes),
        unprovable=found.unprovable,
    )


def _uncounted(metric: Loss, scene: Scene) -> Measurement:
    packets = scene.packets[metric.of]
    never = scene.never_left.get(metric.of)
    seen, holes = _distinct_and_holes(packets)
    sent = scene.sent.get(metric.of)
    notes = []
    least: int
    most: int | None
    denominator, of = seen + holes, "packets seen or missing"
    if sent is None or not sent.covers:
        least, most = holes, None
        counter = f"counter of the sender of `{packets.name}`"
        notes.append(
            (f"no {counter} is known" if sent is None else f"the {counter} does not count all that is in the flow")
            + f"; {holes} holes in its sequence are all that is sure"
        )
    elif sent.most is None:
        least, most = 0, None
        denominator, of = sent.count, _COUNTED
        notes.append(
            f"the sender of `{packets.name}` counted {sent.count} packets but {sent.seen} were seen, which no hole "
            "in the sequence explains: they do not reconcile"
        )
    elif sent.whole:
        least, most = sent.least, sent.most
        seen, denominator, of = sent.seen, sent.count, _COUNTED
    else:
        least, most = 0, sent.most
        denominator = seen + most
        if most:
            notes.append(
                f"the sender of `{packets.name}` counted {sent.count} packets, of which the capture lacks {most}; it "
                "also counts packets of other flows, so they may be missing there"
            )
    none = np.empty(0, np.int64)
    number = np.empty(0, np.uint32) if never is None else never.number
    return Measurement(
        metric="loss",
        kind="events",
        value_ns=none if never is None else np.full(len(number), INFINITE_NS),
        floor_ns=none if never is None else np.full(len(number), INFINITE_NS),
        number=number,
        reference=np.zeros(len(number), np.uint32),
        time_ns=none if never is None else never.time_ns,
        denominator=denominator,
        of=of,
        counts=present({"lost": least, "seen": seen, "holes in the sequence": holes}),
        least=least,
        most=most,
        notes=tuple(notes),
    )


def _distinct_and_holes(packets: Packets) -> tuple[int, int]:
    """Packets of the window without their copies, and the sequence numbers missing from the first to the last of each
    sender's boot: those that no datagram in the capture has, whatever it is and whenever it came.

    0 where a hole proves nothing: token-v1 repeats the number of the request, and numbers of a sender that also sends
    other packets than these may be theirs.
    """
    if packets.tokens is None:
        return int(np.count_nonzero(packets.measured)), 0
    stream, beside = packets.stream, packets.beside
    chosen = (packets.measured & stream.first_copy)[stream.order]
    order = stream.order[chosen]
    if beside is None or packets.filtered or packets.shared or not len(order):
        return len(order), 0
    heads = np.flatnonzero(np.diff(stream.space[order], prepend=-1))
    low = np.minimum.reduceat(stream.extended[order], heads)
    high = np.maximum.reduceat(stream.extended[order], heads)

    # Spaces are numbered in the order of their sender and boot.
    named, sender = (
        (packets.table.ends.source[packets.table.flow[tokens.row]] << 32) | tokens.boot_id
        for tokens in (packets.tokens.take(order[heads]), beside)
    )
    index = np.minimum(np.searchsorted(named, sender), len(named) - 1)
    beyond_low = (beside.sequence - low[index]) & 0xFFFF_FFFF
    among = (named[index] == sender) & (beyond_low <= (high - low)[index])
    if not np.isin(beside.type[among], (token_v2.SENTINEL, token_v2.ERROR)).all():
        return len(order), 0

    lowest = np.full(int(stream.space.max()) + 1, INFINITE_NS)
    highest = np.full(len(lowest), -INFINITE_NS)
    lowest[stream.space[order[heads]]], highest[stream.space[order[heads]]] = low, high
    known = stream.first_copy & (stream.extended >= lowest[stream.space]) & (stream.extended <= highest[stream.space])
    others = len(np.unique(np.stack((index[among], beyond_low[among])), axis=1).T)
    aside = sum(count for reason, count in packets.set_aside.items() if reason != "error reply")
    span = int((high - low + 1).sum())
    return len(order), max(0, span - int(np.count_nonzero(known)) - others - aside)
