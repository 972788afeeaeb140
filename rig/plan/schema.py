"""JSON Schemas for editors and other tools, made from the models: what the grammar is, not what the rules add to it."""

from __future__ import annotations

import json
import re
from typing import Any

from rig.plan.base import Model
from rig.plan.model import Plan
from rig.plan.units import RATE_UNITS, TIME_UNITS, format_ns, format_rate

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def plan_schema() -> dict[str, Any]:
    """The schema of `*.plan.yaml`."""
    return schema_of(Plan, "Plan of a rig run")


def schema_of(model: type[Model], title: str) -> dict[str, Any]:
    """The schema of the files that `model` describes, as JSON Schema draft 2020-12."""
    schema = _tidy(model.model_json_schema(by_alias=True, mode="validation"))
    return {"$schema": DIALECT, **schema, "title": title}


def schema_text(schema: dict[str, Any]) -> str:
    """The text of a schema file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _tidy(node: Any) -> Any:
    """Defaults in the file's spelling, no null where leaving the key out says the same, no generated titles."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    result = {key: _tidy(value) for key, value in node.items() if key != "title" or not isinstance(value, str)}
    if "default" in result and result["default"] is None:
        del result["default"]
        kinds = [kind for kind in result.get("anyOf", []) if kind != {"type": "null"}]
        if len(kinds) == 1:
            del result["anyOf"]
            result = {**kinds[0], **result}
    default, pattern = result.get("default"), str(result.get("pattern", ""))
    if isinstance(default, int) and result.get("type") == "string":
        result["default"] = _spelled(default, pattern)
    if isinstance(result.get("description"), str):
        result["description"] = re.sub(r"\s+", " ", result["description"]).strip()
    return result


def _spelled(value: int, pattern: str) -> str:
    for units, spell in ((TIME_UNITS, format_ns), (RATE_UNITS, format_rate)):
        if "|".join(re.escape(unit) for unit in units) in pattern:
            return spell(value)
    raise AssertionError(f"no spelling for a default of {value}")
