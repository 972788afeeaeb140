"""Emulated benches for the tests of this room, each in a state folder of its own: any number may run at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from emulated_files import bench_file

from rig.emulation.bench import EmulatedBench, open_bench


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder that no other test uses; returns XDG_STATE_HOME."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedBench]:
    """One bench for the tests of a module, which leave it as they found it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with open_bench(bench_file()) as opened:
            yield opened
