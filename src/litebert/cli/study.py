"""litebert study: the experiments of the paper as commands."""

from __future__ import annotations

import click

from litebert.cli.subcommands import Formats


@click.group(cls=Formats)
def study() -> None:
    """Repeat an experiment of the paper, and print its figures beside ours.

    \b
    litebert study layers --texts my-text.txt --html layers.html
    litebert study ablation sharing --corpus corpora/mine --output study
    """
