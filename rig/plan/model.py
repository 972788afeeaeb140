"""What a plan says, as frozen models: the grammar of `*.plan.yaml` is these classes and nothing else.

The JSON Schema in docs/schema is made from them. Durations are ns, shares are fractions (see `units`). What one part
can check alone it checks here; what needs several parts is in `rules`. `model_dump(mode="json")` spells values as a
plan would, so that it can be read back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from rig.plan.units import BitRate, Duration, Share, format_ns, parse_share

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=64)]


class Model(BaseModel):
    """Base of all plan parts: unknown keys are errors, values cannot change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)

    @classmethod
    def extra_key(cls, key: str) -> type[Model] | None:
        """What a key that is no field holds, for the models that admit such keys; None where it is unknown."""
        del key
        return None

    @model_serializer(mode="wrap")
    def _spell(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        if info.mode != "json":
            return data
        # None is written only where it says something other than leaving the key out.
        fields = type(self).model_fields
        silent = {key for name, f in fields.items() if f.default is None for key in (name, f.alias)}
        return {key: value for key, value in data.items() if value is not None or key not in silent}


M = TypeVar("M", bound=Model)


def _exactly_one(part: M, names: Iterable[str], what: str) -> M:
    there = [name for name in names if getattr(part, name) is not None]
    if len(there) != 1:
        here = "none is there" if not there else "here are " + " and ".join(f"`{name}`" for name in there)
        raise ValueError(f"{what} takes exactly one of {', '.join(names)}; {here}")
    return part


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
        return _exactly_one(self, ("open", "closed"), "load")


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
    if value not in ENDPOINTS:
        try:
            ip_address(value)
        except ValueError:
            raise PydanticCustomError(
                "not_an_endpoint", "{value} is neither board, jetson, rig nor an IP address", {"value": repr(value)}
            ) from None
    return value


Endpoint = Annotated[str, AfterValidator(_endpoint)]


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

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    max: Duration | None = None
    min: Duration | None = None

    @model_validator(mode="after")
    def _some_order(self) -> DurationBound:
        if self.max is None and self.min is None:
            raise ValueError("bounds nothing: give `max`, `min` or both")
        if self.max is not None and self.min is not None and self.min > self.max:
            raise ValueError(f"min {format_ns(self.min)} is above max {format_ns(self.max)}: no value can hold both")
        return self


class CountBound(Model):
    max: Annotated[int, Field(ge=0)]


class ShareBound(Model):
    max: Share


class AtMost(Model):
    """At most `count` samples beyond the duration."""

    count: Annotated[int, Field(ge=0)]
    beyond: Duration


PERCENTILE = r"^p([1-9][0-9]?(?:\.[0-9]{0,2}[1-9])?|0\.[0-9]{0,2}[1-9])$"
"""One spelling per percentile: no leading and no trailing zero."""

_MEANT_AS_PERCENTILE = re.compile(r"[pP][-_]?[0-9]")


class Limits(Model):
    """`each`, `at_most` and percentiles bound durations; `count` and `ratio` bound event metrics."""

    each: DurationBound | None = None
    at_most: AtMost | None = None
    count: CountBound | None = None
    ratio: ShareBound | None = None
    percentiles: dict[Annotated[str, Field(pattern=PERCENTILE)], DurationBound] = Field(default_factory=dict)
    """Written in the plan as keys beside the others: `p50: {max: 2 ms}`."""

    @classmethod
    def extra_key(cls, key: str) -> type[Model] | None:
        return DurationBound if re.fullmatch(PERCENTILE, key) else None

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict):
            return data
        if info.context and "percentiles" in data:
            raise PydanticCustomError("unknown_key", "unknown key `percentiles`", {"key": "percentiles"})
        named = {key: value for key, value in data.items() if _MEANT_AS_PERCENTILE.match(key)}
        if not named:
            return data
        rest = {key: value for key, value in data.items() if key not in named}
        return {**rest, "percentiles": {**data.get("percentiles", {}), **named}}

    @model_validator(mode="after")
    def _some(self) -> Limits:
        if not (self.each or self.at_most or self.count or self.ratio or self.percentiles):
            raise ValueError("holds no limit, so nothing would be judged")
        return self

    @model_serializer(mode="wrap")
    def _spell(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        if info.mode != "json":
            return data
        percentiles: dict[str, Any] = data.pop("percentiles")
        return {key: value for key, value in data.items() if value is not None} | percentiles

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core))
        percentiles = schema["properties"].pop("percentiles")
        ((pattern, bound),) = percentiles["patternProperties"].items()
        schema["patternProperties"] = {pattern: {**bound, "description": "Bound of a percentile: p50, p99, p99.9"}}
        schema["minProperties"] = 1
        return schema


METRICS = ("response_time", "gap", "loss", "duplicates", "reordering")


class Check(Model):
    """One named metric with its limits. Exactly one metric key."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [metric]} for metric in METRICS]})

    response_time: ResponseTime | None = None
    gap: Gap | None = None
    loss: Loss | None = None
    duplicates: Duplicates | None = None
    reordering: Reordering | None = None
    limits: Limits
    hardware: Limits | None = None
    """Limits that take the place of the ones of the same key on benches with profile `hardware`."""
    emulated: Limits | None = None
    """The same for profile `emulated`."""
    confidence: Share | None = None
    """Confidence of this check's percentile limits; without it the plan's."""
    proof: Literal["exact", "sample"] = "exact"
    """`sample` judges the observed order statistic alone and says so in the verdict line."""

    @model_validator(mode="after")
    def _one(self) -> Check:
        return _exactly_one(self, METRICS, "a check")

    @property
    def metric(self) -> ResponseTime | Gap | Loss | Duplicates | Reordering:
        """The one metric of this check."""
        found = self.response_time or self.gap or self.loss or self.duplicates or self.reordering
        assert found is not None
        return found

    @property
    def metric_name(self) -> str:
        """The key of the one metric, such as `response_time`."""
        return next(name for name in METRICS if getattr(self, name) is not None)


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
    confidence: Share = parse_share("95 %")
    """One-sided confidence at which percentile limits must be proven."""
    matrix: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)
    """Dotted path of a key → its values; every combination is one point of the plan."""
    expect: Expect | None = None
    repeat: Annotated[int, Field(ge=1, le=1000)] = 1
    """Runs of each point in one set."""
