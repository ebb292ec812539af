"""Turn a batch of ids back into text for a teacher, with the span of each token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from litebert.rng import Ints
from litebert.tokenizer import Tokenizer

Span = tuple[int, int]


class Surface:
    """Turn ids back into text; special pieces become nothing, an unknown piece a question mark.

    The text is normalised as the vocabulary is (to lower case), as for an uncased teacher.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        special = {tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}
        self._texts = [
            "" if index in special else "?" if piece == "<unk>" else piece.replace("▁", " ")
            for index, piece in enumerate(tokenizer.pieces)
        ]

    def read(self, ids: Ints, offsets: Ints) -> tuple[list[str], list[list[Span]]]:
        """Return the text of each sequence, and the span of each token without leading space.

        `ids` (tokens,) are unmasked and framed; `offsets` (sequences + 1,) delimit the sequences.
        """
        texts, spans = [], []
        for start, stop in pairwise(offsets):
            parts = [self._texts[index] for index in ids[start:stop]]
            texts.append("".join(parts))
            spans.append(_spans(parts))
        return texts, spans


def _spans(parts: Sequence[str]) -> list[Span]:
    spans, end = [], 0
    for part in parts:
        begin, end = end, end + len(part)
        spans.append((begin + part.startswith(" "), end))
    return spans
