"""The plain text of inputs, for training a vocabulary on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from litebert.corpus.read import read_passages
from litebert.corpus.settings import text_settings
from litebert.corpus.source import find_sources


def read_texts(inputs: Iterable[str | Path], *, column: str = "text") -> Iterator[str]:
    """Yield the text of all inputs in passages of bounded size.

    Raises: LitebertError, with file and line, for whatever cannot be read.
    """
    settings = text_settings(sentences="segment", documents=None, column=column, language="en")
    for source in find_sources(inputs):
        for passage in read_passages(source, settings):
            yield passage.text
