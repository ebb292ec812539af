"""litebert fill: the words that fit a blank."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from litebert.cli.loading import loaded, model_option, precision_option

if TYPE_CHECKING:
    from litebert.config import Precision


@click.command()
@click.argument("text")
@model_option
@precision_option
@click.option("--top", default=5, show_default=True, help="Answers to show.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def fill(text: str, model: str | None, precision: Precision, top: int, as_json: bool) -> None:
    """Fill every [MASK] in a sentence.

    \b
    litebert fill "The cat sat on the [MASK]." --model runs/mine/model
    litebert fill "[MASK] is the capital of [MASK]." --model runs/mine/model --json
    """
    fillings = loaded(model, precision).fill(text, top=top)
    if as_json:
        click.echo(json.dumps([asdict(filling) for filling in fillings], ensure_ascii=False))
        return
    for filling in fillings:
        click.echo(f"{filling.probability:6.1%}  {filling.text}")
