"""Read JSON files and check their layout; errors name the place in the file."""

from __future__ import annotations

from itertools import islice
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from litebert.errors import DamagedError, LitebertError
from litebert.files import parse_json
from litebert.reading.source import CorruptStreamError, Source, read_pieces

Wanted = TypeVar("Wanted")
_EXPECTED = {
    "missing": "this field",
    "model_type": "an object, {...}",
    "dict_type": "an object, {...}",
    "list_type": "a list, [...]",
    "string_type": "a string",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
}


def read_layout(source: Source, layout: TypeAdapter[Wanted], *, what: str) -> Wanted:
    """Read a whole JSON file and check it; `what` names the layout in errors.

    Raises:
        DamagedError: LB-800, it is not JSON in UTF-8.
        LitebertError: LB-801, it is JSON with another layout.
    """
    value = _parsed(source)
    try:
        return layout.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole file"
        raise LitebertError(
            "LB-801",
            f"{source.name}{_question(value, first['loc'])} is not laid out as {what}: {place}",
            received=_received(first),
            expected=_EXPECTED.get(first["type"], "a value of another kind"),
            next="correct this place in the file, or choose the file that was meant",
        ) from error


def _parsed(source: Source) -> object:
    try:
        data = b"".join(read_pieces(source))
        return parse_json(data.decode("utf-8-sig"))
    except (CorruptStreamError, ValueError, RecursionError) as error:
        raise DamagedError(
            "LB-800",
            f"{source.name} is damaged",
            received=str(error),
            expected="a complete JSON file in UTF-8",
            next="get the file again",
        ) from error


def _question(value: object, place: tuple[str | int, ...]) -> str:
    """Name the innermost question on the way to a place in the file, if there is one."""
    name = ""
    for step in place:
        if isinstance(value, dict) and isinstance(value.get("id"), str) and "paragraphs" not in value:
            name = f", question {value['id']}"
        try:
            value = value[step]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return name
    return name


def _received(error: ErrorDetails) -> str:
    value = error["input"]
    if isinstance(value, dict):
        fields = ", ".join(map(str, islice(value, 5)))
        return f"an object with {fields}{', …' if len(value) > 5 else ''}"
    return f"a list of {len(value):,}" if isinstance(value, list) else repr(value)
