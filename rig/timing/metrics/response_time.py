"""Response time: from a request to its response, both at the capture point (RFC 2681 section 2.4; Tmax as RFC 6673).

Starts at the capture time of the request datagram (its last fragment when it was fragmented); stops at the capture
time of the first datagram of the answer (`to: first`) or of the one with the `last` flag (`to: last`).
Mode `request`: requests by the Jetson, answers by the board. Mode `push`: undefined, nothing is asked.
A response later than the time-out, or none, is an infinite delay; of a late one the floor is the delay that was
captured, for a stepped clock can make it late. Of copies the first counts. A response that was captured before its
request gives a negative delay, which is reported as it is.
"""

from __future__ import annotations

import numpy as np

from rig.plan.metrics import ResponseTime
from rig.timing.metrics.measurement import INFINITE_NS, NO_FLOOR_NS, Measurement, Scene, present


def response_time(metric: ResponseTime, scene: Scene) -> Measurement:
    """One sample per request of the measured window, in order of the requests.

    A request that never left because nobody answered ARP is a sample too: infinite, shown by the who-has frame.
    """
    requests, responses = scene.packets[metric.request], scene.packets[metric.response]
    found = scene.matchings.match(requests, responses, metric.match, metric.to, scene.timeout_ns)
    asked_ns = requests.time_ns[found.request]
    answered = found.response >= 0
    value = np.full(len(asked_ns), INFINITE_NS)
    value[answered] = responses.time_ns[found.response[answered]] - asked_ns[answered]

    # The capture ended before the time-out: it may still have come.
    undecided = ~answered & ~found.late & (asked_ns > scene.end_ns - scene.timeout_ns)
    floor = value.copy()
    floor[undecided] = scene.end_ns - asked_ns[undecided]
    floor[found.late] = responses.time_ns[found.too_late[found.late]] - asked_ns[found.late]
    floor[(found.ambiguous & answered) | found.elsewhere] = NO_FLOOR_NS

    number = requests.number[found.request].copy()
    number[answered] = responses.number[found.response[answered]]
    time = asked_ns.copy()
    time[answered] = responses.time_ns[found.response[answered]]
    reference = np.where(answered, requests.number[found.request], np.uint32(0))

    notes = []
    if found.ambiguous.any() and not found.strays:
        notes.append(
            f"matched by order beside lost responses: {np.count_nonzero(found.ambiguous & answered)} delays are upper "
            "bounds, because a response may belong to a later request"
        )
    began_ns = requests.table.time_ns[:1]
    if metric.match == "order" and scene.window_ns[0] is None and (asked_ns[:1] < began_ns + scene.timeout_ns).any():
        notes.append("matched by order: no request is taken to have been open when the capture began")
    never = scene.never_left.get(metric.request)
    if never is not None and never.count:
        asking, asking_ns = never.shown()
        value = np.concatenate((value, np.full(len(asking), INFINITE_NS)))
        floor = np.concatenate((floor, np.full(len(asking), INFINITE_NS)))
        number = np.concatenate((number, asking))
        reference = np.concatenate((reference, np.zeros(len(asking), np.uint32)))
        time = np.concatenate((time, asking_ns))
    unasked = never.count if never is not None else 0
    return Measurement(
        metric="response_time",
        kind="durations",
        value_ns=value,
        floor_ns=floor,
        number=number,
        reference=reference,
        time_ns=time,
        denominator=len(value),
        of="requests",
        counts=present(
            {
                "lost": int((~answered & ~found.late).sum()) + unasked,
                **found.counts,
                "undecided at the end of the capture": int(undecided.sum()),
                "requests that never left (ARP unanswered)": unasked,
            }
        ),
        notes=tuple(notes),
        unprovable=found.unprovable
        or (f"{found.crossed} requests were open together with another of the same key" if found.crossed else ""),
    )
