"""Filter documents: drop near duplicates, and those that a user's function rejects."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from litebert.corpus.read import read_passages
from litebert.corpus.settings import TextSettings
from litebert.errors import LitebertError, missing_package
from litebert.files import write_stream
from litebert.reading.find import find_texts

Keep = Callable[[str], bool]

SHINGLE_WORDS = 5
_PERMUTATIONS, _BANDS = 128, 16


@dataclass
class Filtered:
    """How many documents a filter kept and dropped."""

    kept: int = 0
    near_duplicates: int = 0
    refused: int = 0


class _Index(Protocol):
    def insert(self, key: int, minhash: object) -> None: ...
    def query(self, minhash: object) -> list[int]: ...


class NearDuplicates:
    """Finds documents that share most of their word 5-grams with an earlier one, by MinHash.

    It stores 128 hashes of 4 bytes per document, in 16 bands (Broder 1997; library: rensa).
    """

    def __init__(self, threshold: float) -> None:
        try:
            from rensa import RMinHash, RMinHashLSH
        except ImportError as error:
            raise missing_package("rensa", extra="data", needed_for="near duplicates") from error
        if not 0 < threshold <= 1:
            raise LitebertError(
                "LB-277",
                "--near-duplicates is not a share",
                received=threshold,
                expected="above 0, at most 1; 0.8 finds documents that share 80 % of their words' 5-grams",
                next="litebert corpus filter ... --near-duplicates 0.8",
            )
        self._make, self._threshold = RMinHash, threshold
        self._index = cast(_Index, RMinHashLSH(threshold, _PERMUTATIONS, _BANDS))
        self._sketches: list[RMinHash] = []

    def is_known(self, text: str) -> bool:
        """Return whether a document is near an earlier one; remember it if not."""
        sketch = self._make(num_perm=_PERMUTATIONS, seed=1)
        sketch.update(shingles(text))
        near = self._index.query(sketch)
        if any(sketch.jaccard(self._sketches[key]) >= self._threshold for key in near):
            return True
        self._index.insert(len(self._sketches), sketch)
        self._sketches.append(sketch)
        return False


def shingles(text: str) -> list[str]:
    """Return the runs of 5 words of a text, or the text itself if it is shorter.

    >>> shingles("A b c d e f")
    ['a b c d e', 'b c d e f']
    """
    words = text.lower().split()
    if len(words) <= SHINGLE_WORDS:
        return [" ".join(words)]
    starts = range(len(words) - SHINGLE_WORDS + 1)
    return [" ".join(words[start : start + SHINGLE_WORDS]) for start in starts]


def filter_documents(
    inputs: Iterable[str | Path],
    output: Path,
    *,
    settings: TextSettings,
    near_duplicates: float | None = None,
    keep: Keep | None = None,
) -> Filtered:
    """Write the documents to keep to a .jsonl file, which `corpus build` reads.

    The first of several near duplicates is kept.

    Raises:
        LitebertError: An input cannot be read.
    """
    known = None if near_duplicates is None else NearDuplicates(near_duplicates)
    counts = Filtered()

    def lines() -> Iterator[bytes]:
        for text in _documents(inputs, settings):
            if keep is not None and not keep(text):
                counts.refused += 1
            elif known is not None and known.is_known(text):
                counts.near_duplicates += 1
            else:
                counts.kept += 1
                yield json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n"

    write_stream(output, lines())
    return counts


def load_keep(name: str) -> Keep:
    """Import a function `module:name` that decides whether a text is kept.

    Raises:
        LitebertError: LB-278, there is no such function.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise LitebertError(
            "LB-278",
            "there is no such function to keep documents by",
            received=f"{name}: {error}",
            expected="module:function, where Python finds the module",
            next="PYTHONPATH=. litebert corpus filter ... --keep my_filters:is_english",
        ) from error
    return cast(Keep, found)


def _documents(inputs: Iterable[str | Path], settings: TextSettings) -> Iterator[str]:
    for source in find_texts(inputs):
        held: list[str] = []
        for passage in read_passages(source, settings):
            if passage.is_start and held:
                yield "\n".join(held)
                held = []
            held.append(passage.text)
        yield "\n".join(held)
