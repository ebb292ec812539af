"""litebert help: what a verb does."""

from __future__ import annotations

import click

from litebert.cli.output import show, show_json


@click.command()
@click.argument("words", nargs=-1, metavar="[VERB]...")
@click.option("--schema", is_flag=True, help="The JSON Schema of what VERB prints with --json.")
@click.pass_context
def help(ctx: click.Context, words: tuple[str, ...], schema: bool) -> None:  # noqa: A001 - the verb's name
    """Show the help of a verb, as VERB --help does.

    \b
    litebert help fill
    litebert help corpus build
    litebert help --schema fill
    """
    from litebert.cli import cli

    if schema:
        from litebert.cli.json_types import schema_of

        show_json(schema_of(" ".join(words)), indent=2)
        return
    command: click.Command = cli
    context = click.Context(cli, info_name="litebert")
    for word in words:
        found = command.get_command(context, word) if isinstance(command, click.Group) else None
        if found is None:
            raise click.UsageError(f"no such verb: {' '.join(words)}", ctx)
        context = click.Context(found, info_name=word, parent=context)
        command = found
    show(command.get_help(context))
