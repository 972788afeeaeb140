"""From a document to a model, with every complaint as a `Fault` that a newcomer understands.

pydantic finds what is wrong; this module says it in the words of the file: the place, the value, what is expected.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rig.errors import Fault
from rig.plan import grammar
from rig.plan.base import Model
from rig.plan.yaml_positions import Document, Path, unique

T = TypeVar("T", bound=Model)


def build(model: type[T], document: Document) -> tuple[T | None, list[Fault], dict[Path, list[Fault]]]:
    """The model of `document.data`, or None; the faults; and the same by the path that they are about."""
    try:
        # Strict: "5" is no number and true is no 1. By alias only: each key has one spelling.
        built = model.model_validate(document.data, strict=True, by_alias=True, by_name=False, context={"file": True})
    except ValidationError as error:
        faults: dict[Path, list[Fault]] = {}
        for detail in error.errors(include_url=False):
            path, fault = _explain(model, document, detail)
            faults.setdefault(path, []).append(fault)
        return None, list(unique(itertools.chain(*faults.values()))), faults
    return built, [], {}


def shown(value: Any) -> str:
    """A value as a message quotes it."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value)
    return f"`{text if len(text) <= 60 else text[:57] + '...'}`"


def _explain(model: type[Model], document: Document, detail: ErrorDetails) -> tuple[Path, Fault]:
    kind, context = detail["type"], detail.get("ctx", {})
    path, exists = _in_document(document, detail["loc"])
    at_key = detail["loc"][-1:] == ("[key]",)
    if kind == "unknown_key":
        path = (*path, context["key"])
    value = detail["input"] if exists and not at_key else None
    expected = grammar.at(model, path)

    if kind in ("extra_forbidden", "unknown_key"):
        message, suggestion = f"unknown key `{path[-1]}`", _meant(grammar.at(model, path[:-1]), str(path[-1]))
        return path, document.fault(path, message, suggestion, at_key=True)
    if kind == "missing":
        parent = document.position(*path[:-1]) if len(path) > 1 else (1, 1)
        return path, Fault(document.file, *parent, f"key `{path[-1]}` is missing" + _inside(path))
    if at_key:
        message, suggestion = _bad_key(model, path, kind)
        return path, document.fault(path, message, suggestion, at_key=True)
    message, suggestion = _bad_value(kind, context, value, expected, detail["msg"])
    whole = kind == "value_error" and isinstance(value, Mapping)
    return path, document.fault(path, message, suggestion, at_key=whole and bool(path))


def _in_document(document: Document, loc: tuple[str | int, ...]) -> tuple[Path, bool]:
    """pydantic's location without what is not in the file (union branches, `percentiles`, `[key]`)."""
    data: Any = document.data
    path: list[str | int] = []
    for index, part in enumerate(loc):
        inside = (isinstance(data, Mapping) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        )
        if inside:
            data = data[part]
            path.append(part)
        elif part == "percentiles":
            continue
        elif isinstance(data, Mapping) and index == len(loc) - 1 and part != "[key]":
            return (*path, part), False  # a missing key
        else:
            break
    return tuple(path), True


def _inside(path: Path) -> str:
    return f" in `{'.'.join(str(part) for part in path[:-1])}`" if len(path) > 1 else ""


def _meant(kind: Any, key: str) -> str | None:
    if not grammar.is_model(kind):
        return None
    known = grammar.keys_of(kind)
    close = grammar.closest(key, known)
    if close is not None:
        return f"did you mean `{close}`?"
    for name in known:
        part = grammar.at(kind, (name,))
        if grammar.is_model(part) and (key in grammar.keys_of(part) or part.extra_key(key)):
            return f"it belongs inside `{name}:`"
    return f"known here: {', '.join(known)}"


def _bad_key(model: type[Model], path: Path, kind: str) -> tuple[str, str | None]:
    key, parent = str(path[-1]), grammar.at(model, path[:-1])
    if grammar.is_model(parent) and parent.extra_key("p50"):
        return (
            f"`{key}` is not a percentile: p and a number above 0 and below 100, at most three decimals",
            f"did you mean `{key.lower()}`?"
            if parent.extra_key(key.lower())
            else "such as p50, p99, p99.9; for every packet use `each`",
        )
    if kind == "literal_error":
        return f"unknown key `{key}`", grammar.did_you_mean(key, _literal_keys(parent))
    return _bad_name(key, kind)


def _literal_keys(kind: Any) -> list[str]:
    return grammar.choices_of(kind.__args__[0]) if hasattr(kind, "__args__") else []


def _bad_name(name: str, kind: str) -> tuple[str, str | None]:
    if kind == "string_too_long":
        return f"{shown(name)} is longer than 64 characters", None
    meant = "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in name.lower()).split())
    rule = f"{shown(name)} is not a name: lower-case letters, digits and hyphens, beginning with a letter"
    return rule, f"`{meant}` would do" if meant[:1].isalpha() and len(meant) <= 64 else None


_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
}


def _bad_value(
    kind: str, context: Mapping[str, Any], value: Any, expected: Any, message: str
) -> tuple[str, str | None]:
    if kind == "value_error":
        return str(context["error"]), None
    if kind == "model_type":
        keys = grammar.keys_of(expected) if grammar.is_model(expected) else []
        return f"{shown(value)} stands where a mapping is expected", f"keys: {', '.join(keys)}" if keys else None
    if kind in _TYPES:
        what = "text or a list of texts" if "list[str]" in str(expected) and "str |" in str(expected) else _TYPES[kind]
        quote = kind == "string_type" and isinstance(value, int | float)
        number = kind == "int_type" and isinstance(value, str) and value.strip().lstrip("-").isdecimal()
        said = f"the text {shown(value)}" if number else shown(value)
        return (
            f"{said} stands where {what} is expected",
            "remove the quotes" if number else "quote it" if quote else None,
        )
    if kind == "literal_error":
        choices = grammar.choices_of(expected)
        listed = ("one of " if len(choices) > 1 else "") + ", ".join(f"`{choice}`" for choice in choices)
        close = grammar.closest(str(value), choices) if len(choices) > 1 else None
        return f"{shown(value)} is not {listed}", f"did you mean `{close}`?" if close else None
    if kind == "not_an_endpoint":
        return message, grammar.did_you_mean(str(value), ("board", "jetson", "rig"))
    if kind in ("string_pattern_mismatch", "string_too_long") and isinstance(value, str):
        if context.get("pattern") in (None, r"^[a-z][a-z0-9-]*$"):
            return _bad_name(value, kind)
        return f"{shown(value)} does not fit the pattern {context.get('pattern')}", None
    bounds = {
        "greater_than_equal": ("below the smallest allowed value", "ge"),
        "less_than_equal": ("above the largest allowed value", "le"),
    }
    if kind in bounds:
        words, key = bounds[kind]
        return f"{shown(value)} is {words}, {context[key]}", None
    if kind == "too_short":
        return "an empty list stands where at least one item is expected", None
    return f"{shown(value)}: {message}", None
