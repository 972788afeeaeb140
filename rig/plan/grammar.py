"""Walking the grammar by path: which keys stand where, and what a misspelt one may have meant."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from rig.plan.base import Model


def keys_of(model: type[Model]) -> list[str]:
    """The keys of a part as a file spells them."""
    hidden = {"percentiles"} if model.extra_key("p50") else set()
    return [field.alias or name for name, field in model.model_fields.items() if name not in hidden]


def child(kind: Any, key: str | int) -> Any:
    """The type of what stands at `key` in a value of type `kind`; None where the grammar has no such place."""
    kind = core(kind)
    if isinstance(kind, type) and issubclass(kind, Model):
        for name, field in kind.model_fields.items():
            if key == (field.alias or name) and key in keys_of(kind):
                return field.annotation
        return kind.extra_key(str(key))
    arguments = get_args(kind)
    if get_origin(kind) is dict and isinstance(key, str):
        return arguments[1]
    if get_origin(kind) is list and isinstance(key, int):
        return arguments[0]
    return None


def at(kind: Any, path: Sequence[str | int]) -> Any:
    """The type of what stands at `path`; None where the grammar has no such place."""
    for key in path:
        kind = child(kind, key)
        if kind is None:
            return None
    return core(kind)


def core(kind: Any) -> Any:
    """`kind` without Annotated and None."""
    while True:
        origin = get_origin(kind)
        if origin is Annotated:
            kind = get_args(kind)[0]
        elif origin in (Union, types.UnionType):
            rest = [argument for argument in get_args(kind) if argument is not type(None)]
            if len(rest) != 1:
                return kind
            kind = rest[0]
        else:
            return kind


def is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Model)


def choices_of(kind: Any) -> list[str]:
    """The values of a Literal, else nothing."""
    kind = core(kind)
    return [str(value) for value in get_args(kind)] if get_origin(kind) is Literal else []


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word that `word` most likely meant, or None. Case, `-` and `_` are not told apart."""
    plain: dict[str, str] = {}
    for name in known:
        plain.setdefault(_plain(name), name)
    found = difflib.get_close_matches(_plain(word)[:100], plain, n=1, cutoff=cutoff)
    return plain[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str], kind: str = "known here") -> str | None:
    """A suggestion for an unknown word: the closest known one, else all of them."""
    names = list(known)
    meant = closest(word, names)
    if meant is not None:
        return f"did you mean `{meant}`?"
    return f"{kind}: {', '.join(names)}" if names else None


def _plain(word: str) -> str:
    return word.casefold().replace("_", "-")
