"""`litebert help`, the schemas of what commands print with --json, and the completion of verbs in a shell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import click
from click.shell_completion import get_completion_class
from pydantic import JsonValue, TypeAdapter

from litebert.answers import Choice, Classification, Filling, Join, Order, Score, SpanFound, Tagged
from litebert.cli import FUNCTIONS, cli, function_of
from litebert.cli.command import show, show_json
from litebert.errors import no_such_name


def show_help(*verb: str, schema: Annotated[bool, "The JSON Schema of what VERB prints with --json."] = False) -> None:
    """Show the help of a verb, as VERB --help does.

    litebert help fill
    litebert help corpus build
    litebert help --schema fill
    """
    if schema:
        show_json(schema_of(" ".join(verb)), indent=2)
        return
    command: click.Command = cli
    context = click.Context(cli, info_name="litebert", **cli.context_settings)
    for word in verb:
        found = command.get_command(context, word) if isinstance(command, click.Group) else None
        if found is None:
            raise click.UsageError(f"no such verb: {' '.join(verb)}", context)
        command, context = found, click.Context(found, info_name=word, parent=context)
    show(command.get_help(context))


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print the script that completes verbs and options in SHELL.

    litebert completion bash >> ~/.bashrc
    litebert completion fish > ~/.config/fish/completions/litebert.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    show(kind(cli, {}, "litebert", "_LITEBERT_COMPLETE").source())


# Schemas

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
    "tag": list[list[Tagged]] | BulkRow,
}
"""What the verbs print with `--json`: for typed texts, or for each row of a file."""


def json_type(command: str) -> Any:
    """Return the type of what a command prints with `--json`: what its function returns, or what `as_json` does."""
    if command in OUTPUTS or command not in FUNCTIONS:
        return OUTPUTS.get(command)
    returned = get_type_hints(function_of(command), include_extras=True).get("return")
    if get_origin(returned) is Iterator:
        (returned,) = get_args(returned)
    each_of = get_args(returned) if get_origin(returned) in (Union, UnionType) else [returned]
    plain = []
    for each in each_of:
        if as_json := getattr(each, "as_json", None):
            found = get_type_hints(as_json)["return"]
            plain.append(get_args(each)[0] if isinstance(found, TypeVar) else found)  # of Study[Layers] it is Layers
        elif each not in (NoneType, str):
            plain.append(each)
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
