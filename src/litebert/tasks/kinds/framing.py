"""A text, or a pair, as the ids and segments of one sequence that fits the model."""

from __future__ import annotations

from collections.abc import Sequence

from litebert.tokenizer import Tokenizer


def frame_ids(
    tokenizer: Tokenizer, first: Sequence[int], second: Sequence[int] | None, *, max_length: int
) -> tuple[list[int], list[int]]:
    """Return ids and segments of [CLS] first [SEP] (second [SEP]), cut to `max_length`.

    What is too long loses tokens at the end of the longer side, the second where both are equal
    (official classifier_utils.py L556).
    """
    a, b = list(first), list(second or [])
    room = max_length - (3 if second is not None else 2)
    while len(a) + len(b) > room:
        (a if len(a) > len(b) else b).pop()
    ids, segments = [tokenizer.cls_id, *a, tokenizer.sep_id], [0] * (len(a) + 2)
    if second is None:
        return ids, segments
    return [*ids, *b, tokenizer.sep_id], segments + [1] * (len(b) + 1)
