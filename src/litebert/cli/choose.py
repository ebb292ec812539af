"""litebert choose: which of several choices answers a question."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from litebert.cli.loading import loaded, model_option, precision_option
from litebert.cli.output import show, show_json
from litebert.cli.texts import TEXT, TextCommand

if TYPE_CHECKING:
    from litebert.config import Precision


@click.command(cls=TextCommand)
@click.argument("question", type=TEXT)
@click.argument("choices", nargs=-1, required=True, type=TEXT)
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
    litebert choose "The sky is _ ." blue green --context "A clear day." --model runs/race
    litebert choose "Who came?" Ada Nobody --context "Ada came." --model runs/race --json
    """
    chosen = loaded(model, precision).choose(question, choices, context=context)
    if as_json:
        show_json(asdict(chosen))
        return
    for choice, probability in zip(choices, chosen.probabilities, strict=True):
        mark = "*" if choice == chosen.text else " "
        show(f"{mark} {probability:6.1%}  {choice}")
