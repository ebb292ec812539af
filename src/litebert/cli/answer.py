"""litebert answer: the span of a text that answers a question."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from litebert.cli.loading import loaded, model_option, precision_option
from litebert.cli.output import show, show_json
from litebert.cli.texts import TEXT, AtLeast, TextCommand

if TYPE_CHECKING:
    from litebert.config import Precision


@click.command(cls=TextCommand)
@click.argument("question", type=TEXT)
@click.option("--context", help="The text that has the answer.")
@click.option("--file", type=click.Path(path_type=Path), help="A file with that text instead.")
@model_option
@precision_option
@click.option("--top", default=1, show_default=True, type=AtLeast(1), help="Answers to show.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def answer(
    question: str,
    context: str | None,
    file: Path | None,
    model: str | None,
    precision: Precision,
    top: int,
    as_json: bool,
) -> None:
    """Answer QUESTION with a span of a text.

    \b
    litebert answer "Who left?" --context "Ada left at noon." --model runs/squad
    litebert answer "When?" --file report.txt --model runs/squad2 --top 3 --json
    """
    from litebert.errors import LitebertError
    from litebert.files import read_capped

    if (context is None) == (file is None):
        raise LitebertError(
            "LB-535",
            "a question needs a text to be answered from",
            received="both --context and --file" if context else "neither --context nor --file",
            expected="one of the two",
            next='litebert answer "Who left?" --context "Ada left at noon." --model FOLDER',
        )
    if file is not None:
        data = read_capped(file, 16 << 20, command=f"ls {file.parent}")
        context = data.decode("utf-8", "replace")
    found = loaded(model, precision).answer(question, str(context), top=top)
    if as_json:
        show_json([asdict(each) for each in found])
        return
    for each in found:
        show(f"{each.probability:6.1%}  {each.text or '(no answer in this text)'}")
