"""litebert similar: how similar two texts are."""

from __future__ import annotations

import click

from litebert.cli.loading import Load, model_options
from litebert.cli.output import show, show_json
from litebert.cli.texts import TEXT, TextCommand


@click.command(cls=TextCommand)
@click.argument("first", type=TEXT)
@click.argument("second", type=TEXT)
@model_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def similar(first: str, second: str, load: Load, as_json: bool) -> None:
    """Measure how similar two texts are: the cosine of their vectors.

    \b
    litebert similar "a cat" "a kitten"
    litebert similar "It rains." "It is wet." --model runs/mine/model --json
    """
    cosine = load().similar(first, second)
    if as_json:
        show_json({"cosine": float(cosine)})
    else:
        show(f"{float(cosine):.4f}")
