"""litebert answer: the span of a text that answers a question."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from litebert.cli.bulk import Verb, bulk_options, run_rows
from litebert.cli.loading import Load, model_options
from litebert.cli.output import show, show_json
from litebert.cli.texts import TEXT, AtLeast, TextCommand

if TYPE_CHECKING:
    from litebert.answers import Results, SpanFound
    from litebert.api.bulk import BulkOptions
    from litebert.inference import Model


@click.command(cls=TextCommand)
@click.argument("question", type=TEXT)
@click.option("--context", help="The text that contains the answer.")
@click.option("--file", type=click.Path(path_type=Path), help="A file that contains this text.")
@model_options
@click.option("--top", default=1, show_default=True, type=AtLeast(1), help="Answers to show.")
@bulk_options
def answer(question: str, context: str | None, file: Path | None, load: Load, top: int, bulk: BulkOptions) -> None:
    """Answer QUESTION with a span of a text.

    A file of questions has the columns question and context; --context or --file gives one text
    for all questions without a context of their own.

    \b
    litebert answer "Who left?" --context "Ada left at noon." --model runs/squad
    litebert answer "When?" --file report.txt --model runs/squad2 --top 3 --json
    litebert answer questions.csv --file report.txt --model runs/squad --output answers.jsonl
    """
    from litebert.api.bulk import is_file
    from litebert.files import read_capped

    has_rows = is_file([question])
    if (context is not None and file is not None) or not (context or file or has_rows):
        raise _no_text(context)
    if file is not None:
        data = read_capped(file, 16 << 20, command=f"ls {file.parent}")
        context = data.decode("utf-8", "replace")
    if not has_rows and not bulk.output:
        _print(load().answer(question, str(context), top=top), bulk)
        return

    def answers(network: Model, rows: list[dict[str, str]]) -> list[Results[SpanFound]]:
        return [network.answer(row["question"], _context(row, context), top=top) for row in rows]

    verb = Verb(
        answers,
        lambda row, found: f"{row['question']}\n{_shown(found)}",
        lambda found: [asdict(each) for each in found],
        ("question", "context"),
    )
    run_rows([question], verb, load, bulk, [] if has_rows else [{"question": question}])


def _context(row: dict[str, str], given: str | None) -> str:
    """Return the row's own context, or the one given for all rows.

    Raises:
        LitebertError: LB-535, there is neither.
    """
    found = row.get("context", given)
    if found is None:
        raise _no_text(None)
    return found


def _no_text(context: str | None) -> Exception:
    from litebert.errors import LitebertError

    return LitebertError(
        "LB-535",
        "a question needs one text that contains its answer",
        received="both --context and --file" if context else "neither --context nor --file",
        expected="one of the two, or a file of questions with a column context",
        next='litebert answer "Who left?" --context "Ada left at noon." --model FOLDER',
    )


def _print(found: Results[SpanFound], bulk: BulkOptions) -> None:
    if bulk.as_json:
        show_json(found)
    else:
        show(_shown(found))


def _shown(found: Results[SpanFound]) -> str:
    return "\n".join(f"{each.probability:6.1%}  {each.text or '(no answer in this text)'}" for each in found)
