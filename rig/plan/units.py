"""Quantities with units as plans and bench files write them, held as integers inside.

A bare number is an error where a unit is due. Durations become nanoseconds, sizes bytes, rates bit/s, shares a
`Fraction` (so that `0.1 %` is exact).
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

_QUANTITY = re.compile(r"^\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-z%/]+)\s*$")

TIME_UNITS: dict[str, int] = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
SIZE_UNITS: dict[str, int] = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "kB": 1_000, "MB": 1_000_000}
RATE_UNITS: dict[str, int] = {"bit/s": 1, "kbit/s": 1_000, "Mbit/s": 1_000_000, "Gbit/s": 1_000_000_000}


def _split(value: Any, kind: str, units: dict[str, int], example: str) -> tuple[Decimal, int]:
    expected = f"expected {kind} with a unit ({', '.join(units)}), such as `{example}`"
    if isinstance(value, bool) or not isinstance(value, str):
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise ValueError(f"bare number {value!r}: {expected}")
        raise ValueError(f"{value!r} is not a quantity: {expected}")
    match = _QUANTITY.match(value)
    if match is None:
        raise ValueError(f"{value!r} is not a quantity: {expected}")
    if match[2] not in units:
        raise ValueError(f"unknown unit {match[2]!r} in {value!r}: {expected}")
    try:
        return Decimal(match[1]), units[match[2]]
    except InvalidOperation as error:  # pragma: no cover - the pattern admits only decimals
        raise ValueError(f"{value!r} is not a quantity: {expected}") from error


def _whole(value: Any, kind: str, units: dict[str, int], example: str) -> int:
    number, scale = _split(value, kind, units, example)
    scaled = number * scale
    if scaled != scaled.to_integral_value():
        raise ValueError(f"{value!r} is finer than the smallest unit of {kind}")
    if scaled < 0:
        raise ValueError(f"{value!r} is negative")
    return int(scaled)


def parse_duration(value: Any) -> int:
    """`5 ms` → 5_000_000 (ns)."""
    return _whole(value, "a duration", TIME_UNITS, "5 ms")


def parse_size(value: Any) -> int:
    """`2 MiB` → 2_097_152 (bytes)."""
    return _whole(value, "a size", SIZE_UNITS, "1400 B")


def parse_rate(value: Any) -> int:
    """`10 Mbit/s` → 10_000_000 (bit/s)."""
    return _whole(value, "a rate", RATE_UNITS, "10 Mbit/s")


def parse_share(value: Any) -> Fraction:
    """`0.1 %` → Fraction(1, 1000)."""
    number, _ = _split(value, "a share", {"%": 1}, "0.1 %")
    share = Fraction(number) / 100
    if not 0 <= share <= 1:
        raise ValueError(f"{value!r} is not between 0 % and 100 %")
    return share


def format_ns(value_ns: int) -> str:
    """The shortest exact spelling: 1_500_000 → `1.5 ms`, 37 → `37 ns`."""
    for unit in ("s", "ms", "us"):
        if abs(value_ns) >= TIME_UNITS[unit]:
            return f"{(Decimal(value_ns) / TIME_UNITS[unit]).normalize():f} {unit}"
    return f"{value_ns} ns"


def _schema(units: dict[str, int], example: str) -> WithJsonSchema:
    names = "|".join(re.escape(unit) for unit in units)
    return WithJsonSchema(
        {"type": "string", "pattern": rf"^\s*[+-]?\d+(\.\d+)?\s*({names})\s*$", "examples": [example]}
    )


Duration = Annotated[int, BeforeValidator(parse_duration), _schema(TIME_UNITS, "5 ms")]
Size = Annotated[int, BeforeValidator(parse_size), _schema(SIZE_UNITS, "1400 B")]
BitRate = Annotated[int, BeforeValidator(parse_rate), _schema(RATE_UNITS, "10 Mbit/s")]
Share = Annotated[Fraction, BeforeValidator(parse_share), _schema({"%": 1}, "0.1 %")]
