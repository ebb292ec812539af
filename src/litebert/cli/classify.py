"""litebert classify: the label, the labels or the score of texts."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from litebert.cli.bulk import Verb, bulk_options, run_verb
from litebert.cli.loading import Load, depth_option, model_options, patience_option
from litebert.cli.texts import TEXT, TextCommand
from litebert.errors import LitebertError

if TYPE_CHECKING:
    from litebert.answers import Classification
    from litebert.api.bulk import BulkOptions
    from litebert.inference import Model


@click.command(cls=TextCommand)
@click.argument("texts", nargs=-1, required=True, type=TEXT)
@click.option("--pair", "pairs", multiple=True, type=TEXT, help="Second text, one for each TEXT.")
@model_options
@depth_option
@patience_option
@bulk_options
def classify(
    texts: tuple[str, ...], pairs: tuple[str, ...], load: Load, patience: int | None, bulk: BulkOptions
) -> None:
    """Say which label each text has, or each row of a file.

    A text longer than the model reads is cut at its end.

    \b
    litebert classify "A fine film." "Dull." --model runs/sst2
    litebert classify "It rains." --pair "It is wet." --model runs/rte --json
    litebert classify reviews.csv --column body --model runs/sst2 --output answers.jsonl
    """
    from litebert.api.bulk import is_file

    if pairs and (len(pairs) != len(texts) or is_file(texts)):
        raise LitebertError(
            "LB-946",
            "texts and pairs do not match",
            received=f"{len(texts)} texts or files and {len(pairs)} --pair",
            expected="one --pair for each typed text; of a file, a column: --column second=NAME",
            next='litebert classify "It rains." --pair "It is wet." --model FOLDER',
        )

    def answer(network: Model, rows: list[dict[str, str]]) -> list[Classification]:
        seconds = [row["second"] for row in rows] if "second" in rows[0] else None
        return list(network.classify([row["text"] for row in rows], seconds, patience=patience))

    def line(row: dict[str, str], found: Classification) -> str:
        values = "  ".join(f"{name} {value:.4g}" for name, value in found.values.items())
        return f"{', '.join(found.labels) or 'no label':<16}  {row['text'][:50]:<50}  {values}"

    verb = Verb(answer, line, asdict, ("text", "second"))
    run_verb(texts, verb, load, bulk, pairs)
