"""What a setting may be, in words: its kind and its range."""

from __future__ import annotations

from types import NoneType
from typing import Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

Place = tuple[str | int, ...]
_KINDS: dict[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list[str]: "a list of texts",
    tuple[str, ...]: 'a list of texts, ["…"]',
    tuple[float, ...]: "a list of numbers, [1, 2]",
}
_OTHERS = {
    "missing": "this field",
    "extra_forbidden": "only known fields",
    "string_type": "text",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a table",
}
"""For what is no setting: labels, places in a list."""


def allowed(field: FieldInfo) -> str:
    """Return what a setting may be.

    >>> from litebert.config import OptimConfig
    >>> allowed(OptimConfig.model_fields["learning_rate"])
    'a number above 0, at most 10'
    >>> allowed(OptimConfig.model_fields["schedule"])
    'official, linear or wsd'
    """
    kinds = [kind for kind in get_args(field.annotation) if kind is not NoneType]
    is_optional = len(kinds) < len(get_args(field.annotation))
    kind = kinds[0] if is_optional else field.annotation
    if get_origin(kind) is Literal:
        *names, last = map(str, get_args(kind))
        words = f"{', '.join(names)} or {last}" if names else last
    else:
        other = "a list" if get_origin(kind) in (list, tuple) else "a value of another kind"
        words = _KINDS.get(kind, other) + _range(field)
    return f"{words}, or null" if is_optional else words


def expected(error: ValidationError, schema: type[BaseModel]) -> str:
    """Return what the first refused value of a model should have been."""
    first = error.errors(include_url=False)[0]
    if first["type"] == "value_error":
        return first["msg"].removeprefix("Value error, ")
    field = _field(schema, first["loc"])
    if field:
        return allowed(field)
    names = first.get("ctx", {}).get("expected")  # of a choice within a list
    return str(names) if names else _OTHERS.get(first["type"], "a value of another kind")


def _field(schema: type[BaseModel], place: Place) -> FieldInfo | None:
    """Return the setting at a place; nothing for what lies within a setting, or has no name."""
    *sections, name = place or ("",)
    for section in sections:
        inner = schema.model_fields.get(str(section))
        if inner is None or not isinstance(inner.annotation, type):
            return None
        if not issubclass(inner.annotation, BaseModel):
            return inner
        schema = inner.annotation
    return schema.model_fields.get(str(name))


def _range(field: FieldInfo) -> str:
    lower = upper = ""
    for bound in field.metadata:
        if hasattr(bound, "ge"):
            lower = f"{bound.ge:,} or more"
        elif hasattr(bound, "gt"):
            lower = f"above {bound.gt:,}"
        elif hasattr(bound, "le"):
            upper = f"at most {bound.le:,}"
        elif hasattr(bound, "lt"):
            upper = f"below {bound.lt:,}"
    words = ", ".join(word for word in (lower, upper) if word)
    return f" {words}" if words.startswith(("above", "at", "below")) else f", {words}" * bool(words)
