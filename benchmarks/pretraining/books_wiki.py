"""Pretrain on the books and articles of the test data: python -m benchmarks.pretraining.books_wiki OUT RECIPE

Needs LITEBERT_TEST_DATA with text/books.jsonl.gz (one book a line, with chapters) and
text/wiki_articles.jsonl.gz. Each chapter and each article is a document; a hundredth of them,
chosen by a hash of their text, is held out. OUT gets texts, vocabulary, corpus and run.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.texts import DATA, documents, rows
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
        for number, text in enumerate(documents()):
            append_line(texts[number % NUM_FILES], json.dumps({"text": text}))
    if not (out / "tokenizer").exists():
        # every third chapter, every second article
        chapters = sum(len(book["chapters"]) for book in rows(DATA / "text" / "books.jsonl.gz"))
        numbered = enumerate(documents(), 1)
        sample = (text for number, text in numbered if number % (3 if number <= chapters else 2) == 0)
        write_tokenizer(out / "tokenizer", train_tokenizer(sample, vocab_size=VOCABULARY_SIZE))
    build_corpus(texts, tokenizer=out / "tokenizer", output=out / "corpus", held_out=0.01)
    words = settings_from_words([f"data.corpus={out / 'corpus'}"])
    resolved = resolve(PretrainConfig, settings_from_toml(recipe), words)
    outcome = pretrain(resolved, out / "runs" / recipe.stem)
    print(outcome.model, write_report(outcome.folder))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("recipe", type=Path)
    main(**vars(parser.parse_args()))
