"""What a plan says, as frozen models: the grammar of `*.plan.yaml` is these classes and nothing else.

The JSON Schema in docs/schema is made from them. Durations are ns, shares are fractions (see `units`). What one part
can check alone it checks here; what needs several parts is in `rules`. `model_dump(mode="json")` spells values as a
plan would, so that it can be read back.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from rig.plan.base import Model as Model
from rig.plan.base import Name as Name
from rig.plan.base import exactly_one
from rig.plan.bounds import PERCENTILE, DurationBound, Limits, RatioBound
from rig.plan.metrics import (
    METRICS,
    Burst,
    Duplicates,
    Gap,
    Ipdv,
    Itl,
    Jitter,
    Loss,
    Metric,
    OneWayDelay,
    Pdv,
    Reordering,
    ResponseTime,
    Throughput,
    Tpot,
    Ttft,
    Turnaround,
)
from rig.plan.units import BitRate, Duration, Share, parse_share

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
    """Requests leave on a schedule fixed in advance, whatever the answers do. In push mode: the board's own tick."""

    every: Duration
    overrun: Share = parse_share("5 %")
    """Share of sends that may leave later than half a period behind schedule before the run is INCONCLUSIVE."""


class ClosedLoad(Model):
    """`in_flight` requests at a time; the next leaves `think` after an answer came."""

    in_flight: Annotated[int, Field(ge=1, le=256)] = 1
    think: Duration = 0


class Load(Model):
    """Exactly one of `open` and `closed`."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    open: OpenLoad | None = None
    closed: ClosedLoad | None = None

    @model_validator(mode="after")
    def _one(self) -> Load:
        return exactly_one(self, ("open", "closed"), "load")


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
    """Share of frames held back until one later frame of the direction has passed and 250 us more, at most 20 ms."""
    rate: BitRate | None = None
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 1
    select: dict[Literal["udp.dstport", "udp.srcport", "ethertype", "every"], Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict
    )
    """Frame selector; all entries must match. `every: N` takes each N-th of the frames that match the rest."""

    @model_validator(mode="after")
    def _imposes(self) -> Impairment:
        if not (self.delay or self.jitter or self.loss or self.duplicate or self.reorder or self.rate):
            raise ValueError("imposes nothing: give at least one of delay, jitter, loss, duplicate, reorder, rate")
        if self.select.get("every") == 0:
            raise ValueError("`every: 0` picks no frame; it starts at 1")
        return self


# --- flows ------------------------------------------------------------------------------------------------------------


ENDPOINTS = ("board", "jetson", "rig")


def _endpoint(value: str) -> str:
    """An address is kept as captures spell it. A zone, such as in `fe80::1%eth0`, is in no frame."""
    if value in ENDPOINTS:
        return value
    try:
        address = ip_address(value)
    except ValueError:
        address = None
    if address is None or "%" in value:
        raise PydanticCustomError(
            "not_an_endpoint", "{value} is neither board, jetson, rig nor an IP address", {"value": repr(value)}
        )
    return socket.inet_ntop(socket.AF_INET if address.version == 4 else socket.AF_INET6, address.packed)


Endpoint = Annotated[str, AfterValidator(_endpoint)]


class Key(Model):
    """Bytes of the payload at an offset, or a Wireshark field; equal values belong together."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["bytes"]}, {"required": ["field"]}]})

    offset: Annotated[int, Field(ge=0, le=65_535)] = 0
    bytes: Annotated[int, Field(ge=1, le=8)] | None = None
    field: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=200)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Key:
        return exactly_one(self, ("bytes", "field"), "a key")


class Flow(Model):
    """A selector of packets: all keys must match. `from` and `to` name `board`, `jetson`, `rig` or an IP address."""

    src: Endpoint | None = Field(default=None, alias="from")
    dst: Endpoint | None = Field(default=None, alias="to")
    udp_srcport: Annotated[int, Field(ge=1, le=65535)] | None = Field(default=None, alias="udp.srcport")
    udp_dstport: Annotated[int, Field(ge=1, le=65535)] | None = Field(default=None, alias="udp.dstport")
    tcp_srcport: Annotated[int, Field(ge=1, le=65535)] | None = Field(default=None, alias="tcp.srcport")
    tcp_dstport: Annotated[int, Field(ge=1, le=65535)] | None = Field(default=None, alias="tcp.dstport")
    vlan: Annotated[int, Field(ge=0, le=4094)] | None = None
    protocol: Literal["token-v1", "token-v2"] | None = None
    filter: Annotated[str, Field(min_length=1, max_length=1_000, pattern=r"^[\x20-\x7e]*$")] | None = None
    """A Wireshark display filter that the packets must pass as well."""
    key: Key | None = None
    """What tells the packets of one exchange from those of another, for `match: key`."""


# --- checks -----------------------------------------------------------------------------------------------------------


class Check(Model):
    """One named metric with its limits. Exactly one metric key."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [metric]} for metric in METRICS]})

    response_time: ResponseTime | None = None
    gap: Gap | None = None
    one_way_delay: OneWayDelay | None = None
    ipdv: Ipdv | None = None
    pdv: Pdv | None = None
    jitter: Jitter | None = None
    turnaround: Turnaround | None = None
    ttft: Ttft | None = None
    itl: Itl | None = None
    tpot: Tpot | None = None
    loss: Loss | None = None
    duplicates: Duplicates | None = None
    reordering: Reordering | None = None
    burst: Burst | None = None
    throughput: Throughput | None = None
    limits: Limits
    hardware: Limits | None = None
    """Limits that take the place of the ones of the same key on benches with profile `hardware`."""
    emulated: Limits | None = None
    """The same for profile `emulated`."""
    confidence: Share | None = None
    """Confidence of this check's percentile limits; without it the plan's."""
    proof: Literal["exact", "sample"] = "exact"
    """`sample` judges the observed order statistic alone and says so in the verdict line."""
    skip_first: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Samples at the start of the run that are left out, beside the warm-up exchanges before the start sentinel."""

    @model_validator(mode="after")
    def _one(self) -> Check:
        return exactly_one(self, METRICS, "a check")

    @property
    def metric(self) -> Metric:
        """The one metric of this check."""
        found: Metric = getattr(self, self.metric_name)
        return found

    @property
    def metric_name(self) -> str:
        """The key of the one metric, such as `response_time`."""
        return next(name for name in METRICS if getattr(self, name) is not None)


class Comparison(Model):
    """Point `b` against point `a`: difference or ratio of a figure of one check, over the runs of one set.

    Without a bound it is reported and gets no verdict.
    """

    of: Name
    """The check whose samples are compared."""
    a: str
    b: str
    statistic: Annotated[str, Field(pattern=PERCENTILE.replace("^p", "^mean$|^p"))] = "p50"
    """`mean`, or a percentile."""
    difference: DurationBound | None = None
    """Bound of the figure of `b` minus that of `a`."""
    ratio: RatioBound | None = None
    """Bound of the figure of `b` over that of `a`."""
    confidence: Share | None = None
    """One-sided confidence; without it the plan's."""

    @model_validator(mode="after")
    def _one_bound(self) -> Comparison:
        if self.difference is not None and self.ratio is not None:
            raise ValueError("takes one of `difference` and `ratio`; here are both")
        return self

    @property
    def bounded(self) -> bool:
        """Whether there is something to prove."""
        return self.difference is not None or self.ratio is not None


# --- the plan ---------------------------------------------------------------------------------------------------------


class Expect(Model):
    """Strict expectation for plans that provoke a fault: exactly these checks and comparisons fail, all others pass."""

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
    confidence: Share = parse_share("95 %")
    """One-sided confidence at which percentile limits must be proven."""
    matrix: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)
    """Dotted path of a key → its values; every combination is one point of the plan."""
    comparisons: dict[Name, Comparison] = Field(default_factory=dict)
    """Name → two points of the matrix that are compared once the set is complete."""
    expect: Expect | None = None
    repeat: Annotated[int, Field(ge=1, le=1000)] = 1
    """Runs of each point in one set."""
