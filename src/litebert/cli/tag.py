"""litebert tag: the tag of every word."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from litebert.cli.loading import loaded, model_option, precision_option

if TYPE_CHECKING:
    from litebert.config import Precision


@click.command()
@click.argument("texts", nargs=-1, required=True)
@model_option
@precision_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one list a text.")
def tag(texts: tuple[str, ...], model: str | None, precision: Precision, as_json: bool) -> None:
    """Tag every word of each text; words end at white space.

    \b
    litebert tag "Ada Lovelace lived in London ." --model runs/names/model
    litebert tag "He left ." "She stayed ." --model runs/names/model --json
    """
    found = loaded(model, precision).tag(texts)
    if as_json:
        click.echo(json.dumps([[asdict(each) for each in words] for words in found]))
        return
    for words in found:
        click.echo("  ".join(f"{each.word}/{each.tag}" for each in words))
