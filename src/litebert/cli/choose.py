"""litebert choose: which of several choices answers a question."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from litebert.cli.loading import loaded, model_option, precision_option

if TYPE_CHECKING:
    from litebert.config import Precision


@click.command()
@click.argument("question")
@click.argument("choices", nargs=-1, required=True)
@click.option("--context", default="", help="The text that the question is about.")
@model_option
@precision_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def choose(
    question: str,
    choices: tuple[str, ...],
    context: str,
    model: str | None,
    precision: Precision,
    as_json: bool,
) -> None:
    """Choose the answer to QUESTION among CHOICES.

    \b
    litebert choose "The sky is _ ." blue green --context "A clear day." --model runs/race/model
    litebert choose "Who came?" Ada Nobody --context "Ada came." --model runs/race/model --json
    """
    chosen = loaded(model, precision).choose(question, choices, context=context)
    if as_json:
        click.echo(json.dumps(asdict(chosen), ensure_ascii=False))
        return
    for choice, probability in zip(choices, chosen.probabilities, strict=True):
        mark = "*" if choice == chosen.text else " "
        click.echo(f"{mark} {probability:6.1%}  {choice}")
