"""Write pieces and a character map as the sentencepiece model that `modelfile` reads."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from litebert.tokenizer.modelfile import UNKNOWN, Piece
from litebert.tokenizer.wire import BYTES, FIXED32, VARINT, tagged, to_varint

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_MODEL_TYPE, _VOCAB_SIZE, _UNK_ID, _UNK_PIECE = 3, 4, 40, 45
_UNIGRAM = 1


def write_model(pieces: Sequence[Piece], charsmap: bytes) -> bytes:
    """Return a unigram model of these pieces, one of which is the unknown one.

    The same arguments give the same bytes. The trainer's settings hold what readers of the file
    look up there (transformers takes the id of the unknown piece from them).

    >>> from litebert.tokenizer.modelfile import NORMAL, read_model
    >>> pieces = [Piece("<unk>", 0.0, UNKNOWN, 0), Piece("▁", -1.5, NORMAL, 0)]
    >>> [(piece.text, piece.score) for piece in read_model(write_model(pieces, b""), "it").pieces]
    [('<unk>', 0.0), ('▁', -1.5)]
    """
    unknown = next(index for index, piece in enumerate(pieces) if piece.kind == UNKNOWN)
    trainer = (
        _number(_MODEL_TYPE, _UNIGRAM)
        + _number(_VOCAB_SIZE, len(pieces))
        + _number(_UNK_ID, unknown)
        + tagged(_UNK_PIECE, BYTES, _utf8(pieces[unknown].text))
    )
    normalizer = tagged(2, BYTES, charsmap) if charsmap else b""
    vocabulary = b"".join(tagged(_PIECES, BYTES, _piece(piece)) for piece in pieces)
    return vocabulary + tagged(_TRAINER, BYTES, trainer) + tagged(_NORMALIZER, BYTES, normalizer)


def _piece(piece: Piece) -> bytes:
    score = tagged(2, FIXED32, struct.pack("<f", piece.score))
    return tagged(1, BYTES, _utf8(piece.text)) + score + _number(3, piece.kind)


def _number(number: int, value: int) -> bytes:
    return tagged(number, VARINT, to_varint(value))


def _utf8(text: str) -> bytes:
    # A lone surrogate becomes bytes that the reader refuses with the piece's number.
    return text.encode("utf-8", "surrogatepass")
