"""The matrix of a plan: dotted paths to places in the plan, and the points that their values span.

A point's name is made of the last part of each path and the value: `variant-copy`, `variant-copy+every-5ms`. It serves
as pytest id, as word of `-k` (which refuses `=`) and in folder names, so it holds only letters, digits and `._+-`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_origin

from rig.errors import Fault
from rig.plan import grammar
from rig.plan.explain import shown
from rig.plan.model import Plan
from rig.plan.yaml_positions import Document, Path

MAX_POINTS = 256


@dataclass(frozen=True)
class Axis:
    """One line of the matrix: its key as written, the place it sets, how names call it, its values' labels."""

    key: str
    path: Path
    label: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Placed:
    """A point before validation: the plan's document with the point's values in their places, `matrix` taken out."""

    name: str
    overrides: dict[str, Any]
    document: Document


def read_axes(document: Document) -> tuple[list[Axis], list[Fault]]:
    """The axes of `document`, whose `matrix` has the right types."""
    matrix: dict[str, list[Any]] = document.data.get("matrix", {})
    faults: list[Fault] = []
    places: dict[str, Path] = {}
    points = math.prod(len(values) for values in matrix.values())
    if points > MAX_POINTS:
        message = f"the matrix spans {points} points; the most that one plan may have is {MAX_POINTS}"
        return [], [document.fault(("matrix",), message, at_key=True)]
    for key, values in matrix.items():
        path, problem = _resolve(key, document.data)
        if problem is not None:
            faults.append(document.fault(("matrix", key), *problem, at_key=True))
            continue
        for other_key, other in places.items():
            shorter = min(len(path), len(other))
            if path[:shorter] == other[:shorter]:
                message = f"matrix path `{key}` sets the same place as `{other_key}`"
                faults.append(document.fault(("matrix", key), message, at_key=True))
        for index, value in enumerate(values):
            if value in values[:index]:
                faults.append(document.fault(("matrix", key, index), f"{shown(value)} stands here twice"))
        places[key] = path
    if faults:
        return [], faults
    short = [str(path[-1]) for path in places.values()]
    return [
        Axis(key, path, _clean(str(path[-1]) if short.count(str(path[-1])) == 1 else key), _labels(matrix[key]))
        for key, path in places.items()
    ], []


def place(document: Document, axes: list[Axis]) -> list[Placed]:
    """Every combination, the last axis changing fastest; one unnamed point without a matrix."""
    placed = []
    for choice in itertools.product(*(range(len(axis.values)) for axis in axes)):
        here = document
        for axis, index in zip(axes, choice, strict=True):
            here = here.with_value(axis.path, ("matrix", axis.key, index))
        data = {key: value for key, value in here.data.items() if key != "matrix"}
        name = "+".join(f"{axis.label}-{axis.values[index]}" for axis, index in zip(axes, choice, strict=True))
        overrides = {axis.key: document.data["matrix"][axis.key][i] for axis, i in zip(axes, choice, strict=True)}
        placed.append(Placed(name, overrides, replace(here, data=data)))
    return placed


_UNSETTABLE = ("plan", "matrix", "repeat", "comparisons")


def _resolve(dotted: str, data: Any) -> tuple[Path, tuple[str, str | None] | None]:
    """The place that `dotted` names, or a message and suggestion. Keys may hold dots themselves (`udp.dstport`)."""
    path, rest, known = _walk(Plan, data, dotted, ())
    if rest or not path:
        return (), (f"matrix path `{dotted}` leads nowhere: no `{rest}`", grammar.did_you_mean(rest, known))
    if path[0] in _UNSETTABLE:
        return (), (f"`{path[0]}` cannot differ between the points of one plan", None)
    return path, None


def _walk(kind: Any, data: Any, rest: str, path: Path) -> tuple[Path, str, list[str]]:
    """(path, what could not be resolved, what is known there); of several ways to split, the one that gets furthest."""
    entries = _entries(kind, data)
    best: tuple[Path, str, list[str]] = (path, rest, list(entries))
    percentile = re.match(r"p[0-9]+(\.[0-9]+)?", rest)
    names = {*entries, *((percentile[0], percentile[0].split(".")[0]) if percentile else ())}
    for name in sorted(names):
        if rest != name and not rest.startswith(name + "."):
            continue
        key, below = entries.get(name, (name, None))
        inner = grammar.child(kind, key)
        if inner is None:
            continue
        if rest == name:
            return (*path, key), "", []
        found = _walk(inner, below, rest[len(name) + 1 :], (*path, key))
        if not found[1]:
            return found
        if len(found[1]) < len(best[1]):
            best = found
    return best


def _entries(kind: Any, data: Any) -> dict[str, tuple[str | int, Any]]:
    """What a path may name next: as text, as key, and what stands there now (None: nothing yet)."""
    kind = grammar.core(kind)
    there = data if isinstance(data, Mapping) else {}
    if grammar.is_model(kind):
        return {key: (key, there.get(key)) for key in grammar.keys_of(kind)}
    if get_origin(kind) is dict:
        return {key: (key, value) for key, value in there.items()}
    if get_origin(kind) is list and isinstance(data, list):
        return {str(index): (index, value) for index, value in enumerate(data)}
    return {}


def _labels(values: list[Any]) -> tuple[str, ...]:
    labels = [
        str(index) if isinstance(value, list | dict) else _clean(_text(value)) for index, value in enumerate(values)
    ]
    return tuple(
        label if label and labels.count(label) == 1 else f"{label}-{index}".lstrip("-")
        for index, label in enumerate(labels)
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _clean(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text.replace(" ", "").replace("%", "pct")).strip("-")[:40]
