"""litebert fill: the words that fit a blank."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from litebert.cli.bulk import Verb, bulk_options, run_verb
from litebert.cli.loading import Load, model_options
from litebert.cli.output import show, show_json
from litebert.cli.texts import TEXT, AtLeast, TextCommand

if TYPE_CHECKING:
    from litebert.answers import Filling, Results
    from litebert.api.bulk import BulkOptions
    from litebert.inference import Model


@click.command(cls=TextCommand)
@click.argument("texts", nargs=-1, required=True, type=TEXT)
@model_options
@click.option("--top", default=5, show_default=True, type=AtLeast(1), help="Answers to show.")
@bulk_options
def fill(texts: tuple[str, ...], load: Load, top: int, bulk: BulkOptions) -> None:
    """Fill every [MASK] in a text, in several, or in each row of a file.

    If a text is longer than the model reads, the part around the blanks is read.

    \b
    litebert fill "The cat sat on the [MASK]."
    litebert fill "[MASK] is the capital of [MASK]." --model runs/mine --json
    litebert fill blanks.txt --output filled.jsonl
    """
    from litebert.api.bulk import is_file

    if len(texts) == 1 and bulk.output is None and not is_file(texts):
        found = load().fill(texts[0], top=top)
        if bulk.as_json:
            show_json(found)
            return
        for filling in found:
            show(_line(filling))
        return

    def answer(network: Model, rows: list[dict[str, str]]) -> list[Results[Filling]]:
        return list(network.fill([row["text"] for row in rows], top=top))

    verb = Verb(
        answer, lambda _, found: "\n".join(map(_line, found)), lambda found: [asdict(filling) for filling in found]
    )
    run_verb(texts, verb, load, bulk)


def _line(filling: Filling) -> str:
    return f"{filling.probability:6.1%}  {filling.text}"
