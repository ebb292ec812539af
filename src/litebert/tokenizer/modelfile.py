"""Read and write sentencepiece's model files; refuse harmful ones before native code uses them.

The size of a file is limited first, then sentencepiece's own protobuf module parses it, then pieces and the character
map are checked, so that no text can make native code read outside of it. Only models for an ALBERT tokenizer are
accepted: unigram models that put one space before the text and between words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from litebert.errors import DamagedError, LitebertError

# The largest vocabularies in use have 262,144 pieces in 5 MB.
MAX_MODEL_BYTES = 16 << 20
MAX_PIECES = 300_000
MAX_PIECE_BYTES = 1024

# Subtracted from the score of pieces such as `▁2010,`, so that splitting off the comma wins.
NUMBER_COMMA_PENALTY = 100.0
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
_UNIGRAM = 1


class Piece(NamedTuple):
    """One entry of the vocabulary; its place is its id, its score a log-probability."""

    text: str
    score: float
    kind: int


class ModelFile(NamedTuple):
    """A checked model file: its pieces by id, its normaliser's character map, and what native code may load of it."""

    pieces: tuple[Piece, ...]
    charsmap: bytes
    checked: bytes


def damaged_vocabulary(name: str, fault: object) -> DamagedError:
    """Return the error for a file that cannot be the vocabulary it should be, of any format."""
    again = "get the file again from where it came from, or train one: litebert tokenizer train --help"
    return DamagedError("LB-201", f"{name} is damaged or not a vocabulary", received=fault, next=again)


def ends_in_number_comma(piece: str) -> bool:
    """Tell whether the official code would split the comma off this piece (tokenization.py L66).

    >>> ends_in_number_comma("▁2010,"), ends_in_number_comma("a,"), ends_in_number_comma("1,0")
    (True, False, False)
    """
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def write_model(pieces: Sequence[Piece], charsmap: bytes) -> bytes:
    """Return a unigram model of these pieces, one of them the unknown; a piece that is not UTF-8 is a ValueError."""
    model = ModelProto()
    for piece in pieces:
        model.pieces.add(piece=piece.text, score=piece.score, type=piece.kind)
    unknown = next(index for index, piece in enumerate(pieces) if piece.kind == UNKNOWN)
    # What readers of the file need: transformers takes the id of the unknown piece from here.
    model.trainer_spec.model_type, model.trainer_spec.vocab_size = _UNIGRAM, len(pieces)
    model.trainer_spec.unk_id, model.trainer_spec.unk_piece = unknown, pieces[unknown].text
    model.normalizer_spec.SetInParent()
    if charsmap:
        model.normalizer_spec.precompiled_charsmap = charsmap
    return bytes(model.SerializeToString())


def read_model(data: bytes, name: str) -> ModelFile:
    """Parse and check the bytes of a sentencepiece model; errors call it `name`."""
    try:
        # Limit what parsing will allocate, which protobuf does not: every piece begins with a byte 10, and so does its
        # text. Other bytes are rarely 10: the 30,000 pieces of the official model have 66,306 in all.
        if len(data) > MAX_MODEL_BYTES or data.count(b"\n") > 3 * MAX_PIECES:
            raise ValueError(f"{len(data):,} bytes, or pieces, beyond {MAX_MODEL_BYTES:,} and {MAX_PIECES:,}")
        model = ModelProto.FromString(data)
        if len(model.pieces) > MAX_PIECES:
            raise ValueError(f"more than {MAX_PIECES:,} pieces")
        model.DiscardUnknownFields()  # among them texts that sentencepiece encodes whenever it loads a model
        pieces = tuple(Piece(row.piece, row.score, row.type) for row in model.pieces)
        for index, (text, score, kind) in enumerate(pieces):
            if isinstance(text, bytes):  # what protobuf returns where it is not UTF-8
                raise ValueError(f"piece {index:,} is not UTF-8")
            if not 0 < len(text.encode()) <= MAX_PIECE_BYTES or "\0" in text:
                raise ValueError(f"piece {index:,} has an impossible text of {len(text.encode()):,} bytes")
            if not math.isfinite(score):
                raise ValueError(f"piece {index:,} has the score {score}")
            if kind not in (NORMAL, UNKNOWN, CONTROL, USER_DEFINED):
                raise ValueError(f"piece {index:,} is of the type {kind}, which no unigram model has")
        num_unknown, num_distinct = sum(piece.kind == UNKNOWN for piece in pieces), len({p.text for p in pieces})
        if num_unknown != 1 or num_distinct != len(pieces):
            raise ValueError(f"{len(pieces):,} pieces, {num_distinct:,} distinct, {num_unknown} for the unknown")
        for spec in (model.normalizer_spec, model.denormalizer_spec):
            if spec.precompiled_charsmap:
                check_charsmap(spec.precompiled_charsmap)
    except (DecodeError, ValueError) as error:
        raise damaged_vocabulary(name, error) from error

    # Features that change the meaning of pieces: other algorithms, bytes, spaces.
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    features = {
        "not a unigram model": trainer.model_type != _UNIGRAM,
        "a space after words": trainer.treat_whitespace_as_suffix,
        "byte pieces": trainer.byte_fallback,
        "no space before the text": not normalizer.add_dummy_prefix,
        "repeated spaces kept": not normalizer.remove_extra_whitespaces,
        "spaces not shown as ▁": not normalizer.escape_whitespaces,
    }
    if found := ", ".join(feature for feature, is_there in features.items() if is_there):
        what = f"{name} is a sentencepiece model of a kind that ALBERT does not use"
        raise LitebertError("LB-208", what, received=found, next="litebert tokenizer train --help")
    return ModelFile(pieces, normalizer.precompiled_charsmap, model.SerializeToString())


def check_charsmap(data: bytes) -> None:
    """Raise ValueError unless every path through a character map stays inside.

    The format (sentencepiece `normalizer.cc`): the size of a double-array trie in 4 bytes, the trie in 4-byte units,
    then the replacements, each ended by a zero byte. From unit `i`, byte `b` leads to unit `i ^ offset ^ b`; if a unit
    has a leaf, it is at `i ^ offset` and contains the start of its replacement.
    """
    trie_size = int.from_bytes(data[:4], "little")
    if trie_size == 0 or trie_size % 4 or trie_size >= len(data) - 4 or data[-1] != 0:
        raise ValueError(f"the character map of {len(data):,} bytes is cut: its trie should have {trie_size:,}")
    data[4 + trie_size :].decode("utf-8")
    units = np.frombuffer(data, "<u4", trie_size // 4, 4).astype(np.int64)
    replacements = np.frombuffer(data, np.uint8, offset=4 + trie_size)
    # A unit: bit 31 marks a leaf, bits 10-30 are the offset (times 256 if bit 9 is set), bit 8 says that it has a leaf.
    is_leaf = units >> 31 == 1
    offsets = (units >> 10) << ((units & 1 << 9) >> 6)
    targets = np.arange(len(units)) ^ offsets
    if ((targets | 0xFF) >= len(units))[~is_leaf].any():
        raise ValueError("a transition leads out of the trie of the character map")
    leaves = targets[~is_leaf & (units >> 8 & 1 == 1)]
    starts = units[leaves] & (1 << 31) - 1
    if not is_leaf[leaves].all() or (starts >= len(replacements)).any():
        raise ValueError("a leaf of the character map leads to no replacement")
    if ((replacements[starts] & 0xC0) == 0x80).any():
        raise ValueError("a replacement of the character map starts inside a character")
