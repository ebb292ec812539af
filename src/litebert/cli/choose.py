"""litebert choose: which of several choices answers a question."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from litebert.cli.bulk import Verb, bulk_options, run_rows
from litebert.cli.loading import Load, model_options
from litebert.cli.output import show, show_json
from litebert.cli.texts import TEXT, TextCommand
from litebert.errors import RequestError

if TYPE_CHECKING:
    from litebert.answers import Choice
    from litebert.api.bulk import BulkOptions
    from litebert.inference import Model

CHOICES = tuple(f"choice{number}" for number in range(1, 10))


@click.command(cls=TextCommand)
@click.argument("question", type=TEXT)
@click.argument("choices", nargs=-1, type=TEXT)
@click.option("--context", default="", help="The text that the question is about.")
@model_options
@bulk_options
def choose(question: str, choices: tuple[str, ...], context: str, load: Load, bulk: BulkOptions) -> None:
    """Choose the answer to QUESTION among CHOICES.

    A file has the columns question, choice1, choice2 ... and, optionally, context.

    \b
    litebert choose "The sky is _ ." blue green --context "A clear day." --model runs/race
    litebert choose "Who came?" Ada Nobody --context "Ada came." --model runs/race --json
    litebert choose questions.csv --column choice1=A --column choice2=B --model runs/race
    """
    from litebert.api.bulk import is_file

    if not choices and not is_file([question]):
        raise _no_choices()
    if choices and not bulk.output:
        _print(load().choose(question, choices, context=context), choices, bulk)
        return

    def answers(network: Model, rows: list[dict[str, str]]) -> list[Choice]:
        return [
            network.choose(row["question"], choices or _choices(row), context=row.get("context", context))
            for row in rows
        ]

    verb = Verb(
        answers,
        lambda row, found: f"{max(found.probabilities):6.1%}  {row['question']}  {found.text}",
        asdict,
        ("question", "context", *CHOICES),
    )
    run_rows([question], verb, load, bulk, [{"question": question}] if choices else [])


def _choices(row: dict[str, str]) -> list[str]:
    found = [row[name] for name in CHOICES if name in row]
    if not found:
        raise _no_choices()
    return found


def _no_choices() -> RequestError:
    return RequestError(
        "LB-912",
        "there is nothing to choose from",
        received="a question alone",
        expected="two choices or more; in a file, in the columns choice1, choice2 ...",
        next='litebert choose "Who came?" Ada Nobody --context "Ada came." --model FOLDER',
    )


def _print(chosen: Choice, choices: tuple[str, ...], bulk: BulkOptions) -> None:
    if bulk.as_json:
        show_json(chosen)
        return
    for choice, probability in zip(choices, chosen.probabilities, strict=True):
        mark = "*" if choice == chosen.text else " "
        show(f"{mark} {probability:6.1%}  {choice}")
