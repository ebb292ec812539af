"""Cells as what they stand for: a text, a label, a number, a list; None where nothing stands."""

from __future__ import annotations

import json
import math
import re

from litebert.tokenizer.normalize import replace_surrogates

_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_ESCAPED = re.compile(r"\\(.)")
_BETWEEN = re.compile(r"[\s,]*")


def text_of(value: object) -> str | None:
    """Return a cell as text.

    >>> text_of("a b"), text_of(3.0), text_of(True), text_of(""), text_of(float("nan"))
    ('a b', '3', 'true', None, None)
    """
    if isinstance(value, str):
        return replace_surrogates(value) or None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and not math.isnan(value):
        return str(int(value)) if value.is_integer() else repr(value)
    return None


def label_of(value: object) -> str | None:
    """Return a cell as the name of a label, without space around it.

    >>> label_of(" positive "), label_of(1), label_of("  ")
    ('positive', '1', None)
    """
    return (text_of(value) or "").strip() or None


def number_of(value: object) -> float | None:
    """Return a cell as a finite number.

    >>> number_of("4.5"), number_of(3), number_of("NaN"), number_of("four")
    (4.5, 3.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str) and "_" in value:  # float("1_000") is Python, not data
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def list_of(value: object) -> list[object] | None:
    """Return a cell as a list: one, or one written as JSON, Python or numpy would.

    >>> list_of('["a", "b"]'), list_of("['a', 'b']"), list_of("['a' 'b']"), list_of("a b")
    (['a', 'b'], ['a', 'b'], ['a', 'b'], None)
    """
    if isinstance(value, (list, tuple)):
        return list(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return _written_list(text[1:-1])
    return parsed if isinstance(parsed, list) else None


def _written_list(inside: str) -> list[object] | None:
    """Read quoted strings, or bare words, with commas or spaces between."""
    if "'" not in inside and '"' not in inside:
        return [word for word in re.split(r"[\s,]+", inside) if word]
    strings: list[object] = []
    end = 0
    for found in _QUOTED.finditer(inside):
        if not _BETWEEN.fullmatch(inside, end, found.start()):
            return None
        strings.append(_ESCAPED.sub(r"\1", found[1] if found[1] is not None else found[2]))
        end = found.end()
    return strings if _BETWEEN.fullmatch(inside, end) else None
