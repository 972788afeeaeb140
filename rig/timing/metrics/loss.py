"""Loss: what was sent and did not come (RFC 7680 section 2.4; round trip: RFC 6673 section 4).

`answered_by`: a request of the measured window is lost when its complete answer (the datagram with the `last` flag
and as many tokens as the request asked for) is not captured within the time-out. Denominator: requests sent.
Without it: packets that their sender counted between the sentinels and that the capture point did not see.
Denominator: that counter. Without a counter nothing proves that 0 were lost; holes in the sequence still prove loss.
Mode `request`: either form. Mode `push`: the board's counter of pushes only, nothing is asked.
Copies count once, so a copy never hides a loss. A corrupt datagram is a lost one (RFC 7680 section 2.6).
"""

from __future__ import annotations

import numpy as np

from rig.plan.metrics import Loss
from rig.timing.flows import Packets
from rig.timing.metrics.measurement import INFINITE_NS, Measurement, Scene, present


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
        shown = np.minimum(np.arange(never_left), len(never.number) - 1)
        number = np.concatenate((number, never.number[shown]))
        time = np.concatenate((time, never.time_ns[shown]))

    seen = len(found.request)
    unseen = max(0, scene.sent.get(metric.of, seen) - seen - never_left)
    notes = []
    if unseen:
        notes.append(f"{unseen} requests that their sender counted were not seen at the capture point")
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
        denominator=seen + never_left + unseen,
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
        least=total - int(undecided.sum()),
        most=total + unseen,
        notes=tuple(notes),
        unprovable=found.unprovable,
    )


def _uncounted(metric: Loss, scene: Scene) -> Measurement:
    packets = scene.packets[metric.of]
    never = scene.never_left.get(metric.of)
    since_ns = scene.sent_from_ns.get(metric.of)
    counted = packets.measured if since_ns is None else packets.time_ns >= since_ns
    seen, holes = _distinct_and_holes(packets, counted)
    sent = scene.sent.get(metric.of)
    notes = []
    least: int
    most: int | None
    if sent is None:
        least, most = holes, None
        notes.append(
            f"no counter of the sender of `{packets.name}` is known; {holes} holes in its sequence are all that is sure"
        )
    elif sent < seen:
        least, most = 0, None
        notes.append(
            f"the sender of `{packets.name}` counted {sent} packets but {seen} were seen: they do not reconcile"
        )
    else:
        least = most = sent - seen
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
        denominator=sent if sent is not None else seen,
        of="packets counted by the sender" if sent is not None else "packets seen",
        counts=present({"lost": least, "seen": seen, "holes in the sequence": holes}),
        least=least,
        most=most,
        notes=tuple(notes),
    )


def _distinct_and_holes(packets: Packets, counted: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> tuple[int, int]:
    """Packets without their copies, and sequence numbers missing between the first and the last of each space."""
    if packets.tokens is None:
        return int(np.count_nonzero(counted)), 0
    stream = packets.stream
    chosen = np.flatnonzero(counted & stream.first_copy)
    if not len(chosen):
        return 0, 0
    space = stream.space[chosen]
    spaces = int(space.max()) + 1
    low, high = np.full(spaces, INFINITE_NS), np.full(spaces, -1)
    np.minimum.at(low, space, stream.extended[chosen])
    np.maximum.at(high, space, stream.extended[chosen])
    used = np.bincount(space, minlength=spaces) > 0
    span = int((high[used] - low[used] + 1).sum())
    numbers = len(chosen)
    if packets.tokens.sequence_bits == 16:  # the datagrams of one answer share a number
        numbers = len(np.unique(np.stack((space, stream.extended[chosen])), axis=1).T)
    return len(chosen), max(0, span - numbers - sum(packets.set_aside.values()))
