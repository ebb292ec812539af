"""Types of what each command prints with `--json`; `litebert help --schema` shows the schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from pydantic import JsonValue, TypeAdapter

from litebert.answers import Choice, Classification, Filling, Join, Order, Score, SpanFound, Tagged
from litebert.cli import FUNCTIONS, function_of
from litebert.errors import no_such_name
from litebert.study.ablation import Ablation
from litebert.study.claims import Costs
from litebert.study.layers import Layers
from litebert.study.masked import Depths, LocalAttention

Vector: TypeAlias = list[float]


@dataclass(frozen=True)
class AnsweredRow:
    """A row of a file with its answer; one such object is printed per line."""

    row: int
    answer: JsonValue


@dataclass(frozen=True)
class SkippedRow:
    """A row of a file that has no answer, and why."""

    row: int
    error: str


@dataclass(frozen=True)
class Cosine:
    """How similar two texts are."""

    cosine: float


BulkRow: TypeAlias = AnsweredRow | SkippedRow

OUTPUTS: dict[str, Any] = {
    "answer": list[SpanFound] | BulkRow,
    "choose": Choice | BulkRow,
    "classify": list[Classification] | BulkRow,
    "embed": list[Vector] | BulkRow,
    "fill": list[Filling] | list[list[Filling]] | BulkRow,
    "order": Order | list[Join] | BulkRow,
    "score": list[Score] | BulkRow,
    "similar": Cosine | BulkRow,
    "study ablation": Ablation,
    "study attention": LocalAttention,
    "study cost": Costs,
    "study depth": list[Depths],
    "study layers": list[Layers],
    "tag": list[list[Tagged]] | BulkRow,
}
"""The commands that have `--json`, and what they print with it."""


def json_type(command: str) -> Any:
    """Return the type of what a command prints with `--json`: what its function returns, or what `as_json` does."""
    if command in OUTPUTS or command not in FUNCTIONS:
        return OUTPUTS.get(command)
    returned = get_type_hints(function_of(command), include_extras=True).get("return")
    if get_origin(returned) is Iterator:
        (returned,) = get_args(returned)
    each_of = get_args(returned) if get_origin(returned) in (Union, UnionType) else [returned]
    plain = [
        get_type_hints(as_json)["return"] if (as_json := getattr(each, "as_json", None)) else each
        for each in each_of
        if each not in (NoneType, str)
    ]
    return Union[tuple(plain)] if plain else None  # noqa: UP007


def schema_of(command: str) -> dict[str, JsonValue]:
    """Return the JSON Schema of what a command prints with `--json`."""
    found = json_type(command)
    if found is None:
        raise no_such_name(
            "LB-887", f"litebert {command} prints no JSON", command, OUTPUTS, next="litebert help --schema fill"
        )
    adapter: TypeAdapter[object] = TypeAdapter(found)
    return adapter.json_schema(mode="serialization")
