"""Read a sentencepiece model of a stranger; refuse what could harm before native code sees it.

The messages and field numbers are those of sentencepiece's `sentencepiece_model.proto`. Only what
an ALBERT tokenizer can use is let through: a unigram model that puts one space before the text and
between words.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from litebert.errors import DamagedError, LitebertError
from litebert.tokenizer.charsmap import charsmap_fault
from litebert.tokenizer.wire import BYTES, FIXED32, VARINT, Field, WireError, fields

MAX_MODEL_BYTES = 64 << 20
MAX_PIECES = 1_000_000
MAX_PIECE_BYTES = 1024

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4

_AGAIN = "get the file again from where it came from, or train one: litebert tokenizer train --help"
_PIECES, _TRAINER, _NORMALIZER, _DENORMALIZER = 1, 2, 3, 5
_UNIGRAM = 1


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of the vocabulary; `score_at` is where its score lies in the file (0: nowhere)."""

    text: str
    score: float
    kind: int
    score_at: int


@dataclass(frozen=True)
class ModelFile:
    """What a checked model file holds: the pieces by id, and its normaliser's character map."""

    pieces: tuple[Piece, ...]
    charsmap: bytes

    @property
    def unknown(self) -> str:
        """Return the piece for what the vocabulary lacks."""
        return next(piece.text for piece in self.pieces if piece.kind == UNKNOWN)


def read_model(data: bytes, name: str) -> ModelFile:
    """Parse and check the bytes of a sentencepiece model; `name` is what messages call it.

    Raises:
        DamagedError: The bytes are no model, or one that could harm (LB-200 to LB-207, LB-209).
        LitebertError: A sound model of a kind ALBERT does not use (LB-208).
    """
    if len(data) > MAX_MODEL_BYTES:
        raise _damaged(
            "LB-200",
            f"{name} is too large",
            f"{len(data):,} bytes",
            f"at most {MAX_MODEL_BYTES:,} bytes",
        )
    try:
        return _read_model(data, name)
    except WireError as error:
        raise _damaged(
            "LB-201", f"{name} is cut off or damaged", str(error), "a sentencepiece model"
        ) from error


def ends_in_number_comma(piece: str) -> bool:
    """Tell whether the official code would split the comma off this piece (tokenization.py L66).

    >>> ends_in_number_comma("▁2010,"), ends_in_number_comma("a,"), ends_in_number_comma("1,0")
    (True, False, False)
    """
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def _read_model(data: bytes, name: str) -> ModelFile:
    pieces: list[Piece] = []
    specs: dict[int, Field] = {}
    for field in fields(data, 0, len(data)):
        if field.number == _PIECES:
            pieces.append(_read_piece(data, field, f"{name}, piece {len(pieces):,}"))
            if len(pieces) > MAX_PIECES:
                raise _damaged(
                    "LB-202",
                    f"{name} has too many pieces",
                    "more",
                    f"at most {MAX_PIECES:,} pieces",
                )
        elif field.number in specs:
            raise _damaged(
                "LB-203",
                f"{name} says one thing twice",
                f"two fields {field.number}",
                "one of each",
            )
        elif field.number in (_TRAINER, _NORMALIZER, _DENORMALIZER):
            specs[field.number] = field
    _check_vocabulary(pieces, name)
    _check_kind(_settings(data, specs.get(_TRAINER)), _settings(data, specs.get(_NORMALIZER)), name)
    charsmaps = [
        _charsmap(data, specs.get(number), name) for number in (_NORMALIZER, _DENORMALIZER)
    ]
    return ModelFile(tuple(pieces), charsmaps[0])


def _read_piece(data: bytes, message: Field, name: str) -> Piece:
    text, score, kind, score_at = b"", 0.0, NORMAL, 0
    for field in _message(data, message, {1: BYTES, 2: FIXED32, 3: VARINT}):
        if field.number == 1:
            text = data[field.begin : field.end]
        elif field.number == 2:
            (score,), score_at = struct.unpack_from("<f", data, field.begin), field.begin
        elif field.number == 3:
            kind = field.value
    if not 0 < len(text) <= MAX_PIECE_BYTES or 0 in text:
        raise _damaged(
            "LB-204",
            f"{name}: impossible text",
            f"{len(text):,} bytes",
            "1 to 1,024 bytes, none zero",
        )
    if not math.isfinite(score):
        raise _damaged("LB-205", f"{name}: impossible score", score, "a finite number")
    if kind not in (NORMAL, UNKNOWN, CONTROL, USER_DEFINED):
        raise _damaged(
            "LB-206",
            f"{name}: unusable type",
            kind,
            "1 normal, 2 unknown, 3 control, 4 user-defined",
        )
    try:
        return Piece(text.decode("utf-8"), score, kind, score_at)
    except UnicodeDecodeError as error:
        raise WireError(f"{name} is not UTF-8") from error


def _check_vocabulary(pieces: list[Piece], name: str) -> None:
    num_unknown = sum(piece.kind == UNKNOWN for piece in pieces)
    num_distinct = len({piece.text for piece in pieces})
    if num_unknown != 1 or num_distinct != len(pieces):
        raise _damaged(
            "LB-207",
            f"{name} is no vocabulary",
            f"{len(pieces):,} pieces, {num_distinct:,} distinct, {num_unknown} for the unknown",
            "distinct pieces, exactly one of them for the unknown",
        )


def _check_kind(trainer: dict[int, int], normalizer: dict[int, int], name: str) -> None:
    """Refuse what changes the meaning of pieces: other algorithms, bytes, other spaces."""
    faults = {
        "not a unigram model": trainer.get(3, _UNIGRAM) != _UNIGRAM,
        "a space after words": trainer.get(24, 0) != 0,
        "byte pieces": trainer.get(35, 0) != 0,
        "no space before the text": normalizer.get(3, 1) == 0,
        "repeated spaces kept": normalizer.get(4, 1) == 0,
        "spaces not shown as ▁": normalizer.get(5, 1) == 0,
    }
    if any(faults.values()):
        raise LitebertError(
            "LB-208",
            f"{name} is a sentencepiece model of a kind that ALBERT does not use",
            received=", ".join(fault for fault, is_there in faults.items() if is_there),
            expected="a unigram model with sentencepiece's default handling of spaces",
            next="litebert tokenizer train --help",
        )


def _charsmap(data: bytes, spec: Field | None, name: str) -> bytes:
    found = [field for field in _message(data, spec, {2: BYTES}) if field.number == 2]
    charsmap = data[found[-1].begin : found[-1].end] if found else b""
    fault = charsmap_fault(charsmap) if charsmap else None
    if fault:
        raise _damaged(
            "LB-209", f"{name}: damaged character map", fault, "a map as sentencepiece writes it"
        )
    return charsmap


def _settings(data: bytes, spec: Field | None) -> dict[int, int]:
    """Return a message's numbers; of a repeated one the last counts, as in protobuf."""
    return {field.number: field.value for field in _message(data, spec, {}) if field.kind == VARINT}


def _message(data: bytes, message: Field | None, kinds: dict[int, int]) -> Iterable[Field]:
    if message is None:
        return
    if message.kind != BYTES:
        raise WireError(f"field {message.number} at byte {message.begin} is no message")
    for field in fields(data, message.begin, message.end):
        if kinds.get(field.number, field.kind) != field.kind:
            raise WireError(f"field {field.number} at byte {field.begin} is of the wrong kind")
        yield field


def _damaged(code: str, what: str, received: object, expected: str) -> DamagedError:
    return DamagedError(code, what, received=received, expected=expected, next=_AGAIN)
