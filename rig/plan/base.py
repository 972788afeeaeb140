"""The base of all parts of a plan: frozen, strict about keys, and spelled in JSON as a file would."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=64)]


class Model(BaseModel):
    """Base of all plan parts: unknown keys are errors, values cannot change after loading."""

    # Deferred: only whole files are validated, so their parts need no validators of their own.
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)

    @classmethod
    def extra_key(cls, key: str) -> type[Model] | None:
        """What a key that is no field holds, for the models that admit such keys; None where it is unknown."""
        del key
        return None

    @model_serializer(mode="wrap")
    def _spell(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        if info.mode != "json":
            return data
        # None is written only where it says something other than leaving the key out.
        fields = type(self).model_fields
        silent = {key for name, f in fields.items() if f.default is None for key in (name, f.alias)}
        return {key: value for key, value in data.items() if value is not None or key not in silent}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        # pydantic's own `use_attribute_docstrings` parses the sources whenever a model is imported.
        from rig.plan.attribute_docs import attribute_docs

        schema = handler.resolve_ref_schema(handler(core))
        for name, text in attribute_docs(cls).items():
            schema["properties"][cls.model_fields[name].alias or name]["description"] = text
        return schema


M = TypeVar("M", bound=Model)


def exactly_one(part: M, names: Iterable[str], what: str) -> M:
    """`part`, or ValueError when not exactly one of `names` is given in it."""
    there = [name for name in names if getattr(part, name) is not None]
    if len(there) != 1:
        here = "none is there" if not there else "here are " + " and ".join(f"`{name}`" for name in there)
        raise ValueError(f"{what} takes exactly one of {', '.join(names)}; {here}")
    return part
