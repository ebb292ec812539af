"""litebert export: a model folder to what other programs read."""

from __future__ import annotations

import click

from litebert.cli.subcommands import Formats


@click.group(cls=Formats)
def export() -> None:
    """Write a model folder as other programs read it.

    \b
    litebert export google runs/mine exported/model.ckpt-best
    litebert export onnx --help
    """
