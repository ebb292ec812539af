"""litebert tag: the tag of every word."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from litebert.cli.bulk import Verb, bulk_options, run_verb
from litebert.cli.loading import Load, model_options
from litebert.cli.texts import TEXT, TextCommand

if TYPE_CHECKING:
    from litebert.answers import Results, Tagged
    from litebert.api.bulk import BulkOptions
    from litebert.inference import Model


@click.command(cls=TextCommand)
@click.argument("texts", nargs=-1, required=True, type=TEXT)
@model_options
@bulk_options
def tag(texts: tuple[str, ...], load: Load, bulk: BulkOptions) -> None:
    """Tag every word of each text, or of each row of a file; words end at white space.

    \b
    litebert tag "Ada Lovelace lived in London ." --model runs/names
    litebert tag "He left ." "She stayed ." --model runs/names --json
    """

    def answer(network: Model, rows: list[dict[str, str]]) -> list[Results[Tagged]]:
        return list(network.tag([row["text"] for row in rows]))

    verb = Verb(
        answer,
        lambda _, found: "  ".join(f"{each.word}/{each.tag}" for each in found),
        lambda found: [asdict(each) for each in found],
    )
    run_verb(texts, verb, load, bulk)
