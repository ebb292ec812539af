"""litebert quantize: write an eight-bit copy of a model, for faster inference on a CPU."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.output import note, show, show_json
from litebert.errors import LitebertError

_MUCH = 0.1
"""Relative error of the hidden states above which answers may change."""


@click.command()
@click.argument("model")
@click.argument("output", type=click.Path(path_type=Path))
@click.option(
    "--texts",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Texts like those the model will read, one per line: .txt, .jsonl, .parquet, compressed.",
)
@click.option("--data", type=click.Path(path_type=Path), help="For a run: the folder or file of its task.")
@click.option("--task", help="Name of the task, for a model folder without its run.")
@click.option("--evaluate", is_flag=True, help="With --data: measure the task before and after.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def quantize(
    model: str,
    output: Path,
    texts: tuple[Path, ...],
    data: Path | None,
    task: str | None,
    evaluate: bool,
    as_json: bool,
) -> None:
    """Write an eight-bit copy of MODEL to the new folder OUTPUT.

    A few hundred texts determine the range of every activation. A run of litebert finetune is
    calibrated on training examples of its task.

    \b
    litebert quantize models/english-16m models/int8 --texts texts.txt
    litebert quantize runs/mrpc models/mrpc-int8 --data glue --evaluate
    litebert evaluate models/mrpc-int8 --task mrpc --data glue
    """
    if bool(texts) == (data is not None):
        raise LitebertError(
            "LB-536",
            "calibration needs texts, or the data of a run: one of the two",
            received=f"{len(texts)} files of texts and --data {data}",
            expected="--texts FILE, or --data FOLDER for a run of litebert finetune",
            next="litebert quantize --help",
        )
    if evaluate and data is None:
        raise LitebertError(
            "LB-537",
            "only a task can be measured",
            received="--evaluate without --data",
            expected="a run of litebert finetune, and --data with its examples",
            next="litebert quantize RUN OUTPUT --data FOLDER --evaluate",
        )
    from litebert.corpus.text import read_texts
    from litebert.inference.quantize import quantize_run, quantize_with_texts

    if data is not None:
        found = quantize_run(model, output, data, task=task, evaluate=evaluate)
    else:
        lines = (line for text in read_texts(texts) for line in text.splitlines() if line.strip())
        found = quantize_with_texts(model, output, lines)
    if as_json:
        show_json(found, indent=2)
        return
    show(
        f"{output}: {found.bytes_after:,} bytes, {found.bytes_before:,} before; "
        f"hidden states differ by {found.error:.1%} on held-out texts "
        f"(calibrated on {found.num_examples})"
    )
    if found.error > _MUCH:
        measured = "compare the measures below" if found.before else "measure it with --evaluate"
        note(
            f"warning hidden states differ by more than {_MUCH:.0%}: {measured} before you use "
            "this copy, or calibrate with more texts like those it will read"
        )
    for split, measures in found.before.items():
        for name, before in measures.items():
            show(f"{split:<16} {name:<24} {before:.4f} -> {found.after[split][name]:.4f}")
