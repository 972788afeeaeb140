"""Writes the published JSON Schemas: `python -m rig.bench.schema` from the project's root."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rig.bench.model import BenchFile
from rig.plan.schema import plan_schema, schema_of, schema_text

FOLDER = Path("docs/schema")


def bench_schema() -> dict[str, Any]:
    """The schema of `benches/*.yaml`."""
    return schema_of(BenchFile, "Bench of a rig")


def schema_files() -> dict[str, str]:
    """File name → text of every published schema."""
    return {"plan.schema.json": schema_text(plan_schema()), "bench.schema.json": schema_text(bench_schema())}


def write_schemas(folder: Path = FOLDER) -> list[Path]:
    """Write the schemas into `folder`; the paths of those that changed."""
    folder.mkdir(parents=True, exist_ok=True)
    changed = []
    for name, text in schema_files().items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


if __name__ == "__main__":
    for written in write_schemas():
        print(written)
