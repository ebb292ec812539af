"""What the command line prints: results on stdout, notes on stderr, never a terminal's controls."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence

import click

from litebert.errors import NonFiniteError
from litebert.terminal import harmless, say


def show(text: str, *, err: bool = False) -> None:
    """Print a text, with characters that steer a terminal written as escapes."""
    if err:
        say(text)
    else:
        click.echo(harmless(text))


def show_json(value: Mapping[str, object] | Sequence[object], *, indent: int | None = None) -> None:
    """Print JSON: nothing else goes to stdout with --json."""
    try:
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, indent=indent, default=os.fspath
        )
    except ValueError as error:
        raise NonFiniteError(
            "LB-928",
            "a result is not a finite number",
            received="NaN or infinity",
            expected="finite numbers",
            next="print it without --json, and look for damaged weights or data",
        ) from error
    show(text)


def note(text: str) -> None:
    """Print a note on stderr."""
    show(text, err=True)


def stop(exit_code: int) -> None:
    """End with an exit code, where it is not 0."""
    if exit_code:
        sys.exit(exit_code)
