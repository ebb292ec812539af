"""litebert export: write a model in the formats of other programs."""

from __future__ import annotations

import click

from litebert.cli.subcommands import Formats


@click.group(cls=Formats)
def export() -> None:
    """Write a model in a format that other programs read.

    \b
    litebert export google runs/mine exported/model.ckpt-best
    litebert export onnx --help
    """
