"""The outermost frame of every command: a mistake becomes four lines and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from litebert.cli.output import note
from litebert.errors import LitebertError
from litebert.failures import as_litebert_error

INTERRUPTED = 130


class UsageError(LitebertError):
    """An argument or option that the command line does not know (LB-500)."""

    exit_code = 2


def run(command: click.Command, words: Sequence[str]) -> int:
    """Run a command and return its exit code; only a fault in litebert prints a traceback.

    `--debug` may be anywhere before `--`.
    """
    words = list(words)
    options = words[: words.index("--")] if "--" in words else words
    is_debugged = "--debug" in options
    while "--debug" in words[: len(options)]:
        words.remove("--debug")
    try:
        code = command.main(args=words, prog_name="litebert", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
        return 0
    except (KeyboardInterrupt, click.Abort):
        note("interrupted")
        return INTERRUPTED
    except click.ClickException as error:
        return _described(_usage(error), error, is_debugged)
    except Exception as error:
        found = as_litebert_error(error)
        if found is None:
            raise
        return _described(found, error, is_debugged)
    return code if isinstance(code, int) else 0


def _usage(error: click.ClickException) -> LitebertError:
    """Return click's error in our form of four lines."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context else "litebert"
    return UsageError(
        "LB-939",
        error.format_message().rstrip("."),
        received=" ".join(sys.argv[1:]) or "nothing",
        expected="a verb, its arguments and its options; -- before texts that look like options",
        next=f"{path} --help",
    )


def _described(found: LitebertError, error: BaseException, is_debugged: bool) -> int:
    if is_debugged:
        raise error
    _discard_stdout()
    note(str(found))
    return found.exit_code


def _discard_stdout() -> None:
    """Keep the interpreter from failing again on a stdout that cannot be written."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
