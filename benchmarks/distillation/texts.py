"""Write the texts of the packaged model: `python -m benchmarks.distillation.texts OUT`.

Needs LITEBERT_TEST_DATA with text/books.jsonl.gz, text/wiki_articles.jsonl.gz and squad/train-v1.1.json.gz. Each
chapter, each article, all paragraphs of a SQuAD article and all its questions are a document. `sample.jsonl` holds
every tenth chapter and all else, for the vocabulary. `everyday.txt` has the everyday sentences of
text/everyday.jsonl.gz, each a document of its own.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.texts import DATA, rows, squad
from litebert.files import append_line

NUM_FILES = 4


def main(out: Path) -> None:
    out.mkdir(parents=True)
    for number, (every, text) in enumerate(_documents(), 1):
        row = json.dumps({"text": text})
        append_line(out / f"text-{number % NUM_FILES}.jsonl", row)
        if number % every == 0:
            append_line(out / "sample.jsonl", row)
    for sentence in dict.fromkeys(" ".join(row["text"].split()) for row in rows(DATA / "text" / "everyday.jsonl.gz")):
        append_line(out / "everyday.txt", f"{sentence}\n")


def _documents() -> Iterator[tuple[int, str]]:
    """Yield (every how many go into the sample, text)."""
    for book in rows(DATA / "text" / "books.jsonl.gz"):
        yield from ((10, chapter["text"]) for chapter in book["chapters"])
    for article in rows(DATA / "text" / "wiki_articles.jsonl.gz"):
        yield 1, article["text"]
    for paragraphs in squad("train"):
        yield 1, "\n".join(part["context"] for part in paragraphs)
        yield 1, "\n".join(qa["question"].strip() for part in paragraphs for qa in part["qas"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
