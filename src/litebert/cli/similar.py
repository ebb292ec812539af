"""litebert similar: how similar two texts are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from litebert.cli.bulk import Verb, bulk_options, run_rows
from litebert.cli.loading import Load, model_options
from litebert.cli.output import show, show_json
from litebert.cli.texts import TEXT, TextCommand
from litebert.errors import RequestError

if TYPE_CHECKING:
    from litebert.api.bulk import BulkOptions
    from litebert.inference import Model


@click.command(cls=TextCommand)
@click.argument("first", type=TEXT)
@click.argument("second", type=TEXT, required=False)
@model_options
@bulk_options
def similar(first: str, second: str | None, load: Load, bulk: BulkOptions) -> None:
    """Measure how similar two texts are: the cosine of their vectors.

    A file of pairs has the columns first and second.

    \b
    litebert similar "a cat" "a kitten"
    litebert similar "It rains." "It is wet." --model runs/mine/model --json
    litebert similar pairs.csv --column first=before --column second=after --output similar.csv
    """
    from litebert.api.bulk import is_file

    typed = [] if second is None else [{"first": first, "second": second}]
    if not typed and not is_file([first]):
        raise _no_second()
    if bulk.output or not typed:
        verb = Verb(_cosines, lambda _, found: f"{found:.4f}", _as_json, ("first", "second"))
        run_rows([first], verb, load, bulk, typed)
        return
    (cosine,) = _cosines(load(), typed)
    if bulk.as_json:
        show_json(_as_json(cosine))
    else:
        show(f"{cosine:.4f}")


def _cosines(network: Model, rows: list[dict[str, str]]) -> list[float]:
    if any("second" not in row for row in rows):
        raise _no_second()
    sides = ([row[side] for row in rows] for side in ("first", "second"))
    first, second = (network.embed(texts, normalize=True) for texts in sides)
    cosines: list[float] = (first * second).sum(1).tolist()
    return cosines


def _as_json(cosine: float) -> dict[str, float]:
    return {"cosine": cosine}


def _no_second() -> RequestError:
    return RequestError(
        "LB-947",
        "there is nothing to compare the text with",
        received="one text",
        expected="a second text, or a file with the columns first and second",
        next='litebert similar "a cat" "a kitten"',
    )
