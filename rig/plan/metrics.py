"""The metrics that a check can name, one model each; docs/metrics.md says what they mean and where they come from."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from rig.plan.base import Model, Name
from rig.plan.units import Duration

Match = Literal["request_id", "key", "order"]

MOST_INTERVALS: Final = 10_000_000
"""The most intervals that a throughput is judged in."""


class ResponseTime(Model):
    """Request's last frame to the response, at the capture point (RFC 2681; lost or later than timeout = infinite)."""

    request: Name
    response: Name
    match: Match = "request_id"
    to: Literal["first", "last"] = "first"


class Gap(Model):
    """Time between successive packets of a flow, or of one answer."""

    of: Name
    within: Literal["flow", "request_id"] = "flow"


class OneWayDelay(Model):
    """Between the board's stamp and the capture point (RFC 7679), clocks aligned by the minima of both directions."""

    of: Name
    opposite: Name
    """The flow of the other direction of the same exchange."""


class Ipdv(Model):
    """Difference of the delays of successive packets in sending order, signed (RFC 5481 section 4.1)."""

    of: Name


class Pdv(Model):
    """Delay above the smallest of the run (RFC 5481 section 4.2)."""

    of: Name
    opposite: Name | None = None
    """The flow of the other direction, to take out the drift of the sender's clock."""


class Jitter(Model):
    """Interarrival jitter, the estimator of RFC 3550 section 6.4.1 after each packet."""

    of: Name


class Turnaround(Model):
    """Time inside the board by its own stamps (token-v2 header)."""

    of: Name
    stage: Literal["whole", "inference", "send", "queue"] = "whole"
    """whole: received to send. inference: received to ready. send: ready to send. queue: send to queued."""


class Ttft(Model):
    """Time to first token: on the wire from request to the first datagram with a token, else on the Jetson."""

    source: Literal["wire", "jetson"]
    request: Name
    response: Name | None = None
    """The answers; `source: wire` only."""


class Itl(Model):
    """Inter-token latency: time from one token to the next of an answer."""

    source: Literal["wire", "jetson"]
    of: Name
    """`wire`: the answers. `jetson`: the requests that carry the tokens."""


class Tpot(Model):
    """Time per output token: (last token - first token) / (tokens - 1) of each answer."""

    source: Literal["wire", "jetson"]
    of: Name
    """`wire`: the answers. `jetson`: the requests that carry the tokens."""


class Loss(Model):
    """Unanswered requests (`answered_by`, RFC 6673), or packets that the sender counted and nobody saw (RFC 7680)."""

    of: Name
    answered_by: Name | None = None
    match: Match = "request_id"


class Duplicates(Model):
    """Further copies of a packet already seen (RFC 5560)."""

    of: Name


class Reordering(Model):
    """Packets that arrive after a later one of their flow (RFC 4737, type-P-reordered)."""

    of: Name
    n: Annotated[int, Field(ge=1, le=1_000)] | None = None
    """Only packets that n or more successive later ones preceded (RFC 4737 section 5.3)."""


class Burst(Model):
    """Packets of a flow within any span of the given length."""

    of: Name
    within: Duration


class Throughput(Model):
    """Bit rate of a flow, over the measured window or over each successive interval of it."""

    of: Name
    per: Duration | None = None
    """Length of the intervals; without it the whole window."""
    layer: Literal["payload", "frame"] = "payload"
    """What is counted: UDP or TCP payload, or whole frames on the wire (without FCS, preamble and gap)."""


Metric = (
    ResponseTime
    | Gap
    | OneWayDelay
    | Ipdv
    | Pdv
    | Jitter
    | Turnaround
    | Ttft
    | Itl
    | Tpot
    | Loss
    | Duplicates
    | Reordering
    | Burst
    | Throughput
)

DURATIONS: Final = (
    "response_time",
    "gap",
    "one_way_delay",
    "ipdv",
    "pdv",
    "jitter",
    "turnaround",
    "ttft",
    "itl",
    "tpot",
)
"""Metrics whose samples are durations."""
METRICS: Final = (*DURATIONS, "loss", "duplicates", "reordering", "burst", "throughput")
