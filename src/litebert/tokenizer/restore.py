"""Restore the kinds and scores that sentencepiece's own file has.

A `tokenizer.json` lists pieces and scores alone, and the scores stand in for rules: transformers 4
and `huggingface` took 100 off the pieces that end in a digit and a comma; `huggingface` writes out
the weight that sentencepiece gives to user-defined pieces, transformers leaves these at 0.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence

import numpy as np

from litebert.tokenizer.huggingface import NUMBER_COMMA_PENALTY, user_defined_score
from litebert.tokenizer.modelfile import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    Piece,
    ends_in_number_comma,
)


def restored(
    scores: Sequence[tuple[str, float]], *, unknown: int, control: Container[str]
) -> list[Piece]:
    """Return the pieces in order; the one with the id `unknown` and those in `control` are known.

    >>> rows = [("<unk>", 0.0), (".", -2.1), ("▁1", -2.0), ("▁1,", -109.14508438110352)]
    >>> [(p.text, p.score, p.kind) for p in restored(rows, unknown=0, control=())][1:]
    [('.', 0.0, 4), ('▁1', -2.0, 1), ('▁1,', -9.145084381103516, 1)]
    """
    best = max((score for text, score in scores if score and text not in control), default=0.0)

    def kind(index: int, text: str, score: float) -> int:
        if index == unknown:
            return UNKNOWN
        if text in control:
            return CONTROL
        # No normal piece has the probability 1.
        is_defined = score == 0 or _same(score, user_defined_score(text, best))
        return USER_DEFINED if is_defined else NORMAL

    pieces = [Piece(*row, kind(index, *row)) for index, row in enumerate(scores)]
    commas = [p for p in pieces if p.kind == NORMAL and ends_in_number_comma(p.text)]
    penalty = NUMBER_COMMA_PENALTY if _is_lowered([piece.score for piece in commas]) else 0.0
    own = {piece.text: piece.score for piece in pieces if piece.kind == NORMAL}
    own |= {piece.text: piece.score + penalty for piece in commas}
    return [Piece(piece.text, own.get(piece.text, 0.0), piece.kind) for piece in pieces]


def _is_lowered(scores: Iterable[float]) -> bool:
    """Tell whether 100 was taken off: sentencepiece has 32 bits, and so small a number needs more.

    Of the official vocabulary's 141 scores 121 do; without any such there is no telling.
    """
    scores = list(scores)
    raised = [score + NUMBER_COMMA_PENALTY for score in scores]
    return not all(map(_fits_32_bits, scores)) and all(map(_fits_32_bits, raised))


def _fits_32_bits(score: float) -> bool:
    return _same(float(np.float32(score)), score)


def _same(score: float, other: float) -> bool:
    return math.isclose(score, other, rel_tol=1e-12)
