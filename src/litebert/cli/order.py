"""litebert order: which of two sentences comes first."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from litebert.cli.loading import loaded, model_option, precision_option

if TYPE_CHECKING:
    from litebert.config import Precision


@click.command()
@click.argument("first")
@click.argument("second")
@model_option
@precision_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def order(first: str, second: str, model: str | None, precision: Precision, as_json: bool) -> None:
    """Say whether FIRST comes before SECOND in running text.

    \b
    litebert order "He opened the door." "Nobody was there." --model runs/mine/model
    litebert order "Then it rained." "The sky was dark." --model runs/mine/model --json
    """
    answer = loaded(model, precision).order(first, second)
    if as_json:
        click.echo(json.dumps(asdict(answer)))
        return
    verdict = "in order" if answer.is_in_order else "swapped"
    click.echo(f"{verdict}  (in order: {answer.probability:.1%})")
