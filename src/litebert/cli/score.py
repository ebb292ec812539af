"""litebert score: how likely texts are."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from litebert.cli.bulk import Verb, bulk_options, run_verb
from litebert.cli.loading import Load, model_options
from litebert.cli.texts import TEXT, TextCommand

if TYPE_CHECKING:
    from litebert.answers import Score
    from litebert.api.bulk import BulkOptions
    from litebert.inference import Model


@click.command(cls=TextCommand)
@click.argument("texts", nargs=-1, required=True, type=TEXT)
@model_options
@bulk_options
def score(texts: tuple[str, ...], load: Load, bulk: BulkOptions) -> None:
    """Say how likely each text is: its pseudo-log-likelihood, and its perplexity per piece.

    \b
    litebert score "The cat sat on the mat." "The mat sat on the cat."
    litebert score reviews.csv --column text=body --output scores.jsonl
    """

    def answer(network: Model, rows: list[dict[str, str]]) -> list[Score]:
        return list(network.score([row["text"] for row in rows]))

    def line(row: dict[str, str], found: Score) -> str:
        return f"{found.log_likelihood:9.2f}  {found.perplexity:9.2f}  {row['text'][:70]}"

    verb = Verb(answer, line, asdict)
    run_verb(texts, verb, load, bulk)
