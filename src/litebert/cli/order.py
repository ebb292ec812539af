"""litebert order: which of two sentences comes first, or where a text breaks."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from litebert.cli.bulk import Verb, bulk_options, run_rows
from litebert.cli.loading import Load, model_options
from litebert.cli.output import show, show_json
from litebert.cli.texts import TEXT, TextCommand

if TYPE_CHECKING:
    from litebert.answers import Coherence, Order
    from litebert.api.bulk import BulkOptions
    from litebert.inference import Model


@click.command(cls=TextCommand)
@click.argument("first", type=TEXT)
@click.argument("second", type=TEXT, required=False)
@model_options
@bulk_options
def order(first: str, second: str | None, load: Load, bulk: BulkOptions) -> None:
    """Say whether FIRST comes before SECOND, or how well each sentence of one text follows.

    A file has the columns first and second; without second, each text is read for its breaks.

    \b
    litebert order "He opened the door." "Nobody was there." --model runs/mine
    litebert order "He opened the door. Nobody was there. It rained." --model runs/mine --json
    litebert order pairs.csv --column first=before --column second=after --model runs/mine
    """
    from litebert.api.bulk import is_file

    typed = [] if second is None and is_file([first]) else [_row(first, second)]
    if bulk.output or not typed:
        verb = Verb(_answers, lambda _, found: _shown(found), _as_json, ("first", "second"))
        run_rows([first], verb, load, bulk, typed)
        return
    (found,) = _answers(load(), typed)
    if bulk.as_json:
        show_json(_as_json(found))
    else:
        show(_shown(found))


def _row(first: str, second: str | None) -> dict[str, str]:
    return {"first": first} if second is None else {"first": first, "second": second}


def _answers(network: Model, rows: list[dict[str, str]]) -> list[Order | Coherence]:
    return [
        network.order(row["first"], row["second"]) if "second" in row else network.order(row["first"]) for row in rows
    ]


def _as_json(found: Order | Coherence) -> dict[str, object] | list[dict[str, object]]:
    from litebert.answers import Order

    return asdict(found) if isinstance(found, Order) else [asdict(join) for join in found.joins]


def _shown(found: Order | Coherence) -> str:
    from litebert.answers import Order

    if isinstance(found, Order):
        verdict = "in order" if found.is_in_order else "swapped"
        return f"{verdict}  (in order: {found.probability:.1%})"
    return "\n".join(
        f"{join.probability:6.1%}  {'break' if join.probability < 0.5 else '':<5}  {join.second}"
        for join in found.joins
    )
