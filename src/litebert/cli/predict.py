"""litebert predict: answers to a whole file or split, as a leaderboard wants them."""

from __future__ import annotations

import json
from pathlib import Path

import click

from litebert.errors import LitebertError


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="RUN...")
@click.option("--data", type=click.Path(path_type=Path), help="Folder, or file, of the examples.")
@click.option("--split", help="Which split; what the task has to answer by default.")
@click.option("--task", help="Name of the task, for a model folder without its run.")
@click.option("--best", is_flag=True, help="The run's best evaluation instead of its last step.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder to fill.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def predict(
    models: tuple[str, ...],
    data: Path | None,
    split: str | None,
    task: str | None,
    best: bool,
    output: Path,
    as_json: bool,
) -> None:
    """Answer every example of a split; several runs are averaged.

    \b
    litebert predict runs/mrpc --data glue --output submission
    litebert predict runs/seed-1 runs/seed-2 --data squad --split dev --output answers
    """
    from litebert.files import write_text
    from litebert.inference.finetuned import Finetuned, data_of, ensemble_answers

    opened = [Finetuned.open(path, kept="best" if best else "last", task=task) for path in models]
    dataset = opened[0].dataset
    folder = data or data_of(models[0])
    written = []
    for name in [split] if split else dataset.test_splits:
        examples = dataset.read(folder, name)
        answers = ensemble_answers(opened, examples)
        for file, content in dataset.submission(name, examples, answers).items():
            write_text(output / file, content)
            written.append({"file": str(output / file), "split": name, "examples": len(examples)})
    if not written:
        raise LitebertError(
            "LB-527",
            f"{dataset.name} has no split that waits for answers",
            received="no --split",
            expected=f"one of {', '.join(dataset.dev_splits)}",
            next=f"litebert predict ... --split {dataset.dev_splits[0]}",
        )
    if as_json:
        click.echo(json.dumps(written, indent=2))
        return
    for row in written:
        click.echo(f"{row['file']}  {row['examples']:,} answers ({row['split']})")
