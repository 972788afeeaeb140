"""Plans whose structure was damaged at random: always a plan or a PlanError with positions, never anything else."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rig.errors import Fault, PlanError
from rig.plan.load import load_plan_bytes

SEEDS = [
    yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parents[2] / "testplans").rglob("*.plan.yaml"))
]
VALUES: list[Any] = [
    None, True, 0, -1, 1.5, 10**30, "", "x", "5 ms", "5", "é", "%", [], {}, [[]], {"max": "1 ms"}, {"a": {}}, ["a"],
    "p50", "alive", "answers", "999999999999999 s",
]  # fmt: skip
KEYS = ["p50", "p0", "p99.9", "max", "min", "from", "", "percentiles", "limits", "gap", "[key]", "src", "1", "alive"]


def paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in entries:
        yield from paths(value, (*path, key))


def damaged(rng: random.Random) -> Any:
    data = copy.deepcopy(rng.choice(SEEDS))
    data.setdefault("matrix", {"firmware.variant": ["a", "b"], "npu.first_token": ["1 us"]})
    for _ in range(rng.randint(1, 4)):
        *parents, key = rng.choice([path for path in paths(data) if path] or [("plan",)])
        part = data
        for parent in parents:
            part = part[parent]
        what = rng.random()
        if what < 0.2 and isinstance(part, dict):
            part[rng.choice(KEYS)] = part.pop(key, None)
        elif what < 0.4 and isinstance(part, dict):
            part[rng.choice(KEYS)] = copy.deepcopy(rng.choice(VALUES))
        elif what < 0.6 and len(part) > 1:
            del part[key]
        else:
            part[key] = copy.deepcopy(rng.choice(VALUES))
    return data


@pytest.mark.parametrize("seed", range(4))
def test_damaged_structure_is_explained_or_sound(seed: int) -> None:
    rng = random.Random(seed)
    faults: list[Fault] = []
    for _ in range(150):
        text = yaml.safe_dump(damaged(rng), allow_unicode=True)
        try:
            load_plan_bytes(text.encode(), Path("x.plan.yaml"))
        except PlanError as error:
            faults += error.faults or [Fault("error without faults", 0, 0, text)]
    assert len(faults) > 100
    assert [str(fault) for fault in faults if fault.line < 1 or fault.column < 1] == []
    assert [str(fault) for fault in faults if "Input should" in fault.message or "Extra " in fault.message] == []
