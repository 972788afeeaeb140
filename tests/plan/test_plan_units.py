"""Quantities: what is read, what is refused, and that what is written reads back."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.plan import units


@pytest.mark.parametrize(
    ("text", "ns"),
    [("5 ms", 5_000_000), ("5ms", 5_000_000), ("1.5 us", 1_500), ("0 s", 0), ("+2 ns", 2), (" 3 s ", 3_000_000_000)],
)
def test_durations(text: str, ns: int) -> None:
    assert units.parse_duration(text) == ns


def test_other_quantities() -> None:
    assert units.parse_size("2 MiB") == 2 << 20
    assert units.parse_size("1.5 kB") == 1500
    assert units.parse_rate("0.5 Gbit/s") == 500_000_000
    assert units.parse_share("0.1 %") == Fraction(1, 1000)
    assert units.parse_share("100 %") == 1


@pytest.mark.parametrize(
    "value", [5, 5.0, True, None, "5", "ms", "5 m s", "5 ms.", "1e3 ms", "0x5 ms", "٥ ms", "", [], {}, "1" * 19 + " ns"]
)
def test_what_is_no_duration_is_a_value_error(value: object) -> None:
    with pytest.raises(ValueError, match="expected a duration with a unit"):
        units.parse_duration(value)


def test_digits_are_never_rounded_away() -> None:
    with pytest.raises(ValueError, match="finer than ns"):
        units.parse_duration("1.0000000000000001 s")
    assert units.parse_duration("99999999.999999999 s") == 99_999_999_999_999_999


@given(st.integers(0, units.LARGEST))
def test_spelt_quantities_read_back(value: int) -> None:
    assert units.parse_duration(units.format_ns(value)) == value
    assert units.parse_size(units.format_size(value)) == value
    assert units.parse_rate(units.format_rate(value)) == value


@given(st.integers(0, 10**8))
def test_spelt_shares_read_back(millionths: int) -> None:
    share = Fraction(millionths, 10**8)
    assert units.parse_share(units.format_share(share)) == share


def test_shortest_spelling() -> None:
    assert [units.format_ns(ns) for ns in (0, 37, 1_500, 1_500_000, 2_000_000_000)] == [
        "0 ns",
        "37 ns",
        "1.5 us",
        "1.5 ms",
        "2 s",
    ]
    assert units.format_size(1400) == "1400 B"
    assert units.format_rate(10_000_000) == "10 Mbit/s"
