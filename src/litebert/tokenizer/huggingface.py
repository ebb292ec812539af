"""Write a tokenizer for transformers: `tokenizer.json` and `tokenizer_config.json`.

`AutoTokenizer` then gives our ids (those of `encode(..., special_tokens=True)`, because it always
reads `[MASK]` in a text as the mask) and our segments. `AlbertTokenizer` builds its own pipeline,
with other quotes and accents. `AutoTokenizer` still differs from ours in these cases:

* The official code first picks a piece such as `▁11,` and then splits its comma off, but without
  that piece another path is best (`▁11 , 4 18` here, `▁1 1,4 18` there): 8 of 78,550 real
  paragraphs with the official vocabulary, none with one of `train_tokenizer`.
* The scores of two segmentations are equal except for rounding (`0000 000`, `000 0000`):
  sentencepiece adds in 32 bits over the whole text, transformers in 64 over a word: 4 of 78,550.
* About 230 code points are newer than the Unicode tables of one side; this also affects the
  lower-casing of a capital sigma beside them.
* U+200C and U+200D before a combining mark of class 0 with two bytes in UTF-8 (U+034F, Thaana
  vowels); special pieces that appear only after folding, such as `<ｐad>`.
"""

from __future__ import annotations

import base64
import sys
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache

from litebert.files import Json
from litebert.tokenizer.modelfile import NORMAL, USER_DEFINED, ModelFile, Piece, ends_in_number_comma
from litebert.tokenizer.normalize import Normalizer
from litebert.tokenizer.subword import SpecialPieces

NUMBER_COMMA_PENALTY = 100.0
"""Subtracted from the score of pieces such as `▁2010,`, so that splitting off the comma wins."""

_FINAL_SIGMA = r"\p{Cased}\p{Case_Ignorable}*\KΣ(?!\p{Case_Ignorable}*\p{Cased})"


def config_for(special: SpecialPieces, normalizer: Normalizer, max_length: int) -> dict[str, Json]:
    """Return `tokenizer_config.json`, with which transformers runs our pipeline with segments."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "model_max_length": max_length,
        "do_lower_case": normalizer.lowercase,
        "keep_accents": normalizer.keep_accents,
        "pad_token": special.pad,
        "unk_token": special.unk,
        "cls_token": special.cls,
        "sep_token": special.sep,
        "mask_token": special.mask,
    }


def unigram_pipeline(model: ModelFile, normalizer: Normalizer, special: SpecialPieces) -> dict[str, Json]:
    """Return `tokenizer.json` for a sentencepiece model."""
    ids = {piece.text: index for index, piece in enumerate(model.pieces)}
    best = max((piece.score for piece in model.pieces if piece.kind == NORMAL), default=0.0)
    metaspace: dict[str, Json] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return _frame(ids, special) | {
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(model.charsmap, normalizer)},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": ids[special.unk],
            "vocab": [[piece.text, _score(piece, best)] for piece in model.pieces],
            "byte_fallback": False,
        },
    }


def wordpiece_pipeline(ids: Mapping[str, int], special: SpecialPieces, *, lowercase: bool) -> dict[str, Json]:
    """Return `tokenizer.json` for a WordPiece vocabulary."""
    normalizer: dict[str, Json] = {"type": "BertNormalizer", "lowercase": lowercase, "strip_accents": lowercase}
    return _frame(ids, special) | {
        "normalizer": normalizer | {"clean_text": True, "handle_chinese_chars": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": special.unk,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 200,
            "vocab": dict(ids),
        },
    }


def user_defined_score(text: str, best: float) -> float:
    """Return the score that sentencepiece gives to a user-defined piece (unigram_model.cc).

    `best` is the highest score of the normal pieces.
    """
    return len(text.encode("utf-8", "surrogatepass")) * best - 0.1


def _frame(ids: Mapping[str, int], special: SpecialPieces) -> dict[str, Json]:
    """Return what both kinds share: split off special pieces, frame `[CLS] A [SEP] B [SEP]`."""

    def fixed(name: str, segment: int) -> Json:
        return {"SpecialToken": {"id": name, "type_id": segment}}

    def text(name: str, segment: int) -> Json:
        return {"Sequence": {"id": name, "type_id": segment}}

    single = [fixed(special.cls, 0), text("A", 0), fixed(special.sep, 0)]
    frame: dict[str, Json] = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", 1), fixed(special.sep, 1)],
        "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in special},
    }
    flags: dict[str, Json] = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": ids[name], "content": name, **flags, "special": True} for name in special],
        "post_processor": frame,
    }


def _normalizers(charsmap: bytes, normalizer: Normalizer) -> list[Json]:
    """Return the steps of our preprocessing, then those of sentencepiece's own normaliser."""
    steps: list[Json] = [_replace(f"[{_class(str.isspace)}▁]+", " ")]
    if not normalizer.keep_accents:
        steps += [{"type": "NFKD"}, _replace(f"[{_class(_is_combining)}]+", "")]
    if normalizer.lowercase:
        steps += [_replace(_FINAL_SIGMA, "ς"), {"type": "Lowercase"}]
    if charsmap:
        # Their Precompiled looks up single graphemes and misses Hangul letters; NFKC joins these.
        encoded = base64.b64encode(charsmap).decode("ascii")
        steps += [{"type": "NFKC"}, {"type": "Precompiled", "precompiled_charsmap": encoded}]
    return [*steps, _replace(" {2,}", " ")]


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


def _score(piece: Piece, best: float) -> float:
    if piece.kind == USER_DEFINED:
        return user_defined_score(piece.text, best)
    return piece.score - NUMBER_COMMA_PENALTY * ends_in_number_comma(piece.text)
