"""The settings that split text into documents and sentences."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

from litebert.errors import LitebertError, did_you_mean

Sentences = Literal["segment", "line"]
Documents = Literal["file", "blank-line"]

_LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z]+)*")


@dataclass(frozen=True)
class TextSettings:
    """Where documents and sentences end.

    `sentences` are detected in free text (`segment`) or one per line (`line`, the official format).
    `documents` of a .txt file end with the file, or at blank lines as well; in .jsonl and .parquet
    every row is a document. `column` has the text of a row; a dotted name goes into objects, and
    each element of a list is a document. `language` is only for `segment`.
    """

    sentences: Sentences = "segment"
    documents: Documents = "file"
    column: str = "text"
    language: str = "en"


def text_settings(
    *, sentences: str = "segment", documents: str | None = None, column: str = "text", language: str = "en"
) -> TextSettings:
    """Check the settings as a user typed them; unset, `documents` depends on `sentences`.

    >>> text_settings(sentences="line").documents
    'blank-line'

    Raises:
        LitebertError: LB-300, LB-301, LB-302, a value is not allowed.
    """
    _require_choice("--sentences", sentences, get_args(Sentences))
    documents = documents or ("blank-line" if sentences == "line" else "file")
    _require_choice("--documents", documents, get_args(Documents))
    if not _LANGUAGE.fullmatch(language):
        raise LitebertError(
            "LB-301",
            "--language is not a language code",
            received=language,
            expected="an ISO 639 code in small letters, such as en, de or zh-hans",
            next="litebert corpus build --language en …",
        )
    if not all(column.split(".")):
        raise LitebertError(
            "LB-302",
            "--column is not a column name",
            received=column or "nothing",
            expected="a name such as text, or a dotted path such as chapters.text",
            next="litebert corpus build --column text …",
        )
    return TextSettings(cast(Sentences, sentences), cast(Documents, documents), column=column, language=language)


def _require_choice(flag: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise LitebertError(
            "LB-300",
            f"{flag} has no such choice",
            received=value,
            expected=" or ".join(choices),
            next=f"litebert corpus build --help ({did_you_mean(value, choices)})",
        )
