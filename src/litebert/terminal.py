"""Lines and progress bars in a terminal; control characters in a text never reach it."""

from __future__ import annotations

import json
import os
import shutil
import sys
import unicodedata

_CLEAR = "\r\x1b[K"
_BAR = 30


def harmless(text: str) -> str:
    r"""Return a text whose control and direction characters are escapes; lines and tabs stay.

    The escapes are those of JSON, so JSON keeps its meaning.

    >>> harmless("red \x1b[31m\n")
    'red \\u001b[31m\n'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_escaped, text))


def counted(number: int, what: str) -> str:
    """Write a number of things for people.

    >>> counted(1, "layer"), counted(3_000, "row")
    ('1 layer', '3,000 rows')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def say(text: str) -> None:
    """Print a line on stderr, over the status line if there is one.

    When nobody reads stderr any more, as in `2>&1 | head`, the work continues silently.
    """
    try:
        line = f"{_CLEAR if sys.stderr.isatty() else ''}{harmless(text)}"
        print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def show_status(done: int, total: int, text: str) -> None:
    """Redraw the progress bar and its text; do nothing where stderr is not a terminal."""
    if sys.stderr.isatty():
        share = min(1.0, done / max(1, total))
        bar = f"{'━' * round(share * _BAR):<{_BAR}}  {share:4.0%}  {harmless(text)}"
        shown = bar[: shutil.get_terminal_size().columns - 1]
        print(f"{_CLEAR}{shown}", end="", file=sys.stderr, flush=True)


def _escaped(character: str) -> str:
    if character in "\n\t" or character.isprintable():
        return character
    is_harmless = unicodedata.category(character) in ("Zs", "Zl", "Zp", "Co", "Cn")
    return character if is_harmless else json.dumps(character)[1:-1]
