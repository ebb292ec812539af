"""transformers' own files, `tokenizer.json` and `tokenizer_config.json`: write ours for it, and restore a vocabulary.

With what we write, `AutoTokenizer` gives our ids (those of `encode(..., special_tokens=True)`, because it always reads
`[MASK]` in a text as the mask) and our segments. `AlbertTokenizer` builds its own pipeline, with other quotes and
accents. `AutoTokenizer` still differs from ours in these cases:

* The official code first picks a piece such as `▁11,` and then splits its comma off, but without that piece another
  path is best (`▁11 , 4 18` here, `▁1 1,4 18` there): 8 of 78,550 real paragraphs with the official vocabulary, none
  with one of `train_tokenizer`.
* The scores of two segmentations are equal except for rounding (`0000 000`, `000 0000`): sentencepiece adds in 32 bits
  over the whole text, transformers in 64 over a word: 4 of 78,550.
* About 230 code points are newer than the Unicode tables of one side; this also affects the lower-casing of a capital
  sigma beside them.
* U+200C and U+200D before a combining mark of class 0 with two bytes in UTF-8 (U+034F, Thaana vowels); special pieces
  that appear only after folding, such as `<ｐad>`.

Reading restores the content of the original vocabulary file, so that ids are the official ones and not those of the
pipeline in the JSON, in which transformers replaces quotes, drops vowel signs and splits at `(` or `-`. Ids can still
differ from those of the lost file in two rare cases. If too few pieces end in a digit and a comma to tell whether 100
was subtracted from their scores, the scores stay unchanged, and the first difference above appears (3 of 28,971
paragraphs with the official vocabulary, whose 141 such pieces do tell). And a control piece that the JSON does not mark
as special, other than those of every ALBERT vocabulary, is treated as user-defined, so that its name in a text becomes
its id.
"""

from __future__ import annotations

import base64
import math
import sys
import unicodedata
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np

from litebert import files
from litebert.errors import NoVocabularyError
from litebert.files import Json
from litebert.tokenizer.modelfile import (
    CONTROL,
    MAX_PIECES,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    ModelFile,
    Piece,
    damaged_vocabulary,
    ends_in_number_comma,
    write_model,
)
from litebert.tokenizer.models import SPACE, UNIGRAM_SPECIAL, Normalizer, SpecialPieces

JsonTable: TypeAlias = Mapping[str, Json]

NUMBER_COMMA_PENALTY = 100.0
"""Subtracted from the score of pieces such as `▁2010,`, so that splitting off the comma wins."""

_FINAL_SIGMA = r"\p{Cased}\p{Case_Ignorable}*\KΣ(?!\p{Case_Ignorable}*\p{Cased})"
_MAX_BYTES = 32 << 20  # transformers writes 76 bytes per piece
_LARGEST_SCORE = float(np.finfo(np.float32).max)


# ---- writing --------------------------------------------------------------------------------------------------------


def config_for(special: SpecialPieces, normalizer: Normalizer, max_length: int) -> dict[str, Json]:
    """Return `tokenizer_config.json`, with which transformers runs our pipeline with segments."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "model_max_length": max_length,
        "do_lower_case": normalizer.lowercase,
        "keep_accents": normalizer.keep_accents,
        **{f"{role}_token": piece for role, piece in special._asdict().items()},
    }


def unigram_pipeline(model: ModelFile, normalizer: Normalizer, special: SpecialPieces) -> dict[str, Json]:
    """Return `tokenizer.json` for a sentencepiece model."""
    ids = {piece.text: index for index, piece in enumerate(model.pieces)}
    best = max((piece.score for piece in model.pieces if piece.kind == NORMAL), default=0.0)
    # The steps of our preprocessing, then those of sentencepiece's own normaliser.
    steps = [_replace(f"[{_class(str.isspace)}▁]+", " ")]
    if not normalizer.keep_accents:
        steps += [{"type": "NFKD"}, _replace(f"[{_class(_is_combining)}]+", "")]
    if normalizer.lowercase:
        steps += [_replace(_FINAL_SIGMA, "ς"), {"type": "Lowercase"}]
    if model.charsmap:
        # Their Precompiled looks up single graphemes and misses Hangul letters; NFKC joins these.
        encoded = base64.b64encode(model.charsmap).decode("ascii")
        steps += [{"type": "NFKC"}, {"type": "Precompiled", "precompiled_charsmap": encoded}]
    steps.append(_replace(" {2,}", " "))
    vocabulary: list[Json] = [
        [piece.text, user_defined_score(piece.text, best)]
        if piece.kind == USER_DEFINED
        else [piece.text, piece.score - NUMBER_COMMA_PENALTY * ends_in_number_comma(piece.text)]
        for piece in model.pieces
    ]
    metaspace: dict[str, Json] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return _frame(ids, special) | {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": ids[special.unk], "vocab": vocabulary, "byte_fallback": False},
    }


def wordpiece_pipeline(ids: Mapping[str, int], special: SpecialPieces, *, lowercase: bool) -> dict[str, Json]:
    """Return `tokenizer.json` for a WordPiece vocabulary."""
    normalizer: dict[str, Json] = {"type": "BertNormalizer", "lowercase": lowercase, "strip_accents": lowercase}
    model: dict[str, Json] = {"type": "WordPiece", "unk_token": special.unk, "continuing_subword_prefix": "##"}
    return _frame(ids, special) | {
        "normalizer": normalizer | {"clean_text": True, "handle_chinese_chars": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": model | {"max_input_chars_per_word": 200, "vocab": dict(ids)},
    }


def user_defined_score(text: str, best: float) -> float:
    """Return the score of a user-defined piece in sentencepiece (unigram_model.cc), given the best normal score."""
    return len(text.encode("utf-8", "surrogatepass")) * best - 0.1


def _frame(ids: Mapping[str, int], special: SpecialPieces) -> dict[str, Json]:
    """Return what both kinds share: split off special pieces, frame `[CLS] A [SEP] B [SEP]`."""

    def step(kind: str, name: str, segment: int) -> Json:
        return {kind: {"id": name, "type_id": segment}}

    single = [step("SpecialToken", special.cls, 0), step("Sequence", "A", 0), step("SpecialToken", special.sep, 0)]
    pair = [*single, step("Sequence", "B", 1), step("SpecialToken", special.sep, 1)]
    flags: dict[str, Json] = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": ids[name], "content": name, **flags, "special": True} for name in special],
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": pair,
            "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in special},
        },
    }


def _replace(pattern: str, content: str) -> Json:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


@cache
def _class(belongs: Callable[[str], bool]) -> str:
    """Return the inside of a regular expression's [...] for all characters of a class."""
    codes = [code for code in range(sys.maxunicode + 1) if belongs(chr(code))]
    starts = [code for code, before in zip(codes, [-2, *codes], strict=False) if code != before + 1]
    ends = [code for code, after in zip(codes, [*codes[1:], -2], strict=True) if code + 1 != after]
    return "".join(rf"\x{{{start:X}}}-\x{{{end:X}}}" for start, end in zip(starts, ends, strict=True))


def _is_combining(character: str) -> bool:
    return unicodedata.combining(character) != 0


# ---- reading --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VocabularyFile:
    """The bytes of a vocabulary file, `.model` or `.txt`, and the settings that came with it."""

    suffix: str
    data: bytes
    settings: Normalizer = field(default_factory=Normalizer)


def read_tokenizer_json(path: Path) -> VocabularyFile:
    """Read the Unigram or WordPiece vocabulary of any `tokenizer.json`, which is not trusted."""
    table = files.read_json(path, command=f"ls -l {path.parent}", limit=_MAX_BYTES)
    found = table.get("model")
    model: JsonTable = found if isinstance(found, dict) else {}
    kind = model.get("type")
    # Features that change the meaning of pieces: other algorithms, bytes, words.
    if kind == "Unigram":
        faults = {
            "byte pieces": bool(model.get("byte_fallback")),
            "no ▁ before words": not any(map(_marks_words, _steps(table, "pre_tokenizer"))),
        }
    elif kind == "WordPiece":
        whole = [step.get("handle_chinese_chars") is False for step in _steps(table, "normalizer")]
        faults = {
            "no ## inside words": model.get("continuing_subword_prefix", "##") != "##",
            "words of several Chinese characters": any(whole),
        }
    else:
        faults = {f"a {kind} model" if isinstance(kind, str) else "no model": True}
    if any(faults.values()):
        raise NoVocabularyError(
            "LB-244",
            f"{path} is a tokenizer of a kind that ALBERT does not use",
            received=", ".join(fault for fault, is_there in faults.items() if is_there),
            expected="a Unigram model with ▁ before each word, or BERT's WordPiece",
            next="put the spiece.model or vocab.txt of the model beside it: these take precedence",
        )
    try:
        return (_read_unigram if kind == "Unigram" else _read_wordpiece)(table, model, str(path))
    except ValueError as error:
        raise damaged_vocabulary(str(path), error) from error


def _read_unigram(table: JsonTable, model: JsonTable, name: str) -> VocabularyFile:
    rows, unknown = model.get("vocab"), model.get("unk_id")
    rows = rows if isinstance(rows, list) else []
    scores = [
        (row[0], float(row[1]))
        for row in rows[: MAX_PIECES + 1]
        if isinstance(row, list)
        and len(row) == 2
        and isinstance(row[0], str)
        and isinstance(row[1], (int, float))
        and abs(row[1]) <= _LARGEST_SCORE
    ]
    is_complete = len(scores) == len(rows) <= MAX_PIECES
    if not is_complete or not isinstance(unknown, int) or not 0 <= unknown < len(rows):
        place = unknown if isinstance(unknown, int) else "not named"
        entries = f"{len(rows):,} entries, {len(scores):,} of them a piece with a score"
        raise ValueError(f"{entries}; the unknown one is {place}")
    special = _special_names(table, {text: index for index, (text, _) in enumerate(scores)}, name)
    pieces = restored(scores, unknown=unknown, control=special | set(UNIGRAM_SPECIAL))

    steps = _steps(table, "normalizer")
    maps = [step.get("precompiled_charsmap") for step in steps if step["type"] == "Precompiled"]
    encoded = maps[0] if maps else ""  # without a map, characters are not changed
    charsmap = base64.b64decode(encoded if isinstance(encoded, str) else "?", validate=True)
    kinds = {str(step["type"]) for step in steps}
    # Our own files name the marks to drop in a Replace; NFKD alone drops none.
    drops_marks = "NFKD" in kinds and any(step.get("content") == "" for step in steps)
    settings = Normalizer(lowercase="Lowercase" in kinds, keep_accents=not (drops_marks or "StripAccents" in kinds))
    return VocabularyFile(".model", write_model(pieces, charsmap), settings)


def restored(scores: Sequence[tuple[str, float]], *, unknown: int, control: Container[str]) -> list[Piece]:
    """Return the pieces in order, with the kinds and scores of sentencepiece's own file.

    `unknown` is the id of the unknown piece, `control` the control pieces. A `tokenizer.json` has only pieces and
    scores, and some scores encode rules: transformers 4 and we subtract 100 from pieces that end in a digit and a
    comma; we write the score that sentencepiece gives to user-defined pieces, where transformers writes 0.

    >>> rows = [("<unk>", 0.0), (".", -2.1), ("▁1", -2.0), ("▁1,", -109.14508438110352)]
    >>> [(p.text, p.score, p.kind) for p in restored(rows, unknown=0, control=())][1:]
    [('.', 0.0, 4), ('▁1', -2.0, 1), ('▁1,', -9.145084381103516, 1)]
    """
    best = max((score for text, score in scores if score and text not in control), default=0.0)

    pieces = []
    for index, (text, score) in enumerate(scores):
        if index == unknown:
            kind = UNKNOWN
        elif text in control:
            kind = CONTROL
        else:  # no normal piece has the probability 1
            kind = USER_DEFINED if score == 0 or _same(score, user_defined_score(text, best)) else NORMAL
        pieces.append(Piece(text, score if kind == NORMAL else 0.0, kind))
    commas = [index for index, (text, _, kind) in enumerate(pieces) if kind == NORMAL and ends_in_number_comma(text)]
    lowered = [pieces[index].score for index in commas]
    # Scores have 32 bits, and after subtracting 100 often need more: 121 of 141 in the official vocabulary do.
    if not all(map(_fits_32_bits, lowered)) and all(_fits_32_bits(score + NUMBER_COMMA_PENALTY) for score in lowered):
        for index in commas:
            pieces[index] = pieces[index]._replace(score=pieces[index].score + NUMBER_COMMA_PENALTY)
    return pieces


def _read_wordpiece(table: JsonTable, model: JsonTable, name: str) -> VocabularyFile:
    vocab = model.get("vocab")
    rows = vocab.items() if isinstance(vocab, dict) else ()
    ids = {
        text: index
        for text, index in rows
        if isinstance(index, int) and text == (text.split() or [text])[0] and "\n" not in text
    }
    pieces = sorted(ids, key=ids.__getitem__)
    if not rows or len(ids) < len(rows) or [*map(ids.get, pieces)] != [*range(len(pieces))]:
        raise ValueError(f"{len(rows):,} entries, {len(ids):,} of them a piece with an id; ids are 0, 1, 2 and so on")
    _special_names(table, ids, name)
    steps = _steps(table, "normalizer")
    lowercase = any(step["type"] == "Lowercase" or step.get("lowercase") is True for step in steps)
    lines = "".join(f"{piece}\n" for piece in pieces)
    return VocabularyFile(".txt", lines.encode("utf-8", "surrogatepass"), Normalizer(lowercase=lowercase))


def _special_names(table: JsonTable, ids: Mapping[str, int], name: str) -> set[str]:
    """Return the tokens that are marked as special; tokens outside of the vocabulary are refused."""
    listed = table.get("added_tokens") or []
    rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    added = [
        (text, index)
        for text, index in ((row.get("content"), row.get("id")) for row in rows)
        if isinstance(text, str) and isinstance(index, int)
    ]
    new = {text for text, index in added if text not in ids and index >= len(ids)}
    wrong = [f"{text} {index}" for text, index in added if text not in new and ids.get(text) != index]
    if wrong or not isinstance(listed, list) or len(added) < len(listed):
        faults = ", ".join(wrong[:5]) or "entries without content or id"
        raise ValueError(f"added tokens contradict the vocabulary: {faults}")
    if new:
        raise NoVocabularyError(
            "LB-246",
            f"tokens were added to the vocabulary of {name}: litebert cannot split them off",
            received=f"{', '.join(sorted(new)[:5])} ({len(new):,} in all)",
            next="delete them from added_tokens there to read these words like any other",
        )
    return {str(row["content"]) for row in rows if row.get("special")}


def _steps(table: JsonTable, stage: str) -> list[JsonTable]:
    """Return the steps of a stage, such as the normalizer: its sequence, or its single step."""
    whole = table.get(stage)
    if not isinstance(whole, dict):
        return []
    steps = whole.get("normalizers", whole.get("pretokenizers", [whole]))
    steps = steps if isinstance(steps, list) else []
    return [step for step in steps if isinstance(step, dict) and isinstance(step.get("type"), str)]


def _marks_words(step: JsonTable) -> bool:
    return (
        step["type"] == "Metaspace"
        and step.get("replacement") == SPACE
        and step.get("prepend_scheme") != "never"
        and step.get("add_prefix_space") is not False
    )


def _fits_32_bits(score: float) -> bool:
    return _same(float(np.float32(score)), score)


def _same(score: float, other: float) -> bool:
    return math.isclose(score, other, rel_tol=1e-12)
