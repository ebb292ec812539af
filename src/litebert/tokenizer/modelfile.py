"""Read and write sentencepiece's model files; refuse harmful ones before they are parsed.

The number and size of all sections are checked first, then sentencepiece's own protobuf module
parses them. Only models for an ALBERT tokenizer are accepted: unigram models that put one space
before the text and between words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from litebert.errors import DamagedError, LitebertError
from litebert.tokenizer.charsmap import charsmap_fault
from litebert.tokenizer.wire import BYTES, WireError, fields

MAX_MODEL_BYTES = 16 << 20
MAX_PIECES = 300_000
MAX_PIECE_BYTES = 1024
"""The largest vocabularies in use have 262,144 pieces in 5 MB."""

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4

_AGAIN = "get the file again from where it came from, or train one: litebert tokenizer train --help"
_PIECES, _NORMALIZERS = 1, (3, 5)
_PIECE_FRAME = 32
"""Bytes of a piece besides its text: score, type, tags and lengths."""
_MAX_SECTION = (1 << 20, 8 << 20)
"""The most bytes in a section, and in one with a character map."""
_UNIGRAM = 1


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


def read_model(data: bytes, name: str) -> ModelFile:
    """Parse and check the bytes of a sentencepiece model; errors call it `name`.

    Raises:
        DamagedError: LB-200 to LB-207, LB-209, LB-256, they are not a model, or a harmful one.
        LitebertError: LB-208, ALBERT does not use this kind of model.
    """
    if len(data) > MAX_MODEL_BYTES:
        raise _damaged("LB-200", f"{name} is too large", f"{len(data):,} bytes", f"at most {MAX_MODEL_BYTES:,} bytes")
    try:
        return _read_model(data, name)
    except (WireError, DecodeError) as error:
        raise _unreadable(name, error) from error


def ends_in_number_comma(piece: str) -> bool:
    """Tell whether the official code would split the comma off this piece (tokenization.py L66).

    >>> ends_in_number_comma("▁2010,"), ends_in_number_comma("a,"), ends_in_number_comma("1,0")
    (True, False, False)
    """
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def write_model(pieces: Sequence[Piece], charsmap: bytes) -> bytes:
    """Return a unigram model of these pieces, one of which is the unknown one.

    The same arguments give the same bytes. The trainer's settings contain what readers of the file
    need (transformers takes the id of the unknown piece from them).

    >>> pieces = [Piece("<unk>", 0.0, UNKNOWN), Piece("▁", -1.5, NORMAL)]
    >>> [(piece.text, piece.score) for piece in read_model(write_model(pieces, b""), "it").pieces]
    [('<unk>', 0.0), ('▁', -1.5)]
    """
    model = ModelProto()
    try:
        for piece in pieces:
            model.pieces.add(piece=piece.text, score=piece.score, type=piece.kind)
    except UnicodeEncodeError as error:
        raise _unreadable("the vocabulary", error) from error
    unknown = next(index for index, piece in enumerate(pieces) if piece.kind == UNKNOWN)
    trainer = model.trainer_spec
    trainer.model_type, trainer.vocab_size = _UNIGRAM, len(pieces)
    trainer.unk_id, trainer.unk_piece = unknown, model.pieces[unknown].piece
    model.normalizer_spec.SetInParent()
    if charsmap:
        model.normalizer_spec.precompiled_charsmap = charsmap
    return bytes(model.SerializeToString())


def with_scores(data: bytes, change: Callable[[Piece], float]) -> bytes:
    """Return a model of our own training with the score that `change` gives each piece."""
    model = ModelProto.FromString(data)
    for piece in model.pieces:
        piece.score = change(Piece(piece.piece, piece.score, piece.type))
    return bytes(model.SerializeToString())


def _read_model(data: bytes, name: str) -> ModelFile:
    _check_sections(data, name)
    model = ModelProto.FromString(data)
    pieces = [
        _checked(piece.piece, piece.score, piece.type, f"{name}, piece {index:,}")
        for index, piece in enumerate(model.pieces)
    ]
    _check_vocabulary(pieces, name)
    _check_kind(model, name)
    for spec in (model.normalizer_spec, model.denormalizer_spec):
        charsmap = spec.precompiled_charsmap
        if fault := charsmap_fault(charsmap) if charsmap else None:
            raise _damaged("LB-209", f"{name}: damaged character map", fault, "a map as sentencepiece writes it")
    return ModelFile(tuple(pieces), model.normalizer_spec.precompiled_charsmap)


def _check_sections(data: bytes, name: str) -> None:
    """Limit what parsing will allocate: the number of pieces and the size of every section."""
    seen: set[int] = set()
    num_pieces = 0
    for field in fields(data, 0, len(data)):
        size = field.end - field.begin
        if field.kind != BYTES:
            raise WireError(f"field {field.number} at byte {field.begin} is not a message")
        if field.number == _PIECES:
            num_pieces += 1
            if num_pieces > MAX_PIECES:
                raise _damaged("LB-202", f"{name} has too many pieces", "more", f"at most {MAX_PIECES:,} pieces")
            if size > MAX_PIECE_BYTES + _PIECE_FRAME:
                raise _impossible_text(f"{name}, piece {num_pieces - 1:,}", size)
        elif field.number in seen:
            raise _damaged("LB-203", f"{name} has a duplicate section", f"two fields {field.number}", "one of each")
        elif size > _MAX_SECTION[field.number in _NORMALIZERS]:
            raise _damaged(
                "LB-256",
                f"{name}: a section is too large",
                f"{size:,} bytes in field {field.number}",
                f"at most {_MAX_SECTION[field.number in _NORMALIZERS]:,} bytes",
            )
        else:
            seen.add(field.number)


def _checked(text: str | bytes, score: float, kind: int, name: str) -> Piece:
    if isinstance(text, bytes):  # protobuf returns bytes where they are not UTF-8
        raise WireError(f"{name} is not UTF-8")
    size = len(text.encode())
    if not 0 < size <= MAX_PIECE_BYTES or "\0" in text:
        raise _impossible_text(name, size)
    if not math.isfinite(score):
        raise _damaged("LB-205", f"{name}: impossible score", score, "a finite number")
    if kind not in (NORMAL, UNKNOWN, CONTROL, USER_DEFINED):
        raise _damaged("LB-206", f"{name}: unusable type", kind, "1 normal, 2 unknown, 3 control, 4 user-defined")
    return Piece(text, score, kind)


def _impossible_text(name: str, size: int) -> DamagedError:
    return _damaged("LB-204", f"{name}: impossible text", f"{size:,} bytes", "1 to 1,024 bytes, none zero")


def _check_vocabulary(pieces: list[Piece], name: str) -> None:
    num_unknown = sum(piece.kind == UNKNOWN for piece in pieces)
    num_distinct = len({piece.text for piece in pieces})
    if num_unknown != 1 or num_distinct != len(pieces):
        raise _damaged(
            "LB-207",
            f"{name} is not a vocabulary",
            f"{len(pieces):,} pieces, {num_distinct:,} distinct, {num_unknown} for the unknown",
            "distinct pieces, exactly one of them for the unknown",
        )


def _check_kind(model: ModelProto, name: str) -> None:
    """Raise LB-208 for features that change the meaning of pieces: algorithms, bytes, spaces."""
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    faults = {
        "not a unigram model": trainer.model_type != _UNIGRAM,
        "a space after words": trainer.treat_whitespace_as_suffix,
        "byte pieces": trainer.byte_fallback,
        "no space before the text": not normalizer.add_dummy_prefix,
        "repeated spaces kept": not normalizer.remove_extra_whitespaces,
        "spaces not shown as ▁": not normalizer.escape_whitespaces,
    }
    if any(faults.values()):
        raise LitebertError(
            "LB-208",
            f"{name} is a sentencepiece model of a kind that ALBERT does not use",
            received=", ".join(fault for fault, is_there in faults.items() if is_there),
            expected="a unigram model with sentencepiece's default handling of spaces",
            next="litebert tokenizer train --help",
        )


def _unreadable(name: str, error: Exception) -> DamagedError:
    return _damaged("LB-201", f"{name} is truncated or damaged", str(error), "a sentencepiece model")


def _damaged(code: str, what: str, received: object, expected: str) -> DamagedError:
    return DamagedError(code, what, received=received, expected=expected, next=_AGAIN)
