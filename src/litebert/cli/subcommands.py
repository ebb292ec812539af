"""A verb with formats below it: one module each, imported when its format is used."""

from __future__ import annotations

import importlib
import pkgutil

import click

import litebert.cli
from litebert.errors import did_you_mean


class Formats(click.Group):
    """Find `litebert <verb> <format>` in the module `litebert.cli.<verb>_<format>`.

    Such a module defines one click command; there is no list to add it to.
    """

    def list_commands(self, _: click.Context) -> list[str]:
        """Name the formats of this verb."""
        verb = f"{self.name}_"
        modules = [module.name for module in pkgutil.iter_modules(litebert.cli.__path__)]
        return [name.removeprefix(verb) for name in modules if name.startswith(verb) and name != verb]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one format."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"litebert.cli.{self.name}_{cmd_name}")
        (command,) = [each for each in vars(module).values() if isinstance(each, click.Command)]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a format, or say which one was meant."""
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            ctx.fail(f"litebert {self.name} has no {args[0]} ({did_you_mean(args[0], known)})")
        return super().resolve_command(ctx, args)
