"""`litebert corpus filter`: leave out near duplicates before a build."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Required

from litebert import files
from litebert.corpus.text import Passage, TextSettings, read_documents, wrong_value
from litebert.errors import missing_package
from litebert.reading.source import JSON_LINES, find_texts

NUM_HASHES = 128
SHINGLE_WORDS = 5
# a Thai, Chinese or Japanese letter, or a run of others without a space
_WORD = re.compile("[\u0e00-\u0eff\u3040-\u9fff]|[^\\s\u0e00-\u0eff\u3040-\u9fff]+")


def corpus_filter(
    *inputs: Annotated[str, Required],
    output: Annotated[Path, "A .jsonl file."],
    near_duplicates: Annotated[
        float, "Omit documents this near to an earlier one."
    ] = 0.8,
    force: Annotated[bool, "Replace the file if it exists."] = False,
    documents: Annotated[
        Literal["blank-line", "file"], "Where documents of .txt files end."
    ] = "blank-line",
    column: Annotated[str, "Text column of JSONL or Parquet files."] = "text",
) -> str:
    """Write the documents worth keeping to a .jsonl file, which `corpus build` reads.

    Of several near duplicates, the first is kept; they have about this share of their
    word 5-grams in common, or more. In Japanese, Chinese and Thai, which are written
    without spaces, each letter counts as a word.

    litebert corpus filter raw.jsonl --output clean.jsonl
    litebert corpus filter stories.jsonl --near-duplicates 0.5 --output unlike.jsonl
    """
    if output.suffix not in JSON_LINES:
        expected = (
            "a name that ends in .jsonl or .ndjson, because rows of JSON are written"
        )
        raise wrong_value("output", output, expected, command="filter")
    if not 0 < near_duplicates <= 1:
        expected = "above 0, at most 1; 0.8 is 80 % of the word 5-grams"
        raise wrong_value(
            "near-duplicates", near_duplicates, expected, command="filter"
        )
    if_exists = files.by_force(force)
    files.require_new(output, if_exists=if_exists)  # before anything is read
    index = _Index(near_duplicates)
    settings = TextSettings(documents=documents, column=column)

    def lines() -> Iterator[bytes]:
        for source in find_texts(inputs):
            for passages in read_documents(source, settings):
                text = _join(passages)
                if index.keeps(text):
                    row = json.dumps({"text": text}, ensure_ascii=False)
                    yield f"{row}\n".encode()

    files.write_stream(output, lines(), if_exists=if_exists)
    return (
        f"{index.num_kept:,} documents kept, {index.num_near:,} near duplicates omitted"
    )


def _join(passages: Iterable[Passage]) -> str:
    """Return the text of a document, with the blank lines between its passages."""
    text = ""
    end = 0  # the line where the text so far ends
    for passage in passages:
        if text:
            text += "\n" * (passage.line - end)
        text += passage.text
        end = passage.line + passage.text.count("\n")
    return text


class _Index:
    """The documents kept so far, as MinHash sketches (Broder 1997): 128 hashes of 4
    bytes each. Only sketches that have a band of hashes in common are compared.
    """

    def __init__(self, threshold: float) -> None:
        try:
            from rensa import RMinHashLSH
        except ImportError as error:
            raise missing_package(
                "rensa", extra="data", needed_for="near duplicates"
            ) from error
        self.threshold = threshold
        self.num_near = 0
        self._kept = list[Any]()  # sketches
        self._bands: Any = RMinHashLSH(threshold, NUM_HASHES, _num_bands(threshold))

    @property
    def num_kept(self) -> int:
        return len(self._kept)

    def keeps(self, text: str) -> bool:
        """Keep a document unless it is near to an earlier one; return whether."""
        sketch = _sketch(text)
        for number in self._bands.query(sketch):  # documents with a band in common
            # the share of equal hashes estimates the share of common 5-grams
            if sketch.jaccard(self._kept[number]) >= self.threshold:
                self.num_near += 1
                return False
        self._bands.insert(self.num_kept, sketch)
        self._kept.append(sketch)
        return True


def _num_bands(threshold: float) -> int:
    """Return how many bands find nearly all documents that are this near.

    Two documents with a share s of their 5-grams in common have the same hash with
    probability s, and so a band of r hashes with s ** r: with b bands, they are
    compared with probability 1 - (1 - s ** r) ** b, where b * r = 128.
    """
    if threshold >= 0.75:
        return 16
    return 32 if threshold >= 0.5 else 64


def _sketch(text: str) -> Any:
    """Return the MinHash of the word 5-grams of a text."""
    from rensa import RMinHash

    words = _WORD.findall(text.lower())
    # a shorter text is a single run of words
    num_runs = max(1, len(words) - SHINGLE_WORDS + 1)
    runs = list[str]()
    for start in range(num_runs):
        runs.append(" ".join(words[start : start + SHINGLE_WORDS]))
    sketch = RMinHash(num_perm=NUM_HASHES, seed=1)
    sketch.update(runs)
    return sketch
