"""The examples of the documentation are read as they stand; its tables name every key there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.bench.load import hardware_bench, load_bench
from rig.bench.model import BenchFile, Command
from rig.plan import grammar
from rig.plan.base import Model
from rig.plan.bounds import Limits
from rig.plan.load import load_plan_bytes
from rig.plan.model import Check, Flow, Impairment, Inference, Npu, Plan
from rig.plan.rules import CAPABILITIES

DOCS = Path(__file__).parents[2] / "docs"
PLANS = (DOCS / "plans.md").read_text(encoding="utf-8")
BENCHES = (DOCS / "bench-files.md").read_text(encoding="utf-8")


def examples(text: str) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)


def test_the_plan_example_is_complete_and_its_matrix_fits() -> None:
    example, matrix, compared = examples(PLANS)
    assert load_plan_bytes(example.encode(), Path("docs/plans.md")).plan.plan == "zero-copy-latency"
    points = load_plan_bytes((example + matrix).encode(), Path("docs/plans.md")).points
    assert [point.name for point in points][-1] == "variant-zero_copy+in_flight-4"
    whole = load_plan_bytes((example + matrix + compared).encode(), Path("docs/plans.md")).plan
    assert (whole.repeat, list(whole.comparisons)) == (5, ["zero-copy-is-faster"])


def test_the_bench_examples_are_complete(tmp_path: Path) -> None:
    hardware, reset, flash, emulated = examples(BENCHES)
    path = tmp_path / "bench.yaml"
    path.write_text(hardware)
    bench = hardware_bench(load_bench(path))
    indented = {
        name: re.sub(r"^", "  ", text, flags=re.MULTILINE).rstrip() for name, text in (("r", reset), ("f", flash))
    }
    text = hardware.replace("  reset: {driver: rts}", indented["r"])
    path.write_text(text.replace("  flash: {driver: an3155, baud: 115200}", indented["f"]))
    other = hardware_bench(load_bench(path))
    assert (bench.board.flash.driver, other.board.flash.driver) == ("an3155", "command")
    assert other.board.reset.on is not None
    path.write_text(emulated)
    assert load_bench(path).emulation is not None


@pytest.mark.parametrize("model", [Plan, Inference, Npu, Impairment, Flow, Check, Limits])
def test_every_plan_key_is_documented(model: type[Model]) -> None:
    missing = [key for key in grammar.keys_of(model) if f"`{key}" not in PLANS]
    assert missing == []


SECTIONS = {
    "board.reset": "Control lines",
    "board.boot": "Control lines",
    "board.power": "Power",
    "board.flash": "flash",
}
"""Keys that have a part of the page to themselves stand there without the way to them."""


def leaves(model: type[Model], path: str = "") -> Iterator[str]:
    """The way to every key that holds a value, as `board.serial.port`; a command is a value."""
    for key in grammar.keys_of(model):
        kind = grammar.at(model, [key])
        if grammar.is_model(kind) and kind is not Command:
            yield from leaves(kind, f"{path}{key}.")
        else:
            yield path + key


def is_documented(path: str) -> bool:
    parent, _, key = path.rpartition(".")
    if parent not in SECTIONS:
        return f"`{path}`" in BENCHES
    section = re.search(rf"^### {SECTIONS[parent]}\n(.*?)(?=^##)", BENCHES, re.DOTALL | re.MULTILINE)
    return section is not None and re.search(rf"`{key}\b", section[1]) is not None


def test_every_bench_key_and_capability_is_documented() -> None:
    assert [path for path in leaves(BenchFile) if not is_documented(path)] == []
    assert [key for key in grammar.keys_of(Command) if f"`{key}`" not in BENCHES] == []
    assert [name for name in CAPABILITIES if f"`{name}`" not in PLANS or f"`{name}`" not in BENCHES] == []
