"""litebert fill: the words that fit a blank."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click


@click.command()
@click.argument("text")
@click.option("--model", required=True, type=click.Path(path_type=Path), help="Model folder.")
@click.option("--top", default=5, show_default=True, help="Answers to show.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def fill(text: str, model: Path, top: int, as_json: bool) -> None:
    """Fill every [MASK] in a sentence.

    \b
    litebert fill "The cat sat on the [MASK]." --model runs/mine/model
    litebert fill "[MASK] is the capital of [MASK]." --model runs/mine/model --json
    """
    from litebert.predict import Model

    fillings = Model.load(model).fill(text, top=top)
    if as_json:
        click.echo(json.dumps([asdict(filling) for filling in fillings], ensure_ascii=False))
        return
    for filling in fillings:
        click.echo(f"{filling.probability:6.1%}  {filling.text}")
