"""litebert search: the texts nearest to a query."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.loading import Load, model_options
from litebert.cli.output import show, show_json
from litebert.cli.texts import TEXT, AtLeast, TextCommand


@click.command(cls=TextCommand)
@click.argument("query", type=TEXT)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--column", default="text", show_default=True, help="Text column of a table.")
@click.option("--top", default=5, show_default=True, type=AtLeast(1), help="Texts to show.")
@model_options
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def search(query: str, file: Path, column: str, top: int, load: Load, quiet: bool, as_json: bool) -> None:
    """Find the texts of FILE that are nearest to QUERY.

    \b
    litebert search "a stormy night" stories.txt
    litebert search "late delivery" reviews.csv --column body --top 3 --json
    """
    from litebert.api.bulk import read_texts_of
    from litebert.api.progress import Progress

    model, texts = load(), list(read_texts_of(file, column))
    with Progress("texts", "embedded", total=len(texts), is_quiet=quiet) as progress:
        index = model.index(texts, progress=progress.advance)
    found = index.search(query, top=top)
    if as_json:
        show_json(found)
        return
    for match in found:
        show(f"{match.score:7.4f}  {match.text[:100]}")
