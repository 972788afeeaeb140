"""What a plan says, as frozen models: the grammar of `*.plan.yaml` is these classes and nothing else.

The JSON Schema in docs/schema is made from them. Durations are ns, shares are fractions (see `units`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rig.plan.units import BitRate, Duration, Share

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=64)]


class Model(BaseModel):
    """Base of all plan parts: unknown keys are errors, values cannot change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


# --- what runs -------------------------------------------------------------------------------------------------------


class Firmware(Model):
    """Which image the board must run. `--firmware IMAGE` on the command line takes the place of `variant`."""

    variant: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")] = "zero_copy"
    flash: Literal["always", "if-changed", "never"] = "if-changed"


class Npu(Model):
    """Settings of the firmware's `npu/scripted` backend."""

    backend: Literal["scripted"] = "scripted"
    first_token: Duration = 1_000_000
    per_token: Duration = 0
    tokens_per_datagram: Annotated[int, Field(ge=1, le=355)] = 355


class OpenLoad(Model):
    """Requests leave on a schedule fixed in advance, whatever the answers do."""

    every: Duration
    overrun: Share = Field(default_factory=lambda: parse_default_share("5 %"))
    """Share of sends that may leave later than half a period behind schedule before the run is INCONCLUSIVE."""


class ClosedLoad(Model):
    """`in_flight` requests at a time; the next leaves `think` after an answer came."""

    in_flight: Annotated[int, Field(ge=1, le=256)] = 1
    think: Duration = 0


class Load(Model):
    """Exactly one of `open` and `closed`."""

    open: OpenLoad | None = None
    closed: ClosedLoad | None = None


class Inference(Model):
    """The inference run on the Jetson and the exchanges it makes with the board."""

    mode: Literal["request", "push"] = "request"
    engine: Literal["onnxruntime"] = "onnxruntime"
    model: Name = "sensor-lm"
    precision: Literal["fp32"] = "fp32"
    protocol: Literal["token-v1", "token-v2"] = "token-v2"
    requests: Annotated[int, Field(ge=1, le=10_000_000)] = 300
    """Measured exchanges (pushes in push mode), between the sentinels."""
    warmup: Annotated[int, Field(ge=0, le=100_000)] = 20
    """Exchanges before the start sentinel, in no metric."""
    prompt_tokens: Annotated[int, Field(ge=1, le=355)] = 8
    infer_tokens: Annotated[int, Field(ge=0, le=355)] = 2
    """Tokens that the Jetson decodes per request (request mode)."""
    answer_tokens: Annotated[int, Field(ge=1, le=8192)] = 16
    """Tokens that the board answers or pushes."""
    timeout: Duration = 1_000_000_000
    """Tmax: an answer later than this counts as lost (RFC 6673)."""
    load: Load = Load(closed=ClosedLoad())


# --- what the relay does ----------------------------------------------------------------------------------------------


class Impairment(Model):
    """One rule of the link relay; rules apply in order, to frames that `select` picks (all when absent)."""

    direction: Literal["to-board", "from-board", "both"] = "both"
    delay: Duration = 0
    jitter: Duration = 0
    """Uniform extra delay in [0, jitter]; order is kept."""
    loss: Share | None = None
    duplicate: Share | None = None
    reorder: Share | None = None
    """Share of frames that are held back until one later frame of the direction has passed, at most 20 ms."""
    rate: BitRate | None = None
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 1
    select: dict[Literal["udp.dstport", "udp.srcport", "ethertype", "every"], Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict
    )
    """Frame selector; all entries must match. `every: N` takes each N-th of the frames that match the rest."""


# --- flows ------------------------------------------------------------------------------------------------------------


class Flow(Model):
    """A selector of packets. `from` and `to` name `board`, `jetson`, `rig` or an address."""

    src: str | None = Field(default=None, alias="from")
    dst: str | None = Field(default=None, alias="to")
    udp_srcport: Annotated[int, Field(ge=1, le=65535)] | None = Field(default=None, alias="udp.srcport")
    udp_dstport: Annotated[int, Field(ge=1, le=65535)] | None = Field(default=None, alias="udp.dstport")
    tcp_srcport: Annotated[int, Field(ge=1, le=65535)] | None = Field(default=None, alias="tcp.srcport")
    tcp_dstport: Annotated[int, Field(ge=1, le=65535)] | None = Field(default=None, alias="tcp.dstport")
    vlan: Annotated[int, Field(ge=0, le=4094)] | None = None
    protocol: Literal["token-v1", "token-v2"] | None = None


# --- metrics ----------------------------------------------------------------------------------------------------------


class ResponseTime(Model):
    """Request's last frame to the response, at the capture point (RFC 2681; lost or later than timeout = infinite)."""

    request: Name
    response: Name
    match: Literal["request_id", "order"] = "request_id"
    to: Literal["first", "last"] = "first"


class Gap(Model):
    """Time between successive packets of a flow, or of one answer."""

    of: Name
    within: Literal["flow", "request_id"] = "flow"


class Loss(Model):
    """Unanswered requests (`answered_by`, RFC 6673), or packets that the sender counted and nobody saw (RFC 7680)."""

    of: Name
    answered_by: Name | None = None
    match: Literal["request_id", "order"] = "request_id"


class Duplicates(Model):
    """Further copies of a packet already seen (RFC 5560)."""

    of: Name


class Reordering(Model):
    """Packets that arrive after a later one of their flow (RFC 4737, type-P-reordered)."""

    of: Name


# --- limits -----------------------------------------------------------------------------------------------------------


class DurationBound(Model):
    """At least one of `max` and `min`; both ends inclusive."""

    max: Duration | None = None
    min: Duration | None = None


class CountBound(Model):
    max: Annotated[int, Field(ge=0)]


class ShareBound(Model):
    max: Share


class AtMost(Model):
    """At most `count` samples beyond the duration."""

    count: Annotated[int, Field(ge=0)]
    beyond: Duration


PERCENTILE = r"^p(\d{1,2}(?:\.\d{1,3})?)$"


class Limits(Model):
    """`each`, `at_most` and percentiles bound durations; `count` and `ratio` bound event metrics."""

    each: DurationBound | None = None
    at_most: AtMost | None = None
    count: CountBound | None = None
    ratio: ShareBound | None = None
    percentiles: dict[Annotated[str, Field(pattern=PERCENTILE)], DurationBound] = Field(default_factory=dict)
    """Written in the plan as keys beside the others: `p50: {max: 2 ms}`."""


class Check(Model):
    """One named metric with its limits. Exactly one metric key."""

    response_time: ResponseTime | None = None
    gap: Gap | None = None
    loss: Loss | None = None
    duplicates: Duplicates | None = None
    reordering: Reordering | None = None
    limits: Limits
    hardware: Limits | None = None
    """Limits that take the place of the ones of the same key on benches with profile `hardware`."""
    emulated: Limits | None = None
    confidence: Share | None = None
    proof: Literal["exact", "sample"] = "exact"


# --- the plan ---------------------------------------------------------------------------------------------------------


class Expect(Model):
    """Strict expectation for plans that provoke a fault: exactly these checks fail, all others pass."""

    fail: list[Name] = Field(default_factory=list)


class Plan(Model):
    plan: Name
    description: str = ""
    requirement: str | list[str] = ""
    requires: list[Name] = Field(default_factory=list)
    firmware: Firmware = Firmware()
    npu: Npu = Npu()
    inference: Inference = Inference()
    impairment: list[Impairment] = Field(default_factory=list)
    flows: dict[Name, Flow]
    checks: dict[Name, Check]
    confidence: Share = Field(default_factory=lambda: parse_default_share("95 %"))
    matrix: dict[str, list[Any]] = Field(default_factory=dict)
    expect: Expect | None = None
    repeat: Annotated[int, Field(ge=1, le=1000)] = 1


def parse_default_share(text: str) -> Any:
    """A default in the plan's own spelling."""
    from rig.plan.units import parse_share

    return parse_share(text)
