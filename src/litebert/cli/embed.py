"""litebert embed: texts to vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from litebert.cli.bulk import Verb, bulk_options, run_verb
from litebert.cli.loading import Load, depth_option, model_options
from litebert.cli.texts import TEXT, TextCommand

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from litebert.api.bulk import BulkOptions
    from litebert.folder import Pooling
    from litebert.inference import Model


@click.command(cls=TextCommand)
@click.argument("texts", nargs=-1, required=True, type=TEXT)
@model_options
@depth_option
@click.option(
    "--pooling",
    type=click.Choice(["mean", "cls", "max"]),
    help="How tokens become one vector; by default the model's own pooling, or the mean.",
)
@click.option("--normalize/--no-normalize", default=None, help="Scale vectors to length 1.")
@bulk_options
def embed(
    texts: tuple[str, ...], load: Load, pooling: Pooling | None, normalize: bool | None, bulk: BulkOptions
) -> None:
    """Turn each text, or each row of a file, into a vector.

    A text longer than the model reads is cut at its end.

    \b
    litebert embed "a cat" "a dog"
    litebert embed "a cat" --model runs/mine --pooling cls --json
    litebert embed reviews.csv --column body --output vectors.jsonl
    """

    def answer(network: Model, rows: list[dict[str, str]]) -> list[NDArray[np.float32]]:
        given = [row["text"] for row in rows]
        return list(network.embed(given, pooling=pooling, normalize=normalize))

    def line(row: dict[str, str], vector: NDArray[np.float32]) -> str:
        numbers = " ".join(f"{value:.3f}" for value in vector[:6])
        return f"{row['text'][:40]:<40}  {len(vector)} numbers: {numbers} …"

    verb = Verb(answer, line, lambda vector: vector.tolist())
    run_verb(texts, verb, load, bulk)
