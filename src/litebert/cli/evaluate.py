"""litebert evaluate: measures of a model, of an ensemble, or of a prediction file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from litebert.cli.loading import column_option, depth_option, patience_option
from litebert.cli.output import note, show, show_json
from litebert.errors import LitebertError

if TYPE_CHECKING:
    from litebert.api.evaluation import Evaluation
    from litebert.config import Precision


@click.command()
@click.argument("models", nargs=-1, metavar="[RUN]...")
@click.option("--data", type=click.Path(path_type=Path), help="Folder or file of examples, or a text file.")
@click.option(
    "--on",
    "zero_shot",
    type=click.Choice(["blimp", "sts", "retrieval"]),
    help="What a pretrained model knows without fine-tuning.",
)
@click.option("--limit", type=click.IntRange(1), help="With --on: most rows to use (BLiMP: of each paradigm).")
@click.option("--split", help="Any split of the task; dev by default.")
@click.option("--task", help="Name of the task, for a model folder without its run.")
@column_option
@click.option("--best", is_flag=True, help="The run's best evaluation instead of its last step.")
@click.option("--clean", is_flag=True, help="SQuAD 2.0: tune the threshold on part of train.")
@click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16"]),
    help="Precision of activations; by default that of the training.",
)
@depth_option
@patience_option
@click.option("--predictions", type=click.Path(path_type=Path), help="Score this file instead of a model.")
@click.option("--null-odds", type=click.Path(path_type=Path), help="SQuAD 2.0: the file null_odds.json.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def evaluate(
    models: tuple[str, ...],
    data: Path | None,
    zero_shot: str | None,
    limit: int | None,
    split: str | None,
    task: str | None,
    column: tuple[str, ...],
    best: bool,
    clean: bool,
    precision: Precision | None,
    depth: int | None,
    patience: int | None,
    predictions: Path | None,
    null_odds: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure a model, by its run or its folder; several fine-tuned runs are averaged.

    A pretrained model is measured by masked LM and sentence order.

    \b
    litebert evaluate runs/mrpc --data glue
    litebert evaluate runs/mine --data my-text.txt
    litebert evaluate models/mine --on sts --data STS-B/dev.tsv
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
    from litebert.api import evaluation as api

    if predictions is not None:
        found = api.evaluate_predictions(predictions, data, null_odds=null_odds)
    elif zero_shot is not None:
        found = api.evaluate_zero_shot(models, on=zero_shot, data=data, limit=limit, precision=precision)
    else:
        found = api.evaluate(
            models,
            data=data,
            split=split,
            task=task,
            columns=column,
            best=best,
            clean=clean,
            precision=precision,
            depth=depth,
            patience=patience,
            quiet=quiet,
        )
    _show(found, quiet=quiet, as_json=as_json)


def _show(found: Evaluation, *, quiet: bool, as_json: bool) -> None:
    if found.precision and not quiet:
        note(f"precision: {found.precision}")
    if as_json:
        show_json(found.measures, indent=2)
    else:
        show(str(found))
    for doubt in found.doubts:
        note(f"warning {doubt}")
