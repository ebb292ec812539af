"""Write the texts of the packaged model: `python benchmarks/distillation/texts.py OUT`.

Needs LITEBERT_TEST_DATA with text/books.jsonl.gz, text/wiki_articles.jsonl.gz and
squad/train-v1.1.json.gz. Each chapter, each article, all paragraphs of a SQuAD article and all its
questions are a document. `sample.jsonl` holds every tenth chapter and all else, for the vocabulary.
`everyday.txt` has the everyday sentences of text/everyday.jsonl.gz, each a document of its own.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from litebert.files import append_line

NUM_FILES = 4


def main(out: Path) -> None:
    """Write text-0.jsonl ... text-3.jsonl and sample.jsonl into a new folder."""
    out.mkdir(parents=True)
    for number, (every, text) in enumerate(_documents(), 1):
        row = json.dumps({"text": text})
        append_line(out / f"text-{number % NUM_FILES}.jsonl", row)
        if number % every == 0:
            append_line(out / "sample.jsonl", row)


def everyday(out: Path) -> None:
    """Write the everyday sentences, each once, with a blank line between."""
    rows = _rows(Path(os.environ["LITEBERT_TEST_DATA"]) / "text" / "everyday.jsonl.gz")
    for sentence in dict.fromkeys(" ".join(row["text"].split()) for row in rows):
        append_line(out / "everyday.txt", f"{sentence}\n")


def _documents() -> Iterator[tuple[int, str]]:
    """Yield (every how many go into the sample, text)."""
    data = Path(os.environ["LITEBERT_TEST_DATA"])
    for book in _rows(data / "text" / "books.jsonl.gz"):
        for chapter in book["chapters"]:
            yield 10, chapter["text"]
    for article in _rows(data / "text" / "wiki_articles.jsonl.gz"):
        yield 1, article["text"]
    with gzip.open(data / "squad" / "train-v1.1.json.gz", "rt", encoding="utf-8") as file:
        for article in json.load(file)["data"]:
            paragraphs = article["paragraphs"]
            yield 1, "\n".join(part["context"] for part in paragraphs)
            yield 1, "\n".join(qa["question"].strip() for part in paragraphs for qa in part["qas"])


def _rows(path: Path) -> Iterator[dict]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    everyday(Path(sys.argv[1]))
