"""`litebert help`, the schemas of what commands print with --json, and the completion of verbs in a shell."""

from __future__ import annotations

from typing import Annotated, Literal

import click
from click.shell_completion import get_completion_class

from litebert.cli import cli
from litebert.cli.output import show, show_json


def show_help(*verb: str, schema: Annotated[bool, "The JSON Schema of what VERB prints with --json."] = False) -> None:
    """Show the help of a verb, as VERB --help does.

    litebert help fill
    litebert help corpus build
    litebert help --schema fill
    """
    if schema:
        from litebert.cli.json_types import schema_of

        show_json(schema_of(" ".join(verb)), indent=2)
        return
    command: click.Command = cli
    context = click.Context(cli, info_name="litebert")
    for word in verb:
        found = command.get_command(context, word) if isinstance(command, click.Group) else None
        if found is None:
            raise click.UsageError(f"no such verb: {' '.join(verb)}", context)
        command, context = found, click.Context(found, info_name=word, parent=context)
    show(command.get_help(context))


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print the script that completes verbs and options in SHELL.

    litebert completion bash >> ~/.bashrc
    litebert completion fish > ~/.config/fish/completions/litebert.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    show(kind(cli, {}, "litebert", "_LITEBERT_COMPLETE").source())
