"""What people see in a terminal: a text never steers it, whoever wrote the text."""

from __future__ import annotations

import json
import sys
import unicodedata


def harmless(text: str) -> str:
    r"""Return a text whose control and direction characters are escapes; lines and tabs stay.

    The escapes are those of JSON, so JSON keeps its meaning.

    >>> harmless("red \x1b[31m\n")
    'red \\u001b[31m\n'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_escaped, text))


def say(text: str) -> None:
    """Print a line for people on stderr."""
    print(harmless(text), file=sys.stderr, flush=True)


def _escaped(character: str) -> str:
    if character in "\n\t" or character.isprintable():
        return character
    is_harmless = unicodedata.category(character) in ("Zs", "Zl", "Zp", "Co", "Cn")
    return character if is_harmless else json.dumps(character)[1:-1]
