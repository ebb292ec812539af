"""litebert import google: convert a checkpoint of Google's code to a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from litebert.cli.output import show, show_json

if TYPE_CHECKING:
    from litebert.config import HeadKind
    from litebert.interop.google import GoogleImport


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@click.option("--config", type=click.Path(path_type=Path), help="albert_config.json, if elsewhere.")
@click.option("--tokenizer", type=click.Path(path_type=Path), help="*.model or vocab.txt.")
@click.option(
    "--head",
    type=click.Choice(["sequence-classification", "multiple-choice", "token-classification"]),
    help="What `output_weights` is for; only needed where it has one row.",
)
@click.option("--labels", metavar="A,B,C", help="Names of a classifier's labels, in order.")
@click.option("--heads", type=int, help="Attention heads, if the configuration is wrong.")
@click.option("--optimizer", is_flag=True, help="Keep the optimizer's moments and its steps.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def google(
    path: Path,
    output: Path,
    config: Path | None,
    tokenizer: Path | None,
    head: HeadKind | None,
    labels: str | None,
    heads: int | None,
    optimizer: bool,
    as_json: bool,
) -> None:
    """Convert a checkpoint of Google's code to a model folder.

    \b
    litebert import google albert_base_v2.tar.gz --output models/base
    litebert import google race/model.ckpt-best --head multiple-choice --output models/race

    PATH is a .tar.gz or .tar, a folder (of a checkpoint, or an unpacked TF-Hub module), or a prefix
    such as model.ckpt-best. albert_config.json and the vocabulary are looked for beside it.
    """
    from litebert.interop.google import import_checkpoint

    report = import_checkpoint(
        path,
        output,
        config=config,
        tokenizer=tokenizer,
        head=head,
        labels=labels.split(",") if labels else (),
        attention_heads=heads,
        has_optimizer=optimizer,
    )
    if as_json:
        show_json(report)
    else:
        show(_described(report))


def _described(report: GoogleImport) -> str:
    step = report.optimizer_step
    lines = [
        f"read   {report.checkpoint}: {report.num_variables} variables, "
        f"{report.num_parameters:,} parameters in {' and '.join(report.dtypes)}",
        f"heads  {', '.join(report.heads) or 'none'}",
        *([] if step is None else [f"steps  {step:,}, with the optimizer's moments"]),
        f"wrote  {report.folder}",
        *(f"note   {note}" for note in report.notes),
    ]
    return "\n".join(lines)
