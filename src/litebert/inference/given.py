"""Arguments of the verbs, checked: texts or lists of texts, counts, precisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import get_args

from litebert.config import Precision
from litebert.errors import LitebertError, no_such_name
from litebert.folder import Pooling

Texts = str | Iterable[str]
MAX_CHARACTERS = 1_000_000
"""The longest text for `fill`, whose answers repeat it, and for `tag`, `score` and `order`."""


def several(texts: Texts, verb: str) -> list[str]:
    """Return one text or several as a list.

    Raises:
        LitebertError: LB-611, one of them is not a string.

    >>> several("one", "fill"), several(("one", "two"), "fill")
    (['one'], ['one', 'two'])
    """
    if isinstance(texts, str):
        return [texts]
    found = list(texts) if _is_list(texts) else [texts]
    for text in found:
        if not isinstance(text, str):
            raise LitebertError(
                "LB-611",
                f"{verb} takes texts",
                received=f"{text!r:.100} ({type(text).__name__})",
                expected="a string, or a list of strings",
                next="give every text as a str; of a table, one column",
            )
    return [str(text) for text in found]  # numpy's strings become plain ones


def _is_list(texts: Texts) -> bool:
    """Tell whether texts come in an order of their own, as those of a set or a table do not."""
    is_flat = getattr(texts, "ndim", 1) == 1
    return isinstance(texts, Iterable) and is_flat and not isinstance(texts, bytes | Mapping | Set)


def require_bounded(text: str, verb: str) -> None:
    """Refuse a text whose answer, which grows with the text, would not fit in memory.

    Raises:
        LitebertError: LB-935, it is longer than MAX_CHARACTERS.
    """
    if len(text) > MAX_CHARACTERS:
        raise LitebertError(
            "LB-935",
            f"this text is too long for {verb}",
            received=f"{len(text):,} characters",
            expected=f"at most {MAX_CHARACTERS:,}: the answer grows with the text",
            next="split the text into chapters, one per row of a file",
        )


def list_of(texts: Iterable[str], verb: str, name: str) -> list[str]:
    """Return texts as a list, where a single one makes no sense, such as choices.

    Raises:
        LitebertError: LB-930, it is a single string.
    """
    if isinstance(texts, str):
        raise _lone(verb, name)
    return several(texts, verb)


def stream_of(texts: Iterable[str], verb: str) -> Iterator[str]:
    """Iterate over texts of which there may be too many for a list.

    Raises:
        LitebertError: LB-930, it is a single string; LB-611, it is no list.
    """
    if isinstance(texts, str):
        raise _lone(verb, "texts")
    return iter(texts if _is_list(texts) else several(texts, verb))


def _lone(verb: str, name: str) -> LitebertError:
    return LitebertError(
        "LB-930",
        f"{verb} takes several {name}",
        received="one string",
        expected="a list of strings",
        next=f"put the {name} in a list",
    )


def paired(texts: Texts, pairs: Texts | None, verb: str) -> tuple[list[str], list[str] | None]:
    """Return the texts, and the second text of each pair; None without pairs.

    Raises:
        LitebertError: LB-931, there are more or fewer second texts than texts.
    """
    listed = several(texts, verb)
    if pairs is None:
        return listed, None
    found = several(pairs, verb)
    if len(found) != len(listed):
        raise LitebertError(
            "LB-931",
            "texts and pairs do not match",
            received=f"{len(listed)} texts and {len(found)} pairs",
            expected="one pair for each text",
            next="give as many pairs as texts",
        )
    return listed, found


def count(value: int, name: str, *, least: int = 1) -> int:
    """Return a count, such as the number of answers, if it is valid.

    Raises:
        LitebertError: LB-932, it is less than `least`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise LitebertError(
            "LB-932",
            f"{name} cannot have this value",
            received=value,
            expected=f"a whole number, {least} or more",
            next=f"{name}=5",
        )
    return value


def known_pooling(pooling: Pooling) -> Pooling:
    """Return the pooling if it exists.

    Raises:
        LitebertError: LB-674, there is none of this name.
    """
    if pooling not in get_args(Pooling):
        raise no_such_name(
            "LB-674",
            "there is no such pooling",
            str(pooling),
            get_args(Pooling),
            next='model.embed(texts, pooling="mean")',
        )
    return pooling


def known_precision(precision: Precision) -> Precision:
    """Return the precision if it exists.

    Raises:
        LitebertError: LB-933, there is none of this name.
    """
    if precision not in get_args(Precision):
        raise no_such_name(
            "LB-933", "there is no such precision", str(precision), get_args(Precision), next='precision="fp32"'
        )
    return precision
