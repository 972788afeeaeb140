"""What all rooms' tests share: the two sizes of a soak."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def repeats(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """`repeats(few, many)`: few by default, many when the soak tier was asked for (`-m soak`)."""
    soak = str(request.config.option.markexpr).strip() == "soak"
    return lambda few, many: many if soak else few
