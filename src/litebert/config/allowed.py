"""The base of settings, and descriptions of what each setting may be: its type and its range."""

from __future__ import annotations

from types import NoneType
from typing import Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails


class Section(BaseModel):
    """A group of settings: frozen, and unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


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
_BY_TYPE = {
    "missing": "this field",
    "extra_forbidden": "only known fields",
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "greater_than": "a number above {gt:,}",
    "greater_than_equal": "{ge:,} or more",
    "less_than": "a number below {lt:,}",
    "less_than_equal": "at most {le:,}",
    "string_too_long": "at most {max_length:,} characters",
    "string_too_short": "at least {min_length:,} characters",
    "too_long": "a list of at most {max_length:,}",
    "too_short": "a list of at least {min_length:,}",
    "literal_error": "{expected}",
    "string_pattern_mismatch": "text of the form {pattern}",
}
"""What was expected, for each of pydantic's types of errors."""


def allowed(field: FieldInfo) -> str:
    """Describe the values that a setting may have.

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
    field = _field(schema, first["loc"])
    return allowed(field) if field and first["type"] != "value_error" else wanted(first)


def wanted(error: ErrorDetails) -> str:
    """Return what a refused value should have been, without repeating the value.

    >>> wanted({"type": "less_than_equal", "loc": ("top",), "msg": "", "input": 99,
    ...     "ctx": {"le": 50}})
    'at most 50'
    """
    if error["type"] == "value_error":
        return error["msg"].removeprefix("Value error, ")
    words = _BY_TYPE.get(error["type"], "a value of another kind")
    return words.format(**error.get("ctx", {}))


def refused(error: ValidationError) -> str:
    """Say what is wrong with the first refused value of a record: `seed is not a whole number`."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"])) or "the content"
    if first["type"] == "missing":
        return f"{place} is missing"
    unknown = first["type"] == "extra_forbidden"
    return f"{place} is not known" if unknown else f"{place} is not {wanted(first)}"


def _field(schema: type[BaseModel], place: Place) -> FieldInfo | None:
    """Return the setting at a place; None if there is no setting of this name."""
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
