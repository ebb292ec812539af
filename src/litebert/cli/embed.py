"""litebert embed: texts to vectors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from litebert.cli.loading import depth_option, loaded, model_option, precision_option

if TYPE_CHECKING:
    from litebert.config import Precision
    from litebert.folder import Pooling


@click.command()
@click.argument("texts", nargs=-1, required=True)
@model_option
@precision_option
@depth_option
@click.option(
    "--pooling",
    type=click.Choice(["mean", "cls", "max"]),
    help="Default: what sentence-transformers wrote beside the model, or mean.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one list a text.")
def embed(
    texts: tuple[str, ...],
    model: str | None,
    precision: Precision,
    depth: int | None,
    pooling: Pooling | None,
    as_json: bool,
) -> None:
    """Turn each text into a vector.

    \b
    litebert embed "a cat" "a dog" --model runs/mine/model
    litebert embed "a cat" --model runs/mine/model --pooling cls --json
    """
    asked = loaded(model, precision, depth=depth)
    vectors = asked.embed(texts, pooling=pooling)
    if as_json:
        click.echo(json.dumps(vectors.tolist()))
        return
    for text, vector in zip(texts, vectors, strict=True):
        numbers = " ".join(f"{value:.3f}" for value in vector[:6])
        click.echo(f"{text[:40]:<40}  {len(vector)} numbers: {numbers} …")
