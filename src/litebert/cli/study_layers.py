"""litebert study layers: Figure 1 of the paper, continued beyond the trained depth."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.ending import show_study
from litebert.cli.output import Format, note, with_formats, with_outputs


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--texts", required=True, type=click.Path(path_type=Path), help="A file with one text per line.")
@click.option("--limit", default=32, show_default=True, type=click.IntRange(1), help="Texts read.")
@click.option("--depths", default="24,48,96", show_default=True, help="Depths to report.")
@with_outputs
@with_formats
def layers(
    models: tuple[str, ...],
    texts: Path,
    limit: int,
    depths: str,
    output: Path | None,
    html: Path | None,
    written_as: Format,
) -> None:
    """Compare the input and the output of every step, and apply the last step further.

    Reports at each depth whether the states converge (a step moves them by less than 1 %),
    oscillate (they return within 8 steps), close in (steps shrink by half), or wander. Without a
    model, the one that comes with the package is measured.

    \b
    litebert study layers --texts my-text.txt
    litebert study layers runs/mine models/bert --texts my-text.txt --depths 24,48,96 --json
    """
    from litebert.api.study import study_layers, write_study
    from litebert.api.study_parts import layers_part

    numbers = [int(word) if word.strip().isdigit() else 0 for word in depths.split(",")]
    found = study_layers(models or (None,), texts, depths=numbers, most_texts=limit, say=note)
    part = layers_part(found)
    names = [f"layers-{Path(each.source).name}" for each in found]
    metrics = dict(zip(names, found, strict=True))
    written = write_study([part], metrics=metrics, output=output, html=html)
    show_study(part, found, written, written_as)
