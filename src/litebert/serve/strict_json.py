"""A strict JSON decoder: it refuses whatever parsers disagree on."""

from __future__ import annotations

import json
import re
from typing import cast

from litebert.files import Json, parse_json
from litebert.serve.limits import MAX_BODY_DEPTH
from litebert.serve.refusals import HttpError

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(r"[\[{]|[\]}]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def decode(body: bytes) -> Json:
    """Return the value of a UTF-8 JSON text.

    Refused: NaN and Infinity, duplicate keys, deep nesting, very long integers, invalid UTF-8, a
    byte order mark, lone surrogates.

    >>> decode(b'{"text": "fine"}')
    {'text': 'fine'}

    Raises:
        HttpError: LB-951, it is not strict JSON.
    """
    try:
        text = body.decode("utf-8")
        _require_shallow(text)
        value = cast(Json, parse_json(text, distinct_keys=True))
        _require_scalar_values(value)
    except (ValueError, RecursionError) as error:
        raise HttpError(
            "LB-951",
            "the body is not strict JSON",
            status=400,
            received=type(error).__name__,
            expected="one JSON value in UTF-8: no NaN, no duplicate keys, no lone surrogates, "
            f"at most {MAX_BODY_DEPTH} levels",
            next="write it with a JSON library; /docs shows an example of each body",
        ) from error
    return value


def encode(value: Json) -> bytes:
    """Return compact JSON in UTF-8; NaN is refused."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _require_shallow(text: str) -> None:
    """Count levels before parsing, because the parser recurses once per level."""
    depth = 0
    for bracket in _BRACKET.finditer(_STRING.sub("", text)):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > MAX_BODY_DEPTH:
            raise ValueError("too deep")


def _require_scalar_values(value: Json) -> None:
    """Refuse lone surrogates, which \\ud800 can write and UTF-8 cannot."""
    if isinstance(value, str) and _SURROGATE.search(value):
        raise ValueError("lone surrogate")
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        raise ValueError("a number too large")  # 1e999
    if isinstance(value, list):
        for item in value:
            _require_scalar_values(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            _require_scalar_values(key)
            _require_scalar_values(item)
