"""How results are printed: for people, or as JSON, CSV or Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

import click

if TYPE_CHECKING:
    from litebert.report.table import Table

Format = Literal["text", "json", "csv", "markdown"]
Command = TypeVar("Command", bound=Callable[..., object])


def with_formats(command: Command) -> Command:
    """Give a command the options --json, --csv and --markdown, as its argument `written_as`."""
    for name, shown in (("markdown", "Markdown"), ("csv", "CSV"), ("json", "JSON")):
        option = click.option(
            f"--{name}", "written_as", flag_value=name, default="text", help=f"Print {shown}."
        )
        command = option(command)
    return command


def printed(tables: Sequence[Table], written_as: Format) -> str:
    """Write tables one below the other; JSON and CSV are of one."""
    if written_as == "json":
        return "\n".join(json.dumps(table.as_records(), indent=2) for table in tables)
    writers = {
        "text": [table.as_text() for table in tables],
        "csv": [table.as_csv() for table in tables],
        "markdown": [table.as_markdown() for table in tables],
    }
    return "\n\n".join(writers[written_as])
