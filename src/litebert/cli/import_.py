"""litebert import: convert the weights of other programs to a model folder."""

from __future__ import annotations

import click

from litebert.cli.subcommands import Formats


@click.group("import", cls=Formats)
def import_() -> None:
    """Convert the weights of other programs to a model folder.

    \b
    litebert import google albert_base_v2.tar.gz --output models/base
    litebert import huggingface --help
    """
