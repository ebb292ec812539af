"""litebert predict: answer a complete file or split, in the form that a leaderboard wants."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.loading import column_option
from litebert.cli.output import note, show, show_json


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="RUN...")
@click.option("--data", type=click.Path(path_type=Path), help="Folder, or file, of the examples.")
@click.option("--split", help="Split to answer; by default the task's test data.")
@click.option("--task", help="Name of the task, for a model folder without its run.")
@column_option
@click.option("--best", is_flag=True, help="The run's best evaluation instead of its last step.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@click.option("--force", is_flag=True, help="Replace answers that are there.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def predict(
    models: tuple[str, ...],
    data: Path | None,
    split: str | None,
    task: str | None,
    column: tuple[str, ...],
    best: bool,
    output: Path,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Answer every example of a split; several runs are averaged.

    \b
    litebert predict runs/mrpc --data glue --output submission
    litebert predict runs/seed-1 runs/seed-2 --data squad --split dev --output answers
    """
    from litebert.api.prediction import predict as answer

    found = answer(models, data=data, split=split, task=task, columns=column, best=best, quiet=quiet)
    found.write(output, force=force)
    rows = [
        {"file": str(output / name), "split": split, "examples": len(found.rows[split])}
        for name, split in found.split_of.items()
    ]
    if as_json:
        show_json(rows, indent=2)
        return
    for row in rows:
        show(f"{row['file']}  {row['examples']:,} answers ({row['split']})")
    if not quiet:
        note(f"precision: {found.precision}")
