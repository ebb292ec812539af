"""litebert embed: texts to vectors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from litebert.cli.loading import depth_option, loaded, model_option, precision_option

if TYPE_CHECKING:
    from litebert.config import Precision


@click.command()
@click.argument("texts", nargs=-1, required=True)
@model_option
@precision_option
@depth_option
@click.option("--pooling", type=click.Choice(["mean", "cls"]), default="mean", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one list a text.")
def embed(
    texts: tuple[str, ...],
    model: str,
    precision: Precision,
    depth: int | None,
    pooling: str,
    as_json: bool,
) -> None:
    """Turn each text into a vector.

    \b
    litebert embed "a cat" "a dog" --model runs/mine/model
    litebert embed "a cat" --model runs/mine/model --pooling cls --json
    """
    asked = loaded(model, precision, depth=depth)
    vectors = asked.embed(texts, pooling="cls" if pooling == "cls" else "mean")
    if as_json:
        click.echo(json.dumps(vectors.tolist()))
        return
    for text, vector in zip(texts, vectors, strict=True):
        numbers = " ".join(f"{value:.3f}" for value in vector[:6])
        click.echo(f"{text[:40]:<40}  {len(vector)} numbers: {numbers} …")
