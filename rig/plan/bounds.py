"""Bounds: what a limit holds a metric's samples, events, packets or rates to."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import (
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

from rig.plan.base import Model
from rig.plan.units import BitRate, Duration, Ratio, Share, SignedDuration, format_ns, format_rate


class DurationBound(Model):
    """At least one of `max` and `min`; both ends inclusive."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    max: SignedDuration | None = None
    min: SignedDuration | None = None

    @model_validator(mode="after")
    def _some_order(self) -> DurationBound:
        if self.max is None and self.min is None:
            raise ValueError("bounds nothing: give `max`, `min` or both")
        if self.max is not None and self.min is not None and self.min > self.max:
            raise ValueError(f"min {format_ns(self.min)} is above max {format_ns(self.max)}: no value can hold both")
        return self


class RateBound(Model):
    """At least one of `max` and `min`; both ends inclusive."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    max: BitRate | None = None
    min: BitRate | None = None

    @model_validator(mode="after")
    def _some_order(self) -> RateBound:
        if self.max is None and self.min is None:
            raise ValueError("bounds nothing: give `max`, `min` or both")
        if self.max is not None and self.min is not None and self.min > self.max:
            raise ValueError(
                f"min {format_rate(self.min)} is above max {format_rate(self.max)}: no value can hold both"
            )
        return self


class RatioBound(Model):
    """At least one of `max` and `min`, in percent of the other's value; both ends inclusive."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    max: Ratio | None = None
    min: Ratio | None = None

    @model_validator(mode="after")
    def _some_order(self) -> RatioBound:
        if self.max is None and self.min is None:
            raise ValueError("bounds nothing: give `max`, `min` or both")
        if self.max is not None and self.min is not None and self.min > self.max:
            raise ValueError("min is above max: no value can hold both")
        return self


class CountBound(Model):
    max: Annotated[int, Field(ge=0)]


class ShareBound(Model):
    max: Share


class LateBound(Model):
    max: Duration


class AtMost(Model):
    """At most `count` samples beyond the duration, in the whole run or in any span of `in_any`."""

    count: Annotated[int, Field(ge=0)]
    beyond: Duration
    in_any: Duration | None = None


PERCENTILE = r"^p([1-9][0-9]?(?:\.[0-9]{0,2}[1-9])?|0\.[0-9]{0,2}[1-9])$"
"""One spelling per percentile: no leading and no trailing zero."""

_MEANT_AS_PERCENTILE = re.compile(r"[pP][-_]?[0-9]")

SINGLE = ("each", "at_most", "count", "ratio", "extent", "late", "packets", "rate")
"""Keys of limits besides the percentiles, in the order in which they are judged and shown."""


class Limits(Model):
    """`each`, `at_most` and percentiles bound durations; `count` and `ratio` bound event metrics; `extent` and `late`
    reordering, `packets` bursts, `rate` throughput."""

    each: DurationBound | None = None
    at_most: AtMost | None = None
    count: CountBound | None = None
    ratio: ShareBound | None = None
    extent: CountBound | None = None
    """Of each reordered packet, in packets (RFC 4737 section 4.2)."""
    late: LateBound | None = None
    """Late time of each reordered packet (RFC 4737 section 4.3)."""
    packets: CountBound | None = None
    rate: RateBound | None = None
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
        if not (self.percentiles or any(getattr(self, key) for key in SINGLE)):
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
        schema = super().__get_pydantic_json_schema__(core, handler)
        percentiles = schema["properties"].pop("percentiles")
        ((pattern, bound),) = percentiles["patternProperties"].items()
        schema["patternProperties"] = {pattern: {**bound, "description": "Bound of a percentile: p50, p99, p99.9"}}
        schema["minProperties"] = 1
        return schema
