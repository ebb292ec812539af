"""Restore the vocabulary from a `tokenizer.json`, the only file that transformers 5 saves.

The result is the content of the original vocabulary file, so that ids are the official ones and not
those of the pipeline in the JSON, in which transformers replaces quotes, drops vowel signs and
splits at `(` or `-`.

Ids can still differ from those of the lost file in two rare cases. If too few pieces end in a digit
and a comma to tell whether 100 was subtracted from their scores, the scores stay unchanged, and the
first difference listed in `huggingface` appears (3 of 28,971 paragraphs with the official
vocabulary, whose 141 such pieces do tell). And a control piece that the JSON does not mark as
special, other than those of every ALBERT vocabulary, is treated as user-defined, so that its name
in a text becomes its id.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from litebert import files
from litebert.errors import NoVocabularyError
from litebert.tokenizer.huggingface import NUMBER_COMMA_PENALTY, user_defined_score
from litebert.tokenizer.jsonparts import (
    JsonTable,
    charsmap_of,
    model_of,
    numbered_pieces,
    scored_pieces,
    special_names,
    steps_of,
)
from litebert.tokenizer.location import PIPELINE, read_settings, vocabulary_file
from litebert.tokenizer.modelfile import (
    CONTROL,
    MAX_MODEL_BYTES,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    Piece,
    ends_in_number_comma,
    write_model,
)
from litebert.tokenizer.normalize import Normalizer
from litebert.tokenizer.unigram import SPACE, UNIGRAM_SPECIAL

_MAX_BYTES = 32 << 20  # transformers writes 76 bytes per piece


@dataclass(frozen=True)
class VocabularyFile:
    """The bytes of a vocabulary file, `.model` or `.txt`, and the settings that came with it."""

    suffix: str
    data: bytes
    settings: Normalizer = field(default_factory=Normalizer)


def read_vocabulary(path: Path) -> VocabularyFile:
    """Read the vocabulary of a tokenizer folder, or a vocabulary file; see `Tokenizer.load`."""
    file = vocabulary_file(path)
    if file.name == PIPELINE:
        found = read_tokenizer_json(file)
    else:
        data = files.read_capped(file, MAX_MODEL_BYTES, command=f"ls -l {file.parent}")
        found = VocabularyFile(file.suffix, data)
    return replace(found, settings=read_settings(file.parent, found.settings))


def read_tokenizer_json(path: Path) -> VocabularyFile:
    """Read the Unigram or WordPiece vocabulary of any `tokenizer.json`.

    Raises:
        NoVocabularyError: LB-244, ALBERT does not use this kind of tokenizer; LB-246, tokens were
            added to its vocabulary.
        DamagedError: LB-005 or LB-006, it is not a JSON object; LB-245, LB-247 to LB-249, it has no
            vocabulary, or contradicts itself.
    """
    table = files.read_json(path, command=f"ls -l {path.parent}", limit=_MAX_BYTES)
    faults = _faults(table)
    if faults:
        raise NoVocabularyError(
            "LB-244",
            f"{path} is a tokenizer of a kind that ALBERT does not use",
            received=", ".join(faults),
            expected="a Unigram model with ▁ before each word, or BERT's WordPiece",
            next="put the spiece.model or vocab.txt of the model beside it: these take precedence",
        )
    is_unigram = model_of(table)["type"] == "Unigram"
    return (_unigram if is_unigram else _wordpiece)(table, str(path))


def _faults(table: JsonTable) -> list[str]:
    """Return the features that change the meaning of pieces: other algorithms, bytes, words."""
    model = model_of(table)
    kind = model.get("type")
    if kind == "Unigram":
        faults = {
            "byte pieces": bool(model.get("byte_fallback")),
            "no ▁ before words": not any(map(_marks_words, steps_of(table, "pre_tokenizer"))),
        }
    elif kind == "WordPiece":
        steps = steps_of(table, "normalizer")
        faults = {
            "no ## inside words": model.get("continuing_subword_prefix", "##") != "##",
            "words of several Chinese characters": any(step.get("handle_chinese_chars") is False for step in steps),
        }
    else:
        faults = {f"a {kind} model" if isinstance(kind, str) else "no model": True}
    return [fault for fault, is_there in faults.items() if is_there]


def _marks_words(step: JsonTable) -> bool:
    return (
        step["type"] == "Metaspace"
        and step.get("replacement") == SPACE
        and step.get("prepend_scheme") != "never"
        and step.get("add_prefix_space") is not False
    )


def _unigram(table: JsonTable, name: str) -> VocabularyFile:
    scores, unknown = scored_pieces(table, name)
    special = special_names(table, {text: index for index, (text, _) in enumerate(scores)}, name)
    pieces = restored(scores, unknown=unknown, control=special | set(UNIGRAM_SPECIAL))
    steps = steps_of(table, "normalizer")
    kinds = {str(step["type"]) for step in steps}
    # Our own files name the marks to drop in a Replace; NFKD alone drops none.
    drops_marks = "NFKD" in kinds and any(step.get("content") == "" for step in steps)
    settings = Normalizer(lowercase="Lowercase" in kinds, keep_accents=not (drops_marks or "StripAccents" in kinds))
    return VocabularyFile(".model", write_model(pieces, charsmap_of(table, name)), settings)


def _wordpiece(table: JsonTable, name: str) -> VocabularyFile:
    pieces = numbered_pieces(table, name)
    special_names(table, {piece: index for index, piece in enumerate(pieces)}, name)
    lowercase = any(
        step["type"] == "Lowercase" or step.get("lowercase") is True for step in steps_of(table, "normalizer")
    )
    lines = "".join(f"{piece}\n" for piece in pieces)
    return VocabularyFile(".txt", lines.encode("utf-8", "surrogatepass"), Normalizer(lowercase=lowercase))


def restored(scores: Sequence[tuple[str, float]], *, unknown: int, control: Container[str]) -> list[Piece]:
    """Return the pieces in order, with the kinds and scores of sentencepiece's own file.

    `unknown` is the id of the unknown piece, `control` the control pieces. A `tokenizer.json` has
    only pieces and scores, and some scores encode rules: transformers 4 and `huggingface` subtract
    100 from pieces that end in a digit and a comma; `huggingface` writes the score that
    sentencepiece gives to user-defined pieces, where transformers writes 0.

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
    """Tell whether 100 was subtracted: scores have 32 bits, and the difference often needs more.

    In the official vocabulary 121 of 141 differences do; if none does, one cannot tell.
    """
    scores = list(scores)
    raised = [score + NUMBER_COMMA_PENALTY for score in scores]
    return not all(map(_fits_32_bits, scores)) and all(map(_fits_32_bits, raised))


def _fits_32_bits(score: float) -> bool:
    return _same(float(np.float32(score)), score)


def _same(score: float, other: float) -> bool:
    return math.isclose(score, other, rel_tol=1e-12)
