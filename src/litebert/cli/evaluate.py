"""litebert evaluate: measures of a fine-tuned model, of an ensemble, or of a prediction file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from litebert.cli.loading import depth_option, patience_option
from litebert.errors import LitebertError

if TYPE_CHECKING:
    from litebert.inference.finetuned import Kept


@click.command()
@click.argument("models", nargs=-1, metavar="[RUN]...")
@click.option("--data", type=click.Path(path_type=Path), help="Folder, or file, of the examples.")
@click.option("--split", help="dev by default; whichever the task has.")
@click.option("--task", help="Name of the task, for a model folder without its run.")
@click.option("--best", is_flag=True, help="The run's best evaluation instead of its last step.")
@click.option("--clean", is_flag=True, help="SQuAD 2.0: tune the threshold on part of train.")
@depth_option
@patience_option
@click.option("--predictions", type=click.Path(path_type=Path), help="Score this file instead.")
@click.option("--null-odds", type=click.Path(path_type=Path), help="SQuAD 2.0: null_odds.json.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def evaluate(
    models: tuple[str, ...],
    data: Path | None,
    split: str | None,
    task: str | None,
    best: bool,
    clean: bool,
    depth: int | None,
    patience: int | None,
    predictions: Path | None,
    null_odds: Path | None,
    as_json: bool,
) -> None:
    """Measure fine-tuned models; several runs are averaged.

    \b
    litebert evaluate runs/mrpc --data glue
    litebert evaluate runs/mrpc --data glue --patience 3
    litebert evaluate --predictions predictions.json --data dev-v1.1.json
    """
    if (predictions is None) == (not models):
        raise LitebertError(
            "LB-525",
            "evaluation needs runs or a prediction file, one of the two",
            received=f"{len(models)} runs and --predictions {predictions}",
            expected="litebert evaluate RUN..., or litebert evaluate --predictions FILE",
            next="litebert evaluate --help",
        )
    if predictions is not None:
        _print({"predictions": _scored(predictions, data, null_odds)}, as_json=as_json)
        return
    from litebert.inference.finetuned import (
        Finetuned,
        data_of,
        measured,
        with_clean_threshold,
        with_patience,
    )

    kept: Kept = "best" if best else "last"
    opened = [Finetuned.open(path, kept=kept, task=task, depth=depth) for path in models]
    dataset = opened[0].dataset
    splits = [split] if split else list(dataset.dev_splits)
    folder = data or data_of(models[0])
    if clean:
        opened = with_clean_threshold(opened, folder)
    if patience is not None:
        opened = with_patience(opened, patience)
    _print({name: measured(opened, folder, name)[0] for name in splits}, as_json=as_json)


def _scored(predictions: Path, data: Path | None, null_odds: Path | None) -> dict[str, float]:
    from litebert.tasks.named.squad_score import score_predictions

    if data is None:
        raise LitebertError(
            "LB-526",
            "a prediction file is scored against a data set",
            received="no --data",
            expected="--data dev-v1.1.json, or another file with the answers",
            next="litebert evaluate --predictions FILE --data dev-v1.1.json",
        )
    return score_predictions(data, predictions, null_odds=null_odds)


def _print(tables: dict[str, dict[str, float]], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(tables, indent=2))
        return
    for split, measures in tables.items():
        for name, value in measures.items():
            click.echo(f"{split:<16} {name:<24} {value:.4f}")
