"""transformers' own files, `tokenizer.json` and `tokenizer_config.json`: write them,
and restore a vocabulary.

With what we write, `AutoTokenizer` gives our ids and segments, except in the cases in
docs/checkpoints.md. Reading restores the content of the original vocabulary file, so
that ids are the official ones and not those of the pipeline in the JSON, in which
transformers replaces quotes, drops vowel signs and splits at `(` or `-`.
"""

import base64
import math
import sys
import unicodedata
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from litebert import files
from litebert.errors import NoVocabularyError
from litebert.files import Json
from litebert.settings import describe_invalid
from litebert.tokenizer import models
from litebert.tokenizer.added import AddedToken
from litebert.tokenizer.models import (
    Normalizer,
    Piece,
    UnigramModel,
    WordPieceModel,
    ends_in_number_comma,
)

JsonTable: TypeAlias = Mapping[str, Json]

_FINAL_SIGMA = r"\p{Cased}\p{Case_Ignorable}*\KΣ(?!\p{Case_Ignorable}*\p{Cased})"
_MAX_BYTES = 32 << 20  # transformers writes 76 bytes per piece
_LARGEST_SCORE = float(np.finfo(np.float32).max)
PRECISION = 1e-12  # of scores that were written as decimal numbers


# ---- writing -------------------------------------------------------------------------


def tokenizer_config(
    model: UnigramModel | WordPieceModel, max_length: int
) -> dict[str, Json]:
    """Return `tokenizer_config.json`, which makes transformers run our pipeline with
    segments.
    """
    extra: list[Json] = [token.content for token in model.added if token.special]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "model_max_length": max_length,
        "do_lower_case": model.normalizer.lowercase,
        "keep_accents": model.normalizer.keep_accents,
        **{f"{role}_token": piece for role, piece in model.special._asdict().items()},
        **({"extra_special_tokens": extra} if extra else {}),
    }


def tokenizer_json(model: UnigramModel | WordPieceModel) -> dict[str, Json]:
    """Return `tokenizer.json`: our preprocessing, the vocabulary, and `[CLS] A [SEP] B
    [SEP]` around it.
    """
    ids = model.ids
    special = model.special

    def part(kind: str, name: str, segment: int) -> Json:
        return {kind: {"id": name, "type_id": segment}}

    single = [
        part("SpecialToken", special.cls, 0),
        part("Sequence", "A", 0),
        part("SpecialToken", special.sep, 0),
    ]
    flags: dict[str, Json] = dict.fromkeys(
        ("single_word", "lstrip", "rstrip", "normalized"), False
    )
    listed: list[Json] = [
        {"id": ids[name], "content": name, **flags, "special": True} for name in special
    ]
    by_id = sorted(model.added, key=lambda token: token.id)
    listed += [token._asdict() for token in by_id]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": listed,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [
                *single,
                part("Sequence", "B", 1),
                part("SpecialToken", special.sep, 1),
            ],
            "special_tokens": {
                name: {"id": name, "ids": [ids[name]], "tokens": [name]}
                for name in special
            },
        },
        **(
            _unigram_steps(model)
            if isinstance(model, UnigramModel)
            else _wordpiece_steps(model)
        ),
    }


def _unigram_steps(model: UnigramModel) -> dict[str, Json]:
    # not kept in the model: it takes 3 MB
    pieces, charsmap, _ = models.read_model(model.data, "the model")
    best = max(
        (piece.score for piece in pieces if piece.kind == models.NORMAL), default=0.0
    )
    # The steps of our preprocessing, then those of sentencepiece's own normalizer.
    steps = [_replace(f"[{_class(str.isspace)}▁]+", " ")]
    if not model.normalizer.keep_accents:
        steps += [{"type": "NFKD"}, _replace(f"[{_class(unicodedata.combining)}]+", "")]
    if model.normalizer.lowercase:
        steps += [_replace(_FINAL_SIGMA, "ς"), {"type": "Lowercase"}]
    if charsmap:
        # Their Precompiled looks up single graphemes and misses Hangul letters, which
        # NFKC joins.
        encoded = base64.b64encode(charsmap).decode("ascii")
        steps += [
            {"type": "NFKC"},
            {"type": "Precompiled", "precompiled_charsmap": encoded},
        ]
    steps.append(_replace(" {2,}", " "))
    vocabulary: list[Json] = [
        (
            [piece.text, user_defined_score(piece.text, best)]
            if piece.kind == models.USER_DEFINED
            else [
                piece.text,
                piece.score
                - models.NUMBER_COMMA_PENALTY * ends_in_number_comma(piece.text),
            ]
        )
        for piece in pieces
    ]
    metaspace: dict[str, Json] = {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": "always",
        "split": True,
    }
    unknown = model.ids[model.special.unk]
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace],
        },
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": unknown,
            "vocab": vocabulary,
            "byte_fallback": False,
        },
    }


def _wordpiece_steps(model: WordPieceModel) -> dict[str, Json]:
    choices: dict[str, Json] = {
        "lowercase": model.normalizer.lowercase,
        "strip_accents": model.strips_accents,
    }
    in_file = model.pieces[: model.num_in_file]
    vocabulary: dict[str, Json] = {piece: model.ids[piece] for piece in in_file}
    table: dict[str, Json] = {
        "type": "WordPiece",
        "unk_token": model.special.unk,
        "continuing_subword_prefix": "##",
    }
    return {
        "normalizer": {
            "type": "BertNormalizer",
            **choices,
            "clean_text": True,
            "handle_chinese_chars": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": table | {"max_input_chars_per_word": 200, "vocab": vocabulary},
    }


def user_defined_score(text: str, best: float) -> float:
    """Return the score of a user-defined piece in sentencepiece (unigram_model.cc),
    given the best normal score.
    """
    return len(text.encode("utf-8", "surrogatepass")) * best - 0.1


def _replace(pattern: str, content: str) -> Json:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


@cache
def _class(belongs: Callable[[str], object]) -> str:
    """Return the inside of a regular expression's [...] for all characters of a
    class.
    """
    codes = [code for code in range(sys.maxunicode + 1) if belongs(chr(code))]
    starts = [
        code
        for code, before in zip(codes, [-2, *codes], strict=False)
        if code != before + 1
    ]
    ends = [
        code
        for code, after in zip(codes, [*codes[1:], -2], strict=True)
        if code + 1 != after
    ]
    return "".join(
        rf"\x{{{start:X}}}-\x{{{end:X}}}"
        for start, end in zip(starts, ends, strict=True)
    )


# ---- reading -------------------------------------------------------------------------


class VocabularyFile(NamedTuple):
    """The bytes of a vocabulary file, `.model` or `.txt`, read from `path`, and the
    settings that came with it.
    """

    path: Path
    suffix: str
    data: bytes
    settings: Normalizer
    added: tuple[AddedToken, ...] = ()


class _Token(BaseModel, strict=True):
    content: str = Field(min_length=1, max_length=models.MAX_PIECE_BYTES)
    id: int = Field(ge=0)
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = True
    special: bool = False


class _Added(BaseModel, strict=True):
    added_tokens: list[_Token] | None = Field(None, max_length=models.MAX_PIECES)


_Score = Annotated[float, Field(ge=-_LARGEST_SCORE, le=_LARGEST_SCORE)]


class _Unigram(BaseModel, strict=True):
    # JSON has lists for these pairs
    vocab: list[Annotated[tuple[str, _Score], Field(strict=False)]] = Field(
        max_length=models.MAX_PIECES
    )
    unk_id: int = Field(ge=0)


class _WordPiece(BaseModel, strict=True):
    vocab: dict[str, int] = Field(min_length=1)


def read_tokenizer_json(path: Path) -> VocabularyFile:
    """Read the Unigram or WordPiece vocabulary of any `tokenizer.json`; the file is not
    trusted.
    """
    table = files.read_json(
        path, command=f"ls -l {quote(str(path.parent))}", limit=_MAX_BYTES
    )
    found = table.get("model")
    model: JsonTable = found if isinstance(found, dict) else {}
    kind = model.get("type")
    normalizer = _steps(table, "normalizer")
    kinds = {step["type"] for step in normalizer}
    if kind == "Unigram":
        marks_words = any(
            step["type"] == "Metaspace"
            and step.get("replacement") == models.SPACE
            and step.get("prepend_scheme") != "never"
            and step.get("add_prefix_space") is not False
            for step in _steps(table, "pre_tokenizer")
        )
        faults = {
            "byte pieces": bool(model.get("byte_fallback")),
            "no ▁ before words": not marks_words,
        }
    elif kind == "WordPiece":
        is_marked = model.get("continuing_subword_prefix", "##") == "##"
        faults = {"no ## inside words": not is_marked}
    else:
        faults = {f"a {kind} model" if isinstance(kind, str) else "no model": True}
    _refuse(path, faults)
    try:
        if kind == "Unigram":
            unigram = _Unigram.model_validate(model)
            if unigram.unk_id >= len(unigram.vocab):
                raise ValueError(
                    f"unk_id is {unigram.unk_id}, of {len(unigram.vocab):,} pieces"
                )
            added = parse_added(table)
            special = {token.content for token in added if token.special}
            pieces = restore(
                unigram.vocab,
                unknown=unigram.unk_id,
                control=special | set(models.UNIGRAM_SPECIAL),
            )
            maps = [
                step.get("precompiled_charsmap")
                for step in normalizer
                if step["type"] == "Precompiled"
            ]
            # without a map, characters are not changed
            encoded = maps[0] if maps else ""
            charsmap = base64.b64decode(
                encoded if isinstance(encoded, str) else "?", validate=True
            )
            # Our own files name the marks to drop in a Replace; NFKD alone drops none.
            drops_marks = "NFKD" in kinds and any(
                step.get("content") == "" for step in normalizer
            )
            settings = Normalizer(
                "Lowercase" in kinds,
                keep_accents=not (drops_marks or "StripAccents" in kinds),
            )
            data = models.write_model(pieces, charsmap)
            return VocabularyFile(path, ".model", data, settings, added)

        ids = _WordPiece.model_validate(model).vocab
        words = sorted(ids, key=ids.__getitem__)
        if [*map(ids.get, words)] != [*range(len(words))]:
            raise ValueError("the ids of the pieces are not 0, 1, 2 and so on")
        if broken := [word for word in words if word.split() != [word]]:
            raise ValueError(f"a piece with spaces: {broken[0]!r:.80}")
        data = "".join(f"{word}\n" for word in words).encode("utf-8", "surrogatepass")
        bert: JsonTable = next(
            (step for step in normalizer if step["type"] == "BertNormalizer"), {}
        )
        settings = Normalizer("Lowercase" in kinds or bert.get("lowercase") is True)
        settings = as_bert(
            settings, path, bert.get("strip_accents"), bert.get("handle_chinese_chars")
        )
        return VocabularyFile(path, ".txt", data, settings, parse_added(table))
    except ValueError as error:
        fault = describe_invalid(error) if isinstance(error, ValidationError) else error
        raise models.damaged_vocabulary(str(path), fault) from error


def as_bert(
    settings: Normalizer, path: Path, strip_accents: Json, splits_chinese: Json
) -> Normalizer:
    """Complete the settings of a WordPiece vocabulary by those that a file of
    transformers has for BERT only.
    """
    is_partial = strip_accents is True and not settings.lowercase
    _refuse(
        path,
        {
            "words of several Chinese characters": splits_chinese is False,
            "unaccented capitals": is_partial,
        },
    )
    keeps = settings.keep_accents if strip_accents is None else strip_accents is False
    return Normalizer(settings.lowercase, settings.lowercase and keeps)


def _refuse(path: Path, faults: Mapping[str, bool]) -> None:
    if found := ", ".join(fault for fault, is_there in faults.items() if is_there):
        what = f"{path} describes a tokenizer of a kind that ALBERT does not use"
        advice = (
            "put the model's spiece.model next to it, which takes precedence, or choose"
            " another model"
        )
        raise NoVocabularyError("LB-244", what, received=found, next=advice)


def restore(
    scores: Sequence[tuple[str, float]], *, unknown: int, control: Container[str]
) -> list[Piece]:
    """Return the pieces in order, with the kinds and scores of sentencepiece's own
    file.

    `unknown` is the id of the unknown piece, `control` the control pieces. A
    `tokenizer.json` has only pieces and scores, and some scores encode rules:
    transformers 4 and we subtract 100 from pieces that end in a digit and a comma; we
    write the score that sentencepiece gives to user-defined pieces, where transformers
    writes 0.
    """
    best = float(
        np.float32(
            max(
                (score for text, score in scores if score and text not in control),
                default=0.0,
            )
        )
    )
    pieces = []
    for index, (text, score) in enumerate(scores):
        if index == unknown or text in control:
            pieces.append(
                Piece(text, 0.0, models.UNKNOWN if index == unknown else models.CONTROL)
            )
        # 0: no normal piece has the probability 1
        elif score == 0 or math.isclose(
            score, user_defined_score(text, best), rel_tol=PRECISION
        ):
            pieces.append(Piece(text, 0.0, models.USER_DEFINED))
        else:
            pieces.append(Piece(text, score, models.NORMAL))
    # A score of -109 may be genuine: a vocabulary trained here has it from the start.
    # But sentencepiece's scores have 32 bits, and minus 100 many need more (121 of 141
    # official ones): the 100 is added back if only then all fit.
    commas = [
        i
        for i, p in enumerate(pieces)
        if p.kind == models.NORMAL and ends_in_number_comma(p.text)
    ]
    lowered = np.array([pieces[index].score for index in commas])
    raised = lowered + models.NUMBER_COMMA_PENALTY
    have_32_bits = [
        np.allclose(x.astype(np.float32), x, rtol=PRECISION, atol=0)
        for x in (lowered, raised)
    ]
    if have_32_bits == [False, True]:
        for index, score in zip(commas, raised.tolist(), strict=True):
            pieces[index] = pieces[index]._replace(score=score)
    return pieces


def parse_added(table: JsonTable) -> tuple[AddedToken, ...]:
    """Return the added tokens that a tokenizer.json lists; ValueError if they are
    damaged.
    """
    listed = _Added.model_validate(table).added_tokens or []
    return tuple(AddedToken(**token.model_dump()) for token in listed)


def read_added(folder: Path) -> tuple[AddedToken, ...]:
    """Return the tokens that were added to the vocabulary file of a folder.

    transformers lists them in tokenizer.json; version 4 also in
    tokenizer_config.json, and without a tokenizer.json in added_tokens.json.
    """
    command = f"ls -l {quote(str(folder))}"

    def table(name: str) -> dict[str, Json]:
        path = folder / name
        if not path.is_file():
            return {}
        return files.read_json(path, command=command, limit=_MAX_BYTES)

    pipeline = table("tokenizer.json")
    by_id = table("tokenizer_config.json").get("added_tokens_decoder")
    by_name = table("added_tokens.json")
    try:
        if pipeline:
            return parse_added(pipeline)
        if isinstance(by_id, dict):
            listed: list[Json] = [
                {**entry, "id": int(number)}
                for number, entry in by_id.items()
                if isinstance(entry, dict)
            ]
            return parse_added({"added_tokens": listed})
        plain: list[Json] = [
            {"content": name, "id": id_} for name, id_ in by_name.items()
        ]
        return parse_added({"added_tokens": plain})
    except ValueError as error:
        fault = describe_invalid(error) if isinstance(error, ValidationError) else error
        raise models.damaged_vocabulary(str(folder), fault) from error


def _steps(table: JsonTable, stage: str) -> list[JsonTable]:
    whole = table.get(stage)
    steps = (
        whole.get("normalizers", whole.get("pretokenizers", [whole]))
        if isinstance(whole, dict)
        else []
    )
    listed = steps if isinstance(steps, list) else []
    return [
        step
        for step in listed
        if isinstance(step, dict) and isinstance(step.get("type"), str)
    ]
