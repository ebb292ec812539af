"""What the command line prints: results on stdout, notes on stderr; text, JSON, CSV or Markdown."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import click

from litebert.errors import NonFiniteError
from litebert.files import require_new, require_replaceable
from litebert.terminal import harmless, say

if TYPE_CHECKING:
    from litebert.report.tables import Table

Format = Literal["text", "json", "csv", "markdown"]
Command = TypeVar("Command", bound=Callable[..., object])


def with_formats(command: Command) -> Command:
    """Add --json, --csv and --markdown to a command, which receives the argument `written_as`."""
    for name, shown in (("markdown", "Markdown"), ("csv", "CSV"), ("json", "JSON")):
        option = click.option(f"--{name}", "written_as", flag_value=name, default="text", help=f"Print {shown}.")
        command = option(command)
    return command


def with_outputs(command: Command) -> Command:
    """Add --output and --html to a study; a path that cannot be written is refused at once."""
    folder = click.option(
        "--output", type=click.Path(path_type=Path), callback=_folder_to_write, help="Folder of metrics and figures."
    )
    return folder(with_page(command))


def with_page(command: Command) -> Command:
    """Add --html, a page that is replaced only with --force."""
    page = click.option("--html", type=click.Path(path_type=Path), callback=_page_to_write, help="Write one page.")
    force = click.option(
        "--force", is_flag=True, is_eager=True, expose_value=False, callback=_force, help="Replace the page."
    )
    return page(force(command))


def _force(context: click.Context, __: click.Parameter, is_forced: bool) -> None:
    context.meta["litebert.force"] = is_forced


def _folder_to_write(_: click.Context, __: click.Parameter, folder: Path | None) -> Path | None:
    if folder is not None:
        require_replaceable(folder, as_folder=True)
    return folder


def _page_to_write(context: click.Context, __: click.Parameter, page: Path | None) -> Path | None:
    if page is not None:
        require_new(page, force=context.meta.get("litebert.force", False))
    return page


def printed(tables: Sequence[Table], written_as: Format) -> str:
    """Return tables as text, one below the other; for JSON and CSV, pass a single table."""
    if written_as == "json":
        return "\n".join(json.dumps(table.as_json(), indent=2) for table in tables)
    writers = {
        "text": [table.as_text() for table in tables],
        "csv": [table.as_csv() for table in tables],
        "markdown": [table.as_markdown() for table in tables],
    }
    return "\n\n".join(writers[written_as])


def show(text: str, *, err: bool = False) -> None:
    """Print a text; characters that would control the terminal are written as escapes."""
    if err:
        say(text)
    else:
        click.echo(harmless(text))


def show_json(value: object, *, indent: int | None = None) -> None:
    """Print a value or records as JSON; with --json nothing else goes to stdout.

    Raises:
        NonFiniteError: LB-928, a number is NaN or infinite.
    """
    from pydantic_core import to_jsonable_python

    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, default=to_jsonable_python)
    except ValueError as error:
        raise NonFiniteError(
            "LB-928",
            "a result is not a finite number",
            received="NaN or infinity",
            expected="finite numbers",
            next="print it without --json, and check the weights and the data for damage",
        ) from error
    show(text)


def note(text: str) -> None:
    """Print a note on stderr."""
    show(text, err=True)


def stop(exit_code: int) -> None:
    """End the process with an exit code, unless it is 0."""
    if exit_code:
        sys.exit(exit_code)
