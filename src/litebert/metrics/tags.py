"""Measures of tags: whole entities, counted as by conlleval and seqeval, and single tags."""

from __future__ import annotations

from collections.abc import Sequence

from litebert.metrics.some import require_some


def tagging_measures(wanted: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> dict[str, float]:
    """Compare tags such as B-PER, I-PER and O, one list per sentence.

    `precision`, `recall` and `f1` count entities whose kind and both ends are right; `accuracy`
    counts tags. Undefined values are 0.

    Raises:
        LitebertError: LB-430, there are no tags.

    >>> tagging_measures([["B-PER", "I-PER", "O"]], [["B-PER", "O", "O"]])["f1"]
    0.0
    """
    tags = [pair for rows in zip(wanted, found, strict=True) for pair in zip(*rows, strict=True)]
    require_some(len(tags))
    expected, given = (
        {(number, *entity) for number, row in enumerate(rows) for entity in entities(row)} for rows in (wanted, found)
    )
    hits = len(expected & given)
    return {
        "precision": hits / max(len(given), 1),
        "recall": hits / max(len(expected), 1),
        "f1": 2 * hits / max(len(given) + len(expected), 1),
        "accuracy": sum(tag == other for tag, other in tags) / len(tags),
    }


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return kind, first tag and end (exclusive) of each entity of a sentence.

    I- begins an entity if none of its kind is open, so IOB1 and broken sequences are read, too;
    anything else is outside.

    >>> entities(["B-PER", "I-PER", "B-PER", "I-LOC", "O"])
    [('PER', 0, 2), ('PER', 2, 3), ('LOC', 3, 4)]
    """
    closed: list[tuple[str, int, int]] = []
    kind, start = "", 0
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, own = tag.partition("-")
        is_inside = prefix in ("B", "I")
        if kind and not (prefix == "I" and own == kind):
            closed.append((kind, start, place))
            kind = ""
        if is_inside and not kind:
            kind, start = own, place
    return closed
