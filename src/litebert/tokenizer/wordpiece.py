"""WordPiece vocabularies (the Chinese ALBERTs) through `tokenizers`, which only this file imports.

The official code falls back to BERT's basic and WordPiece tokenizers (tokenization.py L230-400): whitespace and
punctuation split words, each CJK character is a word, the longest match comes first, and a word has at most 200
characters.
"""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from litebert.errors import DamagedError, missing_package
from litebert.tokenizer.modelfile import MAX_PIECE_BYTES, MAX_PIECES
from litebert.tokenizer.normalize import replace_surrogates
from litebert.tokenizer.tokenizer_json import wordpiece_pipeline
from litebert.tokenizer.unigram import SpecialPieces, Trace, check_special, vocabulary_hash

WORDPIECE_SPECIAL = SpecialPieces(pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]")


class WordPieceModel:
    """A WordPiece vocabulary; as with BERT, lower-casing also strips accents."""

    pieces_end_at_spaces = True

    def __init__(self, data: bytes, *, lowercase: bool, name: str) -> None:
        try:
            from tokenizers import Tokenizer as NativeTokenizer
        except ImportError as error:
            raise missing_package("tokenizers", extra="wordpiece", needed_for="a WordPiece vocabulary") from error
        self.data, self.lowercase, self.special = data, lowercase, WORDPIECE_SPECIAL
        self.pieces = _read_pieces(data, name)
        self.ids = {piece: index for index, piece in enumerate(self.pieces)}
        check_special(self.special, self.ids, name)
        self.starts_word: NDArray[np.bool_] = np.array([not piece.startswith("##") for piece in self.pieces])
        self.hash = vocabulary_hash(f"wordpiece {lowercase=}", data)
        pipeline = wordpiece_pipeline(self.ids, self.special, lowercase=lowercase)
        # Special pieces in a text are plain text here; on request, `Tokenizer` splits them off.
        self._native = NativeTokenizer.from_str(json.dumps(pipeline | {"added_tokens": []}))

    def encode_ids(self, texts: list[str], *, num_threads: int) -> list[list[int]]:
        """Return the ids of each text; the library uses all cores unless `num_threads` is 1."""
        texts = [replace_surrogates(text) for text in texts]
        if num_threads == 1:
            return [self._native.encode(text, add_special_tokens=False).ids for text in texts]
        return [encoded.ids for encoded in self._native.encode_batch_fast(texts, add_special_tokens=False)]

    def trace(self, text: str) -> Trace:
        """Return the pieces of a text and where each came from."""
        encoded = self._native.encode(replace_surrogates(text), add_special_tokens=False)
        return Trace(encoded.tokens, np.array(encoded.offsets, np.int32).reshape(-1, 2))

    def join(self, pieces: list[str]) -> str:
        """Return the words with spaces between them, ⁇ for the unknown, no other special pieces."""
        hidden = set(self.special) - {self.special.unk}
        shown = ["⁇" if piece == self.special.unk else piece for piece in pieces if piece not in hidden]
        return " ".join(shown).replace(" ##", "")


def _read_pieces(data: bytes, name: str) -> tuple[str, ...]:
    """Return the first column of each line (official tokenization.py L150-168)."""

    def damaged(code: str, what: str, received: str, expected: str) -> DamagedError:
        again = "get the file again from its source"
        return DamagedError(code, f"{name} {what}", received=received, expected=expected, next=again)

    try:
        lines = data.decode("utf-8-sig").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise damaged("LB-241", "is not UTF-8", str(error), "UTF-8 text, one piece per line") from error
    pieces = tuple((line.split() or [line])[0] for line in lines)
    if len(pieces) > MAX_PIECES or any(len(piece.encode()) > MAX_PIECE_BYTES for piece in pieces):
        received = f"{len(pieces):,} pieces, the longest of {max(map(len, pieces)):,} characters"
        expected = f"at most {MAX_PIECES:,} pieces of at most {MAX_PIECE_BYTES:,} bytes"
        raise damaged("LB-242", "is too large for a vocabulary", received, expected)
    if len(set(pieces)) < len(pieces):
        twice = next(piece for piece, count in Counter(pieces).items() if count > 1)
        raise damaged("LB-243", "has a piece twice", repr(twice), "distinct pieces, one per line")
    return pieces
