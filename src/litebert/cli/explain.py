"""litebert explain: how much each word adds to an answer."""

from __future__ import annotations

import click

from litebert.cli.loading import Load, model_options
from litebert.cli.output import show, show_json
from litebert.cli.texts import TEXT, TextCommand


@click.command(cls=TextCommand)
@click.argument("verb")
@click.argument("texts", nargs=-1, required=True, type=TEXT)
@click.option("--answer", type=TEXT, help="The answer to explain; else the model's own.")
@model_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(verb: str, texts: tuple[str, ...], answer: str | None, load: Load, as_json: bool) -> None:
    """Say how much each word of the texts adds to an answer.

    VERB is answer, choose, classify, fill, order or similar, and TEXTS are what it takes. The
    numbers add up to the score of the answer minus its score with every word masked (integrated
    gradients). It needs the extra [explain].

    \b
    litebert explain similar "A man plays a guitar." "Somebody makes music."
    litebert explain classify "A fine film." --model runs/reviews
    litebert explain fill "The capital of France is [MASK]." --answer paris --json
    """
    found = load().explain(verb, *texts, answer=answer)
    if as_json:
        show_json(found)
    else:
        show(repr(found))
