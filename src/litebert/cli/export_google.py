"""litebert export google: write a model folder as a checkpoint that Google's code can load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from litebert.cli.output import show, show_json

if TYPE_CHECKING:
    from litebert.interop.google import GoogleExport


@click.command()
@click.argument("model")
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--optimizer", is_flag=True, help="Include the optimizer's moments; MODEL is a checkpoint.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def google(model: str, output: Path, optimizer: bool, as_json: bool) -> None:
    """Write a checkpoint for Google's code.

    \b
    litebert export google runs/mine exported
    litebert export google runs/mine/checkpoints/step-000001000 exported/model.ckpt-1000 --optimizer

    OUTPUT is a folder, or a prefix such as exported/model.ckpt-best. albert_config.json, the
    vocabulary (30k-clean.model) and the file `checkpoint` are written beside it.
    """
    from litebert.hub import locate
    from litebert.interop.google import export_checkpoint

    report = export_checkpoint(locate(model), output, has_optimizer=optimizer)
    if as_json:
        show_json(report)
    else:
        show(_described(report))


def _described(report: GoogleExport) -> str:
    step = report.optimizer_step
    lines = [
        f"wrote  {report.prefix}: {report.num_variables} variables, {report.num_parameters:,} parameters in float32",
        *([] if step is None else [f"steps  {step:,}, with the optimizer's moments"]),
        f"files  {', '.join(report.files)}",
        *(f"note   {note}" for note in report.notes),
    ]
    return "\n".join(lines)
