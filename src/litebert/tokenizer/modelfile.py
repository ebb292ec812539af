"""Read and write sentencepiece's model files; refuse harmful ones before they are parsed.

The number and size of all sections are checked first, then sentencepiece's own protobuf module parses them, then the
character map is checked, so that no text can make native code read outside of it. Only models for an ALBERT tokenizer
are accepted: unigram models that put one space before the text and between words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import DecodeError
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from litebert.errors import DamagedError, LitebertError

MAX_MODEL_BYTES = 16 << 20
MAX_PIECES = 300_000
MAX_PIECE_BYTES = 1024
"""The largest vocabularies in use have 262,144 pieces in 5 MB."""

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
_UNIGRAM = 1

_PIECES, _NORMALIZERS = 1, (3, 5)
"""Numbers of the sections of a model: one for each piece, one for each of the two normalisers, and others."""
_PIECE_FRAME = 32
"""Bytes of a piece besides its text: score, type, tags and lengths."""
_MAX_SECTION, _MAX_NORMALIZER = 1 << 20, 8 << 20
"""The most bytes in a section, and in one with a character map."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of the vocabulary."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class ModelFile:
    """A checked model file: the pieces by id, and its normaliser's character map."""

    pieces: tuple[Piece, ...]
    charsmap: bytes

    @property
    def unknown(self) -> str:
        """The unknown piece."""
        return next(piece.text for piece in self.pieces if piece.kind == UNKNOWN)


def ends_in_number_comma(piece: str) -> bool:
    """Tell whether the official code would split the comma off this piece (tokenization.py L66).

    >>> ends_in_number_comma("▁2010,"), ends_in_number_comma("a,"), ends_in_number_comma("1,0")
    (True, False, False)
    """
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def write_model(pieces: Sequence[Piece], charsmap: bytes) -> bytes:
    """Return a unigram model of these pieces, one of which is the unknown one; equal arguments give equal bytes.

    The trainer's settings contain what readers of the file need (transformers takes the id of the unknown piece from
    them).

    >>> pieces = [Piece("<unk>", 0.0, UNKNOWN), Piece("▁", -1.5, NORMAL)]
    >>> [(piece.text, piece.score) for piece in read_model(write_model(pieces, b""), "it").pieces]
    [('<unk>', 0.0), ('▁', -1.5)]
    """
    model = ModelProto()
    try:
        for piece in pieces:
            model.pieces.add(piece=piece.text, score=piece.score, type=piece.kind)
    except UnicodeEncodeError as error:
        raise _damaged("LB-201", "the vocabulary is truncated or damaged", str(error), "pieces in UTF-8") from error
    unknown = next(index for index, piece in enumerate(pieces) if piece.kind == UNKNOWN)
    model.trainer_spec.model_type, model.trainer_spec.vocab_size = _UNIGRAM, len(pieces)
    model.trainer_spec.unk_id, model.trainer_spec.unk_piece = unknown, pieces[unknown].text
    model.normalizer_spec.SetInParent()
    if charsmap:
        model.normalizer_spec.precompiled_charsmap = charsmap
    return bytes(model.SerializeToString())


def read_model(data: bytes, name: str) -> ModelFile:
    """Parse and check the bytes of a sentencepiece model; errors call it `name`."""
    if len(data) > MAX_MODEL_BYTES:
        raise _damaged("LB-200", f"{name} is too large", f"{len(data):,} bytes", f"at most {MAX_MODEL_BYTES:,} bytes")
    try:
        _check_sections(data, name)
        model = ModelProto.FromString(data)
    except DecodeError as error:
        raise _damaged("LB-201", f"{name} is truncated or damaged", str(error), "a sentencepiece model") from error

    pieces = []
    for index, row in enumerate(model.pieces):
        text, score, kind = row.piece, row.score, row.type
        place = f"{name}, piece {index:,}"
        if isinstance(text, bytes):  # protobuf returns bytes where they are not UTF-8
            raise _damaged(
                "LB-201", f"{name} is truncated or damaged", f"{place} is not UTF-8", "a sentencepiece model"
            )
        if not 0 < len(text.encode()) <= MAX_PIECE_BYTES or "\0" in text:
            raise _impossible_text(place, len(text.encode()))
        if not math.isfinite(score):
            raise _damaged("LB-205", f"{place}: impossible score", score, "a finite number")
        if kind not in (NORMAL, UNKNOWN, CONTROL, USER_DEFINED):
            raise _damaged("LB-206", f"{place}: unusable type", kind, "1 normal, 2 unknown, 3 control, 4 user-defined")
        pieces.append(Piece(text, score, kind))

    num_unknown = sum(piece.kind == UNKNOWN for piece in pieces)
    num_distinct = len({piece.text for piece in pieces})
    if num_unknown != 1 or num_distinct != len(pieces):
        received = f"{len(pieces):,} pieces, {num_distinct:,} distinct, {num_unknown} for the unknown"
        expected = "distinct pieces, exactly one of them for the unknown"
        raise _damaged("LB-207", f"{name} is not a vocabulary", received, expected)

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
    if any(features.values()):
        raise LitebertError(
            "LB-208",
            f"{name} is a sentencepiece model of a kind that ALBERT does not use",
            received=", ".join(feature for feature, is_there in features.items() if is_there),
            expected="a unigram model with sentencepiece's default handling of spaces",
            next="litebert tokenizer train --help",
        )
    for spec in (model.normalizer_spec, model.denormalizer_spec):
        charsmap = spec.precompiled_charsmap
        if fault := charsmap_fault(charsmap) if charsmap else None:
            raise _damaged("LB-209", f"{name}: damaged character map", fault, "a map as sentencepiece writes it")
    return ModelFile(tuple(pieces), model.normalizer_spec.precompiled_charsmap)


def _check_sections(data: bytes, name: str) -> None:
    """Limit what parsing will allocate: the number of pieces and the size of every section.

    protobuf has no such limit: a file of a million pieces would take 19 s and half a gigabyte.
    """
    seen: set[int] = set()
    num_pieces = 0
    for number, size in _sections(data):
        limit = _MAX_NORMALIZER if number in _NORMALIZERS else _MAX_SECTION
        if number == _PIECES:
            num_pieces += 1
            if num_pieces > MAX_PIECES:
                raise _damaged("LB-202", f"{name} has too many pieces", "more", f"at most {MAX_PIECES:,} pieces")
            if size > MAX_PIECE_BYTES + _PIECE_FRAME:
                raise _impossible_text(f"{name}, piece {num_pieces - 1:,}", size)
        elif number in seen:
            raise _damaged("LB-203", f"{name} has a duplicate section", f"two fields {number}", "one of each")
        elif size > limit:
            received = f"{size:,} bytes in field {number}"
            raise _damaged("LB-256", f"{name}: a section is too large", received, f"at most {limit:,} bytes")
        else:
            seen.add(number)


def _sections(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the field number and the size in bytes of each section, none of which is parsed."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        size, at = _varint(data, at)
        if key & 7 != 2:  # the wire type of messages
            raise DecodeError(f"field {key >> 3} before byte {at} is not a message")
        if size > len(data) - at:
            raise DecodeError(f"{size:,} bytes announced at byte {at}, {len(data) - at} left")
        yield key >> 3, size
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place (7 bits per byte, the lowest first, at most 10 bytes), and the place after it."""
    value = 0
    for index in range(at, min(at + 10, len(data))):
        value |= (data[index] & 0x7F) << 7 * (index - at)
        if data[index] < 0x80:
            return value, index + 1
    raise DecodeError(f"unfinished number at byte {at}")


def charsmap_fault(data: bytes) -> str | None:
    """Return what is wrong with a character map; None if every path through it stays inside.

    The format (sentencepiece `normalizer.cc`): the size of a double-array trie in 4 bytes, the trie in 4-byte units,
    then the replacements, each ended by a zero byte. From unit `i`, byte `b` leads to unit `i ^ offset ^ b`; if a unit
    has a leaf, it is at `i ^ offset` and contains the start of its replacement.

    >>> charsmap_fault(b"12")
    'shorter than its header'
    """
    if len(data) < 4:
        return "shorter than its header"
    trie_size = int.from_bytes(data[:4], "little")
    if trie_size == 0 or trie_size % 4 or trie_size >= len(data) - 4:
        return f"a trie of {trie_size:,} bytes in {len(data):,}"
    if data[-1] != 0:
        return "the last replacement does not end"
    try:
        data[4 + trie_size :].decode("utf-8")
    except UnicodeDecodeError as error:
        return f"a replacement is not UTF-8 at byte {error.start}"
    units = np.frombuffer(data, "<u4", trie_size // 4, 4).astype(np.int64)
    replacements = np.frombuffer(data, np.uint8, offset=4 + trie_size)
    # A unit: bit 31 marks a leaf, bits 10-30 are the offset (times 256 if bit 9 is set), bit 8 says that it has a leaf.
    is_leaf = units >> 31 == 1
    offsets = (units >> 10) << ((units & 1 << 9) >> 6)
    targets = np.arange(len(units)) ^ offsets
    if ((targets | 0xFF) >= len(units))[~is_leaf].any():
        return "a transition leads out of the trie"
    leaves = targets[~is_leaf & (units >> 8 & 1 == 1)]
    if not is_leaf[leaves].all():
        return "a leaf is missing"
    starts = units[leaves] & (1 << 31) - 1
    if (starts >= len(replacements)).any():
        return "a replacement starts outside the table"
    if ((replacements[starts] & 0xC0) == 0x80).any():
        return "a replacement starts inside a character"
    return None


def _impossible_text(place: str, size: int) -> DamagedError:
    return _damaged("LB-204", f"{place}: impossible text", f"{size:,} bytes", "1 to 1,024 bytes, none zero")


def _damaged(code: str, what: str, received: object, expected: str) -> DamagedError:
    again = "get the file again from where it came from, or train one: litebert tokenizer train --help"
    return DamagedError(code, what, received=received, expected=expected, next=again)
