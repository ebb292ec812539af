"""transformers' own files, `tokenizer.json` and `tokenizer_config.json`: write them,
and restore a vocabulary.

With what we write, `AutoTokenizer` gives our ids and segments, except in the cases in
docs/checkpoints.md. Reading restores the content of the original vocabulary file, so
that ids are the official ones and not those of the pipeline in the JSON, in which
transformers replaces quotes, drops vowel signs and splits at `(` or `-`.
"""

import base64
import math
import unicodedata
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
from pydantic import BaseModel, Field

from litebert import files
from litebert.errors import NoVocabularyError
from litebert.files import Json
from litebert.settings import describe_invalid
from litebert.tokenizer.added import AddedToken
from litebert.tokenizer.model_file import (
    CONTROL,
    MAX_PIECE_BYTES,
    MAX_PIECES,
    NORMAL,
    NUMBER_COMMA_PENALTY,
    UNKNOWN,
    USER_DEFINED,
    Piece,
    damaged_vocabulary,
    ends_in_number_comma,
    names_of,
    read_model,
    write_model,
)
from litebert.tokenizer.models import (
    SPACE,
    UNIGRAM_SPECIAL,
    UnigramModel,
    WordPieceModel,
)
from litebert.tokenizer.text import Normalizer, character_runs

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
    config: dict[str, Json] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "model_max_length": max_length,
        "do_lower_case": model.normalizer.lowercase,
        "keep_accents": model.normalizer.keep_accents,
    }
    for role, piece in model.special._asdict().items():
        config[f"{role}_token"] = piece
    extra: list[Json] = [token.content for token in model.added if token.special]
    if extra:
        config["extra_special_tokens"] = extra
    return config


def tokenizer_json(model: UnigramModel | WordPieceModel) -> dict[str, Json]:
    """Return `tokenizer.json`: our preprocessing, the vocabulary, and `[CLS] A [SEP] B
    [SEP]` around it.
    """
    table: dict[str, Json] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _listed_tokens(model),
        "post_processor": _framing(model),
    }
    if isinstance(model, UnigramModel):
        table |= _unigram_steps(model)
    else:
        table |= _wordpiece_steps(model)
    return table


def _listed_tokens(model: UnigramModel | WordPieceModel) -> list[Json]:
    """Return the special pieces and the added tokens as `tokenizers` lists them."""
    tokens = list[AddedToken]()
    for name in model.special:
        token = AddedToken(name, model.ids[name], normalized=False, special=True)
        tokens.append(token)
    tokens += sorted(model.added, key=lambda token: token.id)
    return [{"id": token.id, **token._asdict()} for token in tokens]


def _framing(model: UnigramModel | WordPieceModel) -> Json:
    """Return the step that makes `[CLS] A [SEP]`, and `B [SEP]` of segment 1."""

    def part(kind: str, name: str, segment: int) -> Json:
        return {kind: {"id": name, "type_id": segment}}

    special = model.special
    single = [
        part("SpecialToken", special.cls, 0),
        part("Sequence", "A", 0),
        part("SpecialToken", special.sep, 0),
    ]
    second = [part("Sequence", "B", 1), part("SpecialToken", special.sep, 1)]
    known: dict[str, Json] = {}
    for name in special:
        known[name] = {"id": name, "ids": [model.ids[name]], "tokens": [name]}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": single + second,
        "special_tokens": known,
    }


def _unigram_steps(model: UnigramModel) -> dict[str, Json]:
    """Return the steps of a SentencePiece unigram model, for `tokenizers`."""
    # not kept in the model: it takes 3 MB
    file = read_model(model.data, "the model")
    metaspace: dict[str, Json] = {
        "type": "Metaspace",
        "replacement": SPACE,
        "prepend_scheme": "always",
        "split": True,
    }
    return {
        "normalizer": {
            "type": "Sequence",
            "normalizers": _normalizing_steps(model.normalizer, file.charsmap),
        },
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace],
        },
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": model.ids[model.special.unk],
            "vocab": _scored(file.pieces),
            "byte_fallback": False,
        },
    }


def _normalizing_steps(normalizer: Normalizer, charsmap: bytes) -> list[Json]:
    """Return the steps of our preprocessing, then those of sentencepiece's own
    normalizer.
    """
    steps = [_replace(f"[{_characters_of(str.isspace)}{SPACE}]+", " ")]
    if not normalizer.keep_accents:
        steps.append({"type": "NFKD"})
        steps.append(_replace(f"[{_characters_of(unicodedata.combining)}]+", ""))
    if normalizer.lowercase:
        steps.append(_replace(_FINAL_SIGMA, "ς"))
        steps.append({"type": "Lowercase"})
    if charsmap:
        # Their Precompiled looks up single graphemes and misses Hangul letters, which
        # NFKC joins.
        steps.append({"type": "NFKC"})
        encoded = base64.b64encode(charsmap).decode("ascii")
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    steps.append(_replace(" {2,}", " "))
    return steps


def _replace(pattern: str, content: str) -> Json:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _characters_of(belongs: Callable[[str], object]) -> str:
    """Return the inside of a regular expression's [...] for all characters of a
    class.
    """
    runs = character_runs(belongs)
    return "".join(rf"\x{{{first:X}}}-\x{{{last:X}}}" for first, last in runs)


def _scored(pieces: Sequence[Piece]) -> list[Json]:
    """Return pieces with scores with which `tokenizers`, which knows no kinds of pieces
    and splits no commas, encodes as we do.
    """
    best = max((piece.score for piece in pieces if piece.kind == NORMAL), default=0.0)
    rows = list[Json]()
    for piece in pieces:
        score = piece.score
        if piece.kind == USER_DEFINED:
            score = user_defined_score(piece.text, best)
        elif ends_in_number_comma(piece.text):
            score -= NUMBER_COMMA_PENALTY
        rows.append([piece.text, score])
    return rows


def user_defined_score(text: str, best: float) -> float:
    """Return the score of a user-defined piece in sentencepiece (unigram_model.cc),
    given the best normal score.
    """
    return len(text.encode("utf-8", "surrogatepass")) * best - 0.1


def _wordpiece_steps(model: WordPieceModel) -> dict[str, Json]:
    """Return the steps of a WordPiece model, for `tokenizers`."""
    in_file = model.pieces[: model.num_in_file]
    vocabulary: dict[str, Json] = {piece: model.ids[piece] for piece in in_file}
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "lowercase": model.normalizer.lowercase,
            "strip_accents": model.strips_accents,
            "clean_text": True,
            "handle_chinese_chars": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": model.special.unk,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 200,
            "vocab": vocabulary,
        },
    }


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
    content: str = Field(min_length=1, max_length=MAX_PIECE_BYTES)
    id: int = Field(ge=0)
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = True
    special: bool = False


class _Added(BaseModel, strict=True):
    added_tokens: list[_Token] | None = Field(None, max_length=MAX_PIECES)


_Score = Annotated[float, Field(ge=-_LARGEST_SCORE, le=_LARGEST_SCORE)]
_ScoredPiece = Annotated[tuple[str, _Score], Field(strict=False)]  # in JSON, a list


class _Unigram(BaseModel, strict=True):
    vocab: list[_ScoredPiece] = Field(max_length=MAX_PIECES)
    unk_id: int = Field(ge=0)


class _WordPiece(BaseModel, strict=True):
    vocab: dict[str, int] = Field(min_length=1)


def read_tokenizer_json(path: Path) -> VocabularyFile:
    """Read the Unigram or WordPiece vocabulary of any `tokenizer.json`; the file is not
    trusted.
    """
    table = files.read_json(path, limit=_MAX_BYTES)
    model = table.get("model")
    if not isinstance(model, dict):
        model = {}
    kind = model.get("type")
    try:
        if kind == "Unigram":
            return _read_unigram(path, table, model)
        if kind == "WordPiece":
            return _read_wordpiece(path, table, model)
    except ValueError as error:
        raise damaged_vocabulary(str(path), describe_invalid(error)) from error
    received = f"a {kind} model" if isinstance(kind, str) else "no model"
    raise _another_kind(path, received)


def _read_unigram(path: Path, table: JsonTable, model: JsonTable) -> VocabularyFile:
    """Return the SentencePiece model that a file of `tokenizers` describes, with its
    added tokens.
    """
    faults = {
        "byte pieces": bool(model.get("byte_fallback")),
        "no ▁ before words": not _marks_words(_steps(table, "pre_tokenizer")),
    }
    if any(faults.values()):
        raise _another_kind(path, names_of(faults))
    unigram = _Unigram.model_validate(model)
    if unigram.unk_id >= len(unigram.vocab):
        raise ValueError(
            f"unk_id is {unigram.unk_id}, of {len(unigram.vocab):,} pieces"
        )
    added = parse_added(table)
    special = {token.content for token in added if token.special}
    control = special | set(UNIGRAM_SPECIAL)
    pieces = restore(unigram.vocab, unknown=unigram.unk_id, control=control)

    steps = _steps(table, "normalizer")
    kinds = {step["type"] for step in steps}
    # Our own files name the marks to drop in a Replace; NFKD alone drops none.
    drops_marks = "NFKD" in kinds and any(step.get("content") == "" for step in steps)
    settings = Normalizer(
        lowercase="Lowercase" in kinds,
        keep_accents=not (drops_marks or "StripAccents" in kinds),
    )
    data = write_model(pieces, _charsmap(steps))
    return VocabularyFile(path, ".model", data, settings, added)


def _marks_words(steps: Sequence[JsonTable]) -> bool:
    """Return whether a step before the model puts ▁ before words."""
    for step in steps:
        if step["type"] == "Metaspace" and step.get("replacement") == SPACE:
            is_off = step.get("add_prefix_space") is False  # before tokenizers 0.15
            if not is_off and step.get("prepend_scheme") != "never":
                return True
    return False


def _charsmap(steps: Sequence[JsonTable]) -> bytes:
    """Return the character map of the steps; without one, characters are not
    changed.
    """
    for step in steps:
        if step["type"] == "Precompiled":
            encoded = step.get("precompiled_charsmap")
            if not isinstance(encoded, str):
                raise ValueError("a character map that is not a text")
            return base64.b64decode(encoded, validate=True)
    return b""


def _read_wordpiece(path: Path, table: JsonTable, model: JsonTable) -> VocabularyFile:
    """Return the WordPiece vocabulary that a file of `tokenizers` describes, with its
    added tokens.
    """
    if model.get("continuing_subword_prefix", "##") != "##":
        raise _another_kind(path, "no ## inside words")
    ids = _WordPiece.model_validate(model).vocab
    words = sorted(ids, key=ids.__getitem__)
    if [ids[word] for word in words] != list(range(len(words))):
        raise ValueError("the ids of the pieces are not 0, 1, 2 and so on")
    for word in words:
        if word.split() != [word]:
            raise ValueError(f"a piece with spaces: {word!r:.80}")
    data = "".join(f"{word}\n" for word in words).encode("utf-8", "surrogatepass")

    lowercase = False
    bert: JsonTable = {}
    for step in _steps(table, "normalizer"):
        if step["type"] == "BertNormalizer":
            bert = step
        lowercase = lowercase or step["type"] == "Lowercase"
    lowercase = lowercase or bert.get("lowercase") is True
    settings = as_bert(
        Normalizer(lowercase),
        path,
        bert.get("strip_accents"),
        bert.get("handle_chinese_chars"),
    )
    return VocabularyFile(path, ".txt", data, settings, parse_added(table))


def as_bert(
    settings: Normalizer, path: Path, strip_accents: Json, splits_chinese: Json
) -> Normalizer:
    """Complete the settings of a WordPiece vocabulary by those that a file of
    transformers has for BERT only.
    """
    faults = {
        "words of several Chinese characters": splits_chinese is False,
        "unaccented capitals": strip_accents is True and not settings.lowercase,
    }
    if any(faults.values()):
        raise _another_kind(path, names_of(faults))
    keeps_accents = settings.keep_accents
    if strip_accents is not None:
        keeps_accents = strip_accents is False
    # a vocabulary with capitals keeps accents, too
    return Normalizer(settings.lowercase, keeps_accents or not settings.lowercase)


def _another_kind(path: Path, received: str) -> NoVocabularyError:
    return NoVocabularyError(
        "LB-244",
        f"{path} describes a tokenizer of a kind that ALBERT does not use",
        received=received,
        next="put the model's spiece.model next to it, which takes precedence, or"
        " choose another model",
    )


def _steps(table: JsonTable, stage: str) -> list[JsonTable]:
    """Return the steps of a stage, which is one step or a sequence of them."""
    whole = table.get(stage)
    if not isinstance(whole, dict):
        return []
    listed = whole.get("normalizers", whole.get("pretokenizers", [whole]))
    if not isinstance(listed, list):
        return []
    steps = [step for step in listed if isinstance(step, dict)]
    return [step for step in steps if isinstance(step.get("type"), str)]


# ---- the pieces of the original file -------------------------------------------------


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
    normal = [score for text, score in scores if score and text not in control]
    best = float(np.float32(max(normal, default=0.0)))
    pieces = []
    for index, (text, score) in enumerate(scores):
        by_rule = user_defined_score(text, best)
        if index == unknown:
            piece = Piece(text, 0.0, UNKNOWN)
        elif text in control:
            piece = Piece(text, 0.0, CONTROL)
        # 0: no normal piece has the probability 1
        elif score == 0 or math.isclose(score, by_rule, rel_tol=PRECISION):
            piece = Piece(text, 0.0, USER_DEFINED)
        else:
            piece = Piece(text, score, NORMAL)
        pieces.append(piece)
    return _raise_number_commas(pieces)


def _raise_number_commas(pieces: list[Piece]) -> list[Piece]:
    """Add the 100 to the scores of number commas if it was subtracted from them.

    A score of -109 may be genuine: a vocabulary trained here has it from the start. But
    sentencepiece's scores have 32 bits, and minus 100 many need more (121 of 141
    official ones): the 100 is added back if only then all fit.
    """
    commas = list[int]()  # the ids of the number commas
    for index, piece in enumerate(pieces):
        if piece.kind == NORMAL and ends_in_number_comma(piece.text):
            commas.append(index)
    lowered = np.array([pieces[index].score for index in commas])
    raised = lowered + NUMBER_COMMA_PENALTY
    if _have_32_bits(lowered) or not _have_32_bits(raised):
        return pieces
    original = list(pieces)
    for index, score in zip(commas, raised.tolist(), strict=True):
        original[index] = pieces[index]._replace(score=score)
    return original


def _have_32_bits(scores: np.ndarray) -> bool:
    return np.allclose(scores.astype(np.float32), scores, rtol=PRECISION, atol=0)


# ---- added tokens --------------------------------------------------------------------


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
    pipeline = _read_if_there(folder / "tokenizer.json")
    by_id = _read_if_there(folder / "tokenizer_config.json").get("added_tokens_decoder")
    by_name = _read_if_there(folder / "added_tokens.json")
    listed = list[Json]()
    try:
        if pipeline:
            return parse_added(pipeline)
        if isinstance(by_id, dict):
            for number, token in by_id.items():
                if isinstance(token, dict):
                    listed.append({**token, "id": int(number)})
        else:
            listed += [{"content": name, "id": id_} for name, id_ in by_name.items()]
        return parse_added({"added_tokens": listed})
    except ValueError as error:
        raise damaged_vocabulary(str(folder), describe_invalid(error)) from error


def _read_if_there(path: Path) -> JsonTable:
    if not path.is_file():
        return {}
    return files.read_json(path, limit=_MAX_BYTES)
