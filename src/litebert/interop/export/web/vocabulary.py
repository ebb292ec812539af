"""What the page's tokenizer needs to give our ids: pieces, scores, character map, classes."""

from __future__ import annotations

import base64
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np

from litebert.errors import LitebertError
from litebert.files import Json
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.fromjson import read_vocabulary
from litebert.tokenizer.location import vocabulary_file
from litebert.tokenizer.modelfile import NORMAL, read_model


def vocabulary(folder: Path, tokenizer: Tokenizer) -> dict[str, Json]:
    """Return the tokenizer of a folder as a table for `tokenizer.js`.

    Raises:
        LitebertError: LB-879, its vocabulary is not a SentencePiece model.
    """
    found = read_vocabulary(folder)
    if found.suffix != ".model":
        raise LitebertError(
            "LB-879",
            "a page can only read a SentencePiece vocabulary",
            received=str(vocabulary_file(folder)),
            expected="a folder with spiece.model, or its tokenizer.json",
            next="litebert serve answers with every kind of model",
        )
    model, settings = read_model(found.data, str(folder)), found.settings
    kinds = [piece.kind for piece in model.pieces]
    return {
        "pieces": [piece.text for piece in model.pieces],
        # The shortest decimals that give the same float32 again.
        "scores": [float(str(np.float32(piece.score))) for piece in model.pieces],
        "kinds": {str(n): kind for n, kind in enumerate(kinds) if kind != NORMAL},
        "charsmap": base64.b64encode(model.charsmap).decode("ascii"),
        "lowercase": settings.lowercase,
        "keep_accents": settings.keep_accents,
        "special": {
            "pad": tokenizer.pad_id,
            "unk": tokenizer.unk_id,
            "cls": tokenizer.cls_id,
            "sep": tokenizer.sep_id,
            "mask": tokenizer.mask_id,
        },
        "spaces": _class(str.isspace),
        "marks": _class(lambda character: unicodedata.combining(character) != 0),
        "digits": _class(str.isdigit),
    }


def _class(belongs: Callable[[str], bool]) -> str:
    """Return the inside of a JavaScript character class: Python's idea of it, not the browser's."""
    codes = np.array([code for code in range(sys.maxunicode + 1) if belongs(chr(code))])
    runs = np.split(codes, np.flatnonzero(np.diff(codes) > 1) + 1)
    return "".join(rf"\u{{{run[0]:x}}}-\u{{{run[-1]:x}}}" for run in runs)
