"""The desk of a user, for the tests of the pytest plugin."""

from __future__ import annotations

from pathlib import Path

import pytest
from desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)
