"""Pretrain on the books and articles of the test data: OUT and RECIPE on the command line.

Needs LITEBERT_TEST_DATA with text/books.jsonl.gz (one book a line, with chapters) and
text/wiki_articles.jsonl.gz. Each chapter and each article is a document; a hundredth of them,
chosen by a hash of their text, is held out. OUT gets texts, vocabulary, corpus and run.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from litebert.config import PretrainConfig, resolve, settings_from_toml, settings_from_words
from litebert.corpus import build_corpus
from litebert.files import append_line
from litebert.report import write_report
from litebert.tokenizer.train import train_tokenizer, write_tokenizer
from litebert.train.pretrain import pretrain

VOCABULARY_SIZE = 16_000
NUM_FILES = 4


def main(out: Path, recipe: Path) -> None:
    """Make what is not there yet, then train or go on training."""
    texts = [out / f"text-{number}.jsonl" for number in range(NUM_FILES)]
    if not all(path.exists() for path in texts):
        for number, (_, _, text) in enumerate(_documents()):
            append_line(texts[number % NUM_FILES], json.dumps({"text": text}))
    if not (out / "tokenizer").exists():
        sample = (text for kind, number, text in _documents() if number % kind == 0)
        write_tokenizer(out / "tokenizer", train_tokenizer(sample, vocab_size=VOCABULARY_SIZE))
    build_corpus(texts, tokenizer=out / "tokenizer", output=out / "corpus", held_out=0.01)
    words = settings_from_words([f"data.corpus={out / 'corpus'}"])
    resolved = resolve(PretrainConfig, settings_from_toml(recipe), words)
    outcome = pretrain(resolved, out / "runs" / recipe.stem)
    print(outcome.model, write_report(outcome.folder))


def _documents() -> Iterator[tuple[int, int, str]]:
    """Yield (every how many are for the vocabulary, number, text) of chapters and articles."""
    data = Path(os.environ["LITEBERT_TEST_DATA"]) / "text"
    number = 0
    for book in _rows(data / "books.jsonl.gz"):
        for chapter in book["chapters"]:
            number += 1
            yield 3, number, chapter["text"]
    for article in _rows(data / "wiki_articles.jsonl.gz"):
        number += 1
        yield 2, number, article["text"]


def _rows(path: Path) -> Iterator[dict]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
