"""The published JSON Schemas: current, valid, and of one mind with the loader about structure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from rig.bench.load import load_bench
from rig.bench.schema import bench_schema, schema_files, write_schemas
from rig.plan.schema import plan_schema
from rig.plan.yaml_positions import read_document

ROOT = Path(__file__).parents[2]
PLANS = sorted((ROOT / "testplans").rglob("*.plan.yaml"))


def check(schema: dict[str, Any], text: str) -> list[str]:
    document = read_document(text.encode(), "x")
    assert document.faults == ()
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(document.data)]


def test_committed_schemas_are_current() -> None:
    for name, text in schema_files().items():
        path = ROOT / "docs" / "schema" / name
        assert path.read_text(encoding="utf-8") == text, f"{path} is stale: python -m rig.bench.schema"


def test_writing_says_what_changed_and_only_once(tmp_path: Path) -> None:
    assert {path.name for path in write_schemas(tmp_path)} == {"plan.schema.json", "bench.schema.json"}
    assert write_schemas(tmp_path) == []


@pytest.mark.parametrize("schema", [plan_schema(), bench_schema()], ids=["plan", "bench"])
def test_schema_is_sound(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    text = json.dumps(schema)
    assert '"default": null' not in text
    for number in ("1000000", "45000000000"):
        assert f'"default": {number}' not in text, "defaults are spelt with their unit"


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_plan_fits_the_schema_and_names_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert check(plan_schema(), text) == []
    first = text.splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    assert (path.parent / first.split("=", 1)[1]).resolve() == ROOT / "docs" / "schema" / "plan.schema.json"


@pytest.mark.parametrize("path", sorted((ROOT / "benches").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_bench_of_this_project_loads_and_fits_the_schema(path: Path) -> None:
    assert load_bench(path).bench
    assert check(bench_schema(), path.read_text(encoding="utf-8")) == []


GOOD = (ROOT / "testplans" / "zero-copy-latency.plan.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("variant:", "varient:"),
        ("requests: 600", "requests: many"),
        ("p50: {max: 5 ms}", "p100: {max: 5 ms}"),
        ("p50: {max: 5 ms}", "p50: {max: 5}"),
        ("p50: {max: 5 ms}", "p50: {}"),
        ("closed: {in_flight: 1}", ""),
        ("duplicates: {of: answers}", "duplicates: {of: answers}\n    gap: {of: answers}"),
        ("{count: {max: 0}}", "{}"),
        ("from: jetson", "src: jetson"),
        ("plan: zero-copy-latency\n", ""),
    ],
)
def test_schema_refuses_what_the_loader_refuses(old: str, new: str) -> None:
    assert old in GOOD
    assert check(plan_schema(), GOOD.replace(old, new, 1)) != []
