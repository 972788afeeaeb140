"""The docstrings below the attributes of a class, which no running program keeps."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise


def attribute_docs(kind: type) -> dict[str, str]:
    """Annotated attribute → the string literal that follows it in the source of `kind` itself."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    docs = {}
    for statement, following in pairwise(definition.body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if not isinstance(following, ast.Expr) or not isinstance(following.value, ast.Constant):
            continue
        if isinstance(following.value.value, str):
            docs[statement.target.id] = inspect.cleandoc(following.value.value)
    return docs
