"""WordPiece vocabularies (the Chinese ALBERTs) through `tokenizers`, which only this file imports.

The official code falls back to BERT's basic and WordPiece tokenizers (tokenization.py L230-400):
whitespace and punctuation split words, each CJK character is a word, the longest match comes first,
and a word has at most 200 characters.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from litebert import files
from litebert.errors import DamagedError, LitebertError
from litebert.tokenizer.encoding import Trace, spans_of
from litebert.tokenizer.huggingface import config_for, wordpiece_pipeline
from litebert.tokenizer.location import CONFIG
from litebert.tokenizer.modelfile import MAX_PIECE_BYTES, MAX_PIECES
from litebert.tokenizer.normalize import Normalizer, replace_surrogates
from litebert.tokenizer.subword import SpecialPieces, vocabulary_hash

if TYPE_CHECKING:
    import tokenizers

WORDPIECE_SPECIAL = SpecialPieces(pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]")


class WordPieceModel:
    """A WordPiece vocabulary; as with BERT, lower-casing also strips accents."""

    def __init__(self, data: bytes, *, lowercase: bool, name: str) -> None:
        self._data = data
        self._lowercase = lowercase
        self.special = WORDPIECE_SPECIAL
        self.pieces = _read_vocabulary(data, name)
        self.ids = {piece: index for index, piece in enumerate(self.pieces)}
        self.special.check(self.ids, name)
        self.starts_word = np.array([not piece.startswith("##") for piece in self.pieces])
        self.pieces_end_at_spaces = True
        self.hash = vocabulary_hash(f"wordpiece {lowercase=}", data)
        pipeline = wordpiece_pipeline(self.ids, self.special, lowercase=lowercase)
        # Special pieces in a text are plain text here; on request, `Tokenizer` splits them off.
        self._native = _native_class().from_str(json.dumps(pipeline | {"added_tokens": []}))

    def encode_ids(self, texts: list[str], *, num_threads: int) -> list[list[int]]:
        """Return the ids of each text; the library uses all cores unless `num_threads` is 1."""
        texts = [replace_surrogates(text) for text in texts]
        if num_threads == 1:
            return [self._native.encode(text, add_special_tokens=False).ids for text in texts]
        return [encoded.ids for encoded in self._native.encode_batch_fast(texts, add_special_tokens=False)]

    def trace(self, text: str) -> Trace:
        """Return the pieces of a text and where each came from."""
        encoded = self._native.encode(replace_surrogates(text), add_special_tokens=False)
        return Trace(encoded.tokens, spans_of(encoded.offsets))

    def join(self, pieces: list[str]) -> str:
        """Return the words with spaces between them, ⁇ for the unknown, no other special pieces."""
        hidden = set(self.special) - {self.special.unk}
        shown = ["⁇" if piece == self.special.unk else piece for piece in pieces if piece not in hidden]
        return " ".join(shown).replace(" ##", "")

    def save(self, folder: Path, *, max_length: int) -> None:
        """Write `vocab.txt` byte for byte, `tokenizer.json` and `tokenizer_config.json`."""
        settings = Normalizer(lowercase=self._lowercase)
        files.write_bytes(folder / "vocab.txt", self._data)
        pipeline = wordpiece_pipeline(self.ids, self.special, lowercase=self._lowercase)
        files.write_json(folder / "tokenizer.json", pipeline)
        files.write_json(folder / CONFIG, config_for(self.special, settings, max_length))


def _read_vocabulary(data: bytes, name: str) -> tuple[str, ...]:
    """Return the first column of each line (official tokenization.py L150-168)."""
    try:
        lines = data.decode("utf-8-sig").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise _damaged("LB-241", f"{name} is not UTF-8", str(error), "UTF-8 text, one piece per line") from error
    pieces = tuple((line.split() or [line])[0] for line in lines)
    if len(pieces) > MAX_PIECES or any(len(piece.encode()) > MAX_PIECE_BYTES for piece in pieces):
        received = f"{len(pieces):,} pieces, the longest of {max(map(len, pieces)):,} characters"
        expected = f"at most {MAX_PIECES:,} pieces of at most {MAX_PIECE_BYTES:,} bytes"
        raise _damaged("LB-242", f"{name} is too large for a vocabulary", received, expected)
    if len(set(pieces)) < len(pieces):
        twice = next(piece for piece, count in Counter(pieces).items() if count > 1)
        raise _damaged("LB-243", f"{name} has a piece twice", repr(twice), "distinct pieces, one per line")
    return pieces


def _damaged(code: str, what: str, received: str, expected: str) -> DamagedError:
    return DamagedError(code, what, received=received, expected=expected, next="get the file again from its source")


def _native_class() -> type[tokenizers.Tokenizer]:
    try:
        import tokenizers
    except ImportError as error:
        raise LitebertError(
            "LB-240",
            "WordPiece vocabularies need the tokenizers library",
            received="a vocab.txt, and no tokenizers installed",
            expected="the extra `wordpiece` installed",
            next="pip install 'litebert[wordpiece]'",
        ) from error
    return tokenizers.Tokenizer
