"""litebert study depth: how well a model predicts at every depth."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.ending import show_study
from litebert.cli.output import Format, with_formats, with_outputs


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--texts", required=True, type=click.Path(path_type=Path), help="One text per line.")
@click.option("--longest", default=128, show_default=True, type=click.IntRange(8), help="Pieces.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@with_outputs
@with_formats
def depth(
    models: tuple[str, ...],
    texts: Path,
    longest: int,
    rounds: int,
    output: Path | None,
    html: Path | None,
    written_as: Format,
) -> None:
    """Measure the masked-LM head of models after each of their steps, and the time it takes.

    A model trained with elastic.least_depth serves at any depth; compare it with one that was not.

    \b
    litebert study depth --texts my-text.txt
    litebert study depth runs/elastic runs/fixed --texts my-text.txt --json
    """
    from litebert.api.study import study_texts, write_study
    from litebert.api.study_parts import depths_part
    from litebert.inference import Model
    from litebert.study.depth import measure_depths

    lines = study_texts(texts)
    found = [measure_depths(Model.load(path), lines, longest=longest, rounds=rounds) for path in models or (None,)]
    part = depths_part(found)
    metrics = {f"depth-{Path(each.source).name}": each for each in found}
    written = write_study([part], metrics=metrics, output=output, html=html)
    show_study(part, found, written, written_as)
