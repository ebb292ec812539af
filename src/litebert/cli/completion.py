"""litebert completion: verbs and options completed by the Tab key."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from litebert.cli.output import show

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes verbs and options in SHELL.

    \b
    litebert completion bash >> ~/.bashrc
    litebert completion fish > ~/.config/fish/completions/litebert.fish
    """
    from litebert.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    show(kind(cli, {}, "litebert", "_LITEBERT_COMPLETE").source())
