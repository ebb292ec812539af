"""litebert order: which of two sentences comes first, or where a text breaks."""

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
@click.argument("first", type=TEXT)
@click.argument("second", type=TEXT, required=False)
@model_option
@precision_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def order(
    first: str, second: str | None, model: str | None, precision: Precision, as_json: bool
) -> None:
    """Say whether FIRST comes before SECOND; of one text, how well each sentence follows.

    \b
    litebert order "He opened the door." "Nobody was there."
    litebert order "He opened the door. Nobody was there. Then it rained." --json
    """
    network = loaded(model, precision)
    if second is None:
        joins = network.order(first).joins
        if as_json:
            show_json([asdict(join) for join in joins])
            return
        for join in joins:
            mark = "break" if join.probability < 0.5 else ""
            show(f"{join.probability:6.1%}  {mark:<5}  {join.second}")
        return
    answer = network.order(first, second)
    if as_json:
        show_json(asdict(answer))
        return
    verdict = "in order" if answer.is_in_order else "swapped"
    show(f"{verdict}  (in order: {answer.probability:.1%})")
