"""Extract and check the parts of an untrusted `tokenizer.json`."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from litebert.errors import DamagedError, NoVocabularyError
from litebert.files import Json
from litebert.tokenizer.modelfile import MAX_PIECES

JsonTable: TypeAlias = Mapping[str, Json]

_LARGEST_SCORE = float(np.finfo(np.float32).max)


def model_of(table: JsonTable) -> JsonTable:
    """Return the part with the vocabulary; an empty one if there is none."""
    model = table.get("model")
    return model if isinstance(model, dict) else {}


def steps_of(table: JsonTable, stage: str) -> list[JsonTable]:
    """Return the steps of a stage, such as the normalizer: its sequence, or its single step.

    >>> steps_of({"normalizer": {"type": "Lowercase"}}, "normalizer")
    [{'type': 'Lowercase'}]
    """
    whole = table.get(stage)
    if not isinstance(whole, dict):
        return []
    steps = whole.get("normalizers", whole.get("pretokenizers", [whole]))
    return [
        step
        for step in (steps if isinstance(steps, list) else [])
        if isinstance(step, dict) and isinstance(step.get("type"), str)
    ]


def scored_pieces(table: JsonTable, name: str) -> tuple[list[tuple[str, float]], int]:
    """Return the pieces of a Unigram model with their scores, and the id of the unknown one.

    Raises:
        DamagedError: LB-245, there are none, or a score is not a number of 32 bits.
    """
    rows, unknown = model_of(table).get("vocab"), model_of(table).get("unk_id")
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
        raise damaged(
            "LB-245",
            f"{name} has no vocabulary",
            f"{len(rows):,} entries, {len(scores):,} of them a piece with a score; the unknown "
            f"one is {unknown if isinstance(unknown, int) else 'not named'}",
            f"1 to {MAX_PIECES:,} pieces with scores, and the id of the unknown one",
        )
    return scores, unknown


def special_names(table: JsonTable, ids: Mapping[str, int], name: str) -> set[str]:
    """Return the tokens that are marked as special.

    Raises:
        DamagedError: LB-247, an id is not that of the vocabulary.
        NoVocabularyError: LB-246, tokens are not in the vocabulary.
    """
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
        raise damaged(
            "LB-247",
            f"{name} adds tokens that contradict its vocabulary",
            ", ".join(wrong[:5]) or "entries without content or id",
            "tokens with the ids that the vocabulary gives them",
        )
    if new:
        raise NoVocabularyError(
            "LB-246",
            f"tokens were added to the vocabulary of {name}: litebert cannot split them off",
            received=f"{', '.join(sorted(new)[:5])} ({len(new):,} in all)",
            expected=f"only the {len(ids):,} pieces of the vocabulary itself",
            next="delete them from added_tokens there to read these words like any other",
        )
    return {str(row["content"]) for row in rows if row.get("special")}


def charsmap_of(table: JsonTable, name: str) -> bytes:
    """Return sentencepiece's character map; without one, characters are not changed.

    Raises:
        DamagedError: LB-248, it is not in base64.
    """
    steps = [step for step in steps_of(table, "normalizer") if step["type"] == "Precompiled"]
    encoded = steps[0].get("precompiled_charsmap") if steps else ""
    try:
        return base64.b64decode(encoded if isinstance(encoded, str) else "?", validate=True)
    except ValueError as error:
        raise damaged(
            "LB-248", f"{name}: unreadable character map", str(error), "precompiled_charsmap in base64"
        ) from error


def numbered_pieces(table: JsonTable, name: str) -> tuple[str, ...]:
    """Return the pieces of a WordPiece model by id, as in the lines of a `vocab.txt`.

    Raises:
        DamagedError: LB-249, ids are missing, or pieces contain spaces.
    """
    vocab = model_of(table).get("vocab")
    rows = vocab.items() if isinstance(vocab, dict) else ()
    ids = {
        text: index
        for text, index in rows
        if isinstance(index, int) and text == (text.split() or [text])[0] and "\n" not in text
    }
    pieces = sorted(ids, key=ids.__getitem__)
    if not rows or len(ids) < len(rows) or [*map(ids.get, pieces)] != [*range(len(pieces))]:
        raise damaged(
            "LB-249",
            f"{name} has no WordPiece vocabulary",
            f"{len(rows):,} entries, {len(ids):,} of them a piece with an id",
            "pieces without spaces, their ids 0, 1, 2 and so on",
        )
    return tuple(pieces)


def damaged(code: str, what: str, received: str, expected: str) -> DamagedError:
    """Return the error for a file that is not what transformers wrote."""
    return DamagedError(
        code,
        what,
        received=received,
        expected=expected,
        next="get the file again from its source, or put spiece.model or vocab.txt beside it",
    )
