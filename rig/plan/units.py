"""Quantities with units as plans and bench files write them, held as integers inside.

A bare number is an error where a unit is due. Durations become nanoseconds, sizes bytes, rates bit/s, shares a
`Fraction` (so that `0.1 %` is exact). Dumping a model in JSON mode spells them as a plan would.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

# Digits are bounded so that a hostile file cannot ask for arithmetic on a million of them.
_QUANTITY = re.compile(r"\s*([+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([^\s0-9.+-]\S*)\s*", re.ASCII)

TIME_UNITS: dict[str, int] = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
SIZE_UNITS: dict[str, int] = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "kB": 1_000, "MB": 1_000_000}
RATE_UNITS: dict[str, int] = {"bit/s": 1, "kbit/s": 1_000, "Mbit/s": 1_000_000, "Gbit/s": 1_000_000_000}

LARGEST = 10**17
"""Bound of every quantity (as a duration: three years), so that sums of a few stay within 64 bits."""


def parse_duration(value: Any) -> int:
    """`5 ms` → 5_000_000 (ns)."""
    return _whole(value, "a duration", TIME_UNITS, "5 ms")


def parse_signed_duration(value: Any) -> int:
    """`-5 ms` → -5_000_000 (ns)."""
    if isinstance(value, str) and value.strip().startswith("-"):
        return -parse_duration(value.strip()[1:])
    return parse_duration(value)


def parse_size(value: Any) -> int:
    """`2 MiB` → 2_097_152 (bytes)."""
    return _whole(value, "a size", SIZE_UNITS, "1400 B")


def parse_rate(value: Any) -> int:
    """`10 Mbit/s` → 10_000_000 (bit/s)."""
    return _whole(value, "a rate", RATE_UNITS, "10 Mbit/s")


def parse_share(value: Any) -> Fraction:
    """`0.1 %` → Fraction(1, 1000)."""
    number, _ = _split(value, "a share", {"%": 1}, "0.1 %")
    share = number / 100
    if not 0 <= share <= 1:
        raise ValueError(f"{value!r} is not between 0 % and 100 %")
    return share


def parse_ratio(value: Any) -> Fraction:
    """`120 %` → Fraction(6, 5); unlike a share it may exceed 100 %."""
    number, _ = _split(value, "a ratio", {"%": 1}, "120 %")
    if not 0 <= number <= 10**6:
        raise ValueError(f"{value!r} is not between 0 % and 1000000 %")
    return number / 100


def format_ns(value_ns: int) -> str:
    """The shortest exact spelling: 1_500_000 → `1.5 ms`, 37 → `37 ns`."""
    for unit in ("s", "ms", "us"):
        if abs(value_ns) >= TIME_UNITS[unit]:
            return f"{(Decimal(value_ns) / TIME_UNITS[unit]).normalize():f} {unit}"
    return f"{value_ns} ns"


def format_size(value: int) -> str:
    """2_097_152 → `2 MiB`, 1400 → `1400 B`."""
    return _largest_whole(value, {"MiB": 1 << 20, "KiB": 1 << 10, "B": 1})


def format_rate(value: int) -> str:
    """10_000_000 → `10 Mbit/s`."""
    return _largest_whole(value, {unit: RATE_UNITS[unit] for unit in reversed(RATE_UNITS)})


def format_share(share: Fraction) -> str:
    """Fraction(1, 1000) → `0.1 %`; exact for every share that a plan can write."""
    percent = share * 100
    return f"{(Decimal(percent.numerator) / percent.denominator).normalize():f} %"


def _split(value: Any, kind: str, units: dict[str, int], example: str) -> tuple[Fraction, int]:
    expected = f"expected {kind} with a unit ({', '.join(units)}), such as `{example}`"
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f"bare number {value!r}: {expected}")  # noqa: TRY004 - what pydantic expects
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else _short(value)
        raise ValueError(f"{shown} is not a quantity: {expected}")
    if match[2] not in units:
        raise ValueError(f"unknown unit {_short(match[2])} in {_short(value)}: {expected}")
    return Fraction(match[1]), units[match[2]]


def _short(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _whole(value: Any, kind: str, units: dict[str, int], example: str) -> int:
    number, scale = _split(value, kind, units, example)
    scaled = number * scale
    if scaled.denominator != 1:
        raise ValueError(f"{value!r} is finer than {next(iter(units))}, the smallest unit of {kind}")
    if scaled < 0:
        raise ValueError(f"{value!r} is negative")
    if scaled > LARGEST:
        raise ValueError(f"{value!r} is beyond the largest {kind.split()[-1]} that the rig handles")
    return int(scaled)


def _largest_whole(value: int, units: dict[str, int]) -> str:
    for unit, scale in units.items():
        if value and value % scale == 0:
            return f"{value // scale} {unit}"
    return f"{value} {list(units)[-1]}"


def _schema(units: dict[str, int], example: str, sign: str = "[+]") -> WithJsonSchema:
    names = "|".join(re.escape(unit) for unit in units)
    return WithJsonSchema(
        {
            "type": "string",
            "pattern": rf"^\s*{sign}?[0-9]{{1,18}}(\.[0-9]{{1,18}})?\s*({names})\s*$",
            "examples": [example],
        }
    )


def _spelled(write: Callable[[Any], str]) -> PlainSerializer:
    return PlainSerializer(write, return_type=str, when_used="json-unless-none")


Duration = Annotated[int, BeforeValidator(parse_duration), _spelled(format_ns), _schema(TIME_UNITS, "5 ms")]
SignedDuration = Annotated[
    int,
    BeforeValidator(parse_signed_duration),
    _spelled(format_ns),
    _schema(TIME_UNITS, "5 ms", "[+-]"),
]
Size = Annotated[int, BeforeValidator(parse_size), _spelled(format_size), _schema(SIZE_UNITS, "1400 B")]
BitRate = Annotated[int, BeforeValidator(parse_rate), _spelled(format_rate), _schema(RATE_UNITS, "10 Mbit/s")]
Share = Annotated[Fraction, BeforeValidator(parse_share), _spelled(format_share), _schema({"%": 1}, "0.1 %")]
Ratio = Annotated[Fraction, BeforeValidator(parse_ratio), _spelled(format_share), _schema({"%": 1}, "120 %")]
