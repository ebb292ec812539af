"""litebert embed: texts to vectors."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.argument("texts", nargs=-1, required=True)
@click.option("--model", required=True, type=click.Path(path_type=Path), help="Model folder.")
@click.option("--pooling", type=click.Choice(["mean", "cls"]), default="mean", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one list a text.")
def embed(texts: tuple[str, ...], model: Path, pooling: str, as_json: bool) -> None:
    """Turn each text into a vector.

    \b
    litebert embed "a cat" "a dog" --model runs/mine/model
    litebert embed "a cat" --model runs/mine/model --pooling cls --json
    """
    from litebert.predict import Model

    vectors = Model.load(model).embed(texts, pooling="cls" if pooling == "cls" else "mean")
    if as_json:
        click.echo(json.dumps(vectors.tolist()))
        return
    for text, vector in zip(texts, vectors, strict=True):
        numbers = " ".join(f"{value:.3f}" for value in vector[:6])
        click.echo(f"{text[:40]:<40}  {len(vector)} numbers: {numbers} …")
