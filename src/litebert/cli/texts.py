"""Arguments of commands: texts, which may begin with a dash, and whole numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

_OPTION = re.compile(r"--?[A-Za-z][A-Za-z-]*(=.*)?", re.DOTALL)
_MARK = "\0"
"""Marks a text for the parser; no argument of a process can contain this character."""


class TextCommand(click.Command):
    """A command on texts: an argument that cannot be the name of an option is a text."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Mark texts that begin with a dash, so that they are not read as options."""
        return super().parse_args(ctx, list(self._marked(args)))

    def _marked(self, args: list[str]) -> Iterator[str]:
        taking = {
            name
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag
            for name in param.opts
        }
        is_value = False
        for place, word in enumerate(args):
            if word == "--":
                yield from args[place:]
                return
            is_text = word.startswith("-") and word != "-" and not _OPTION.fullmatch(word)
            yield _MARK + word if is_text and not is_value else word
            is_value = word in taking


def text(value: str) -> str:
    """Return a text as it was typed, without the mark."""
    return value.removeprefix(_MARK)


TEXT = click.types.FuncParamType(text)


class AtLeast(click.ParamType[int]):
    """A whole number with a lower bound."""

    name = "number"

    def __init__(self, least: int) -> None:
        self.least = least

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, or fail with its lower bound."""
        try:
            number = int(value)
        except ValueError:
            number = self.least - 1
        if number < self.least:
            self.fail(f"{value} is not a whole number of at least {self.least}", param, ctx)
        return number
