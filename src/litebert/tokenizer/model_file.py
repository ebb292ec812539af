"""sentencepiece's model files.

A harmful file is refused before native code uses it: its size is limited, then
sentencepiece's own protobuf module parses it, then pieces and the character map are
checked, so that no text can make native code read beyond it. Only models for an ALBERT
tokenizer are accepted: unigram models that put one space before the text and between
words.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from litebert.errors import DamagedError, LitebertError

# the largest in use has 262,144 pieces in 5 MB
MAX_MODEL_BYTES = 16 << 20
MAX_PIECES = 300_000
MAX_PIECE_BYTES = 1024
# subtracted for pieces such as `▁2010,`, so that splitting off the comma wins
NUMBER_COMMA_PENALTY = 100.0

# the kinds of pieces, and the kind of model, by their numbers in the file
NORMAL = 1
UNKNOWN = 2
CONTROL = 3
USER_DEFINED = 4
_UNIGRAM = 1


class Piece(NamedTuple):
    """One entry of the vocabulary; its index is its id."""

    text: str
    score: float  # a log-probability
    kind: int


class ModelFile(NamedTuple):
    """A checked model file."""

    pieces: tuple[Piece, ...]
    charsmap: bytes  # the character map of its normalizer
    checked: bytes  # the part of it that native code may load


def ends_in_number_comma(piece: str) -> bool:
    """Return whether the official code would split the comma off this piece
    (tokenization.py L66).

    >>> ends_in_number_comma("▁2010,"), ends_in_number_comma("a,"), ends_in_number_comma("1,0")
    (True, False, False)
    """
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def lower_number_commas(data: bytes) -> bytes:
    """Return a model in which no text is encoded by a piece such as `▁2010,`."""
    model = ModelProto.FromString(data)
    for piece in model.pieces:
        if piece.type == NORMAL and ends_in_number_comma(piece.piece):
            piece.score -= NUMBER_COMMA_PENALTY
    return bytes(model.SerializeToString())


def write_model(pieces: Sequence[Piece], charsmap: bytes) -> bytes:
    """Return a unigram model of these pieces, one of which is unknown; ValueError if a
    piece is not UTF-8.
    """
    model = ModelProto()
    for piece in pieces:
        model.pieces.add(piece=piece.text, score=piece.score, type=piece.kind)
    unknown = next(index for index, piece in enumerate(pieces) if piece.kind == UNKNOWN)
    # What readers of the file need: transformers takes the id of the unknown piece from
    # here.
    model.trainer_spec.model_type = _UNIGRAM
    model.trainer_spec.vocab_size = len(pieces)
    model.trainer_spec.unk_id = unknown
    model.trainer_spec.unk_piece = pieces[unknown].text
    model.normalizer_spec.SetInParent()
    if charsmap:
        model.normalizer_spec.precompiled_charsmap = charsmap
    return bytes(model.SerializeToString())


# ---- reading -------------------------------------------------------------------------


def read_model(data: bytes, name: str) -> ModelFile:
    """Parse and check the bytes of a sentencepiece model; errors call it `name`."""
    try:
        model = _parse(data)
        pieces = tuple(Piece(row.piece, row.score, row.type) for row in model.pieces)
        _check_pieces(pieces)
        for spec in (model.normalizer_spec, model.denormalizer_spec):
            if spec.precompiled_charsmap:
                check_charsmap(spec.precompiled_charsmap)
    except (DecodeError, ValueError) as error:
        raise damaged_vocabulary(name, error) from error
    _require_usual(model, name)
    charsmap = model.normalizer_spec.precompiled_charsmap
    return ModelFile(pieces, charsmap, model.SerializeToString())


def damaged_vocabulary(name: str, fault: object) -> DamagedError:
    """Return the error for a file, of any format, that is not a usable vocabulary."""
    return DamagedError(
        "LB-201",
        f"{name} is damaged or not a vocabulary",
        received=fault,
        next="get the file again from its source, or train one: litebert tokenizer"
        " train --help",
    )


def _parse(data: bytes) -> Any:
    """Parse a model whose size is possible, without fields that nobody knows."""
    # Limit what parsing will allocate, which protobuf does not: every piece begins with
    # a byte 10, and so does its text. Other bytes are rarely 10: the 30,000 pieces of
    # the official model have 66,306 in all.
    if len(data) > MAX_MODEL_BYTES or data.count(b"\n") > 3 * MAX_PIECES:
        raise ValueError(
            f"{len(data):,} bytes, or pieces, beyond {MAX_MODEL_BYTES:,} and"
            f" {MAX_PIECES:,}"
        )
    model = ModelProto.FromString(data)
    if len(model.pieces) > MAX_PIECES:
        raise ValueError(f"more than {MAX_PIECES:,} pieces")
    # including texts that sentencepiece encodes whenever it loads a model
    model.DiscardUnknownFields()
    return model


def _check_pieces(pieces: Sequence[Piece]) -> None:
    """Raise ValueError for impossible pieces, or unless one of them is the unknown."""
    for index, piece in enumerate(pieces):
        fault = _fault_of(piece)
        if fault:
            raise ValueError(f"piece {index:,} {fault}")
    num_unknown = sum(piece.kind == UNKNOWN for piece in pieces)
    num_distinct = len({piece.text for piece in pieces})
    if num_unknown != 1 or num_distinct != len(pieces):
        raise ValueError(
            f"{len(pieces):,} pieces, {num_distinct:,} distinct, {num_unknown} for the"
            " unknown"
        )


def _fault_of(piece: Piece) -> str:
    """Return what is impossible about a piece; "" if nothing is."""
    if isinstance(piece.text, bytes):  # what protobuf returns if it is not UTF-8
        return "is not UTF-8"
    size = len(piece.text.encode())
    if not 0 < size <= MAX_PIECE_BYTES or "\0" in piece.text:
        return f"has an impossible text of {size:,} bytes"
    if not math.isfinite(piece.score):
        return f"has the score {piece.score}"
    if piece.kind not in (NORMAL, UNKNOWN, CONTROL, USER_DEFINED):
        return f"is of the type {piece.kind}, which no unigram model has"
    return ""


def _require_usual(model: Any, name: str) -> None:
    """Raise LB-208 for a model with features that change the meaning of pieces: other
    algorithms, bytes, spaces.
    """
    trainer = model.trainer_spec
    normalizer = model.normalizer_spec
    features = {
        "not a unigram model": trainer.model_type != _UNIGRAM,
        "a space after words": trainer.treat_whitespace_as_suffix,
        "byte pieces": trainer.byte_fallback,
        "no space before the text": not normalizer.add_dummy_prefix,
        "repeated spaces kept": not normalizer.remove_extra_whitespaces,
        "spaces not shown as ▁": not normalizer.escape_whitespaces,
    }
    unusual = names_of(features)
    if unusual:
        raise LitebertError(
            "LB-208",
            f"{name} is a sentencepiece model of a kind that ALBERT does not use",
            received=unusual,
            next="litebert tokenizer train --help",
        )


def names_of(features: Mapping[str, bool]) -> str:
    """Return the names of the features that are there, in a list for people."""
    return ", ".join(name for name, is_there in features.items() if is_there)


def check_charsmap(data: bytes) -> None:
    """Raise ValueError unless every path through a character map stays within it.

    The format (sentencepiece `normalizer.cc`): the size of a double-array trie in 4
    bytes, the trie in 4-byte units, then the replacements, each ended by a null byte.
    From unit `i`, byte `b` leads to unit `i ^ offset ^ b`; if a unit has a leaf, it is
    at `i ^ offset` and contains the start of its replacement.
    """
    trie_size = int.from_bytes(data[:4], "little")
    if trie_size == 0 or trie_size % 4 or trie_size >= len(data) - 4 or data[-1] != 0:
        raise ValueError(
            f"the character map of {len(data):,} bytes is cut: its trie should have"
            f" {trie_size:,}"
        )
    data[4 + trie_size :].decode("utf-8")
    units = np.frombuffer(data, "<u4", trie_size // 4, 4).astype(np.int64)
    replacements = np.frombuffer(data, np.uint8, offset=4 + trie_size)
    # A unit: bit 31 marks a leaf, bits 10-30 are the offset (times 256 if bit 9 is
    # set), bit 8 says that it has a leaf. (units,) each:
    is_leaf = (units >> 31) == 1
    has_leaf = ((units >> 8) & 1) == 1
    num_shifted = ((units >> 9) & 1) * 8
    offsets = (units >> 10) << num_shifted
    targets = np.arange(len(units)) ^ offsets  # of the byte 0
    # a byte changes the lowest eight bits of a target
    furthest = targets | 0xFF
    if (furthest[~is_leaf] >= len(units)).any():
        raise ValueError("a transition leads out of the trie of the character map")

    leaves = targets[~is_leaf & has_leaf]
    starts = units[leaves] & ((1 << 31) - 1)  # (leaves,), all bits but the mark
    if not is_leaf[leaves].all() or (starts >= len(replacements)).any():
        raise ValueError("a leaf of the character map leads to no replacement")
    # bytes 10xxxxxx continue a character of UTF-8
    if ((replacements[starts] & 0xC0) == 0x80).any():
        raise ValueError("a replacement of the character map starts inside a character")
