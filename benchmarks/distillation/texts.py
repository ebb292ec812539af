"""Write the texts of the packaged model: `python -m benchmarks.distillation.texts OUT`.

Needs LITEBERT_TEST_DATA with text/books.jsonl.gz, text/wiki_articles.jsonl.gz and
squad/train-v1.1.json.gz. Each chapter, each article, all paragraphs of a SQuAD article
and all its questions are a document. `sample.jsonl` has every tenth chapter and
everything else, for the vocabulary. `everyday.txt` has the sentences of
text/everyday.jsonl.gz, each a document. Two files have short documents from all
articles and every third chapter, except from the documents that a corpus of these texts
holds out (1 %): `sentences.txt` has single sentences of 6 to 40 words, `pairs.txt` has
two sentences in a row, of 4 to 40 words each. A sentence with the same noun, verb or
name twice is in neither `everyday.txt` nor `sentences.txt`: who fills a blank in one
sentence expects no word that already stands there.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.distillation.short_sentences import FREQUENT
from benchmarks.texts import DATA, rows, squad
from litebert.corpus.build import is_held_out
from litebert.corpus.text import TextSettings, split_sentences
from litebert.files import append_line, write_text

NUM_FILES = 4
HELD_OUT = 0.01


def main(out: Path) -> None:
    out.mkdir(parents=True)
    sentences = dict[str, None]()
    pairs = dict[str, None]()
    for number, (every, text) in enumerate(_documents(), 1):
        row = json.dumps({"text": text})
        append_line(out / f"text-{number % NUM_FILES}.jsonl", row)
        if number % every == 0:
            append_line(out / "sample.jsonl", row)
        if (every == 1 or number % 3 == 0) and not is_held_out(text, HELD_OUT):
            found = [
                " ".join(sentence.split())
                for sentence in split_sentences(text, TextSettings())
            ]
            fitting = (
                sentence for sentence in found if 6 <= len(sentence.split()) <= 40
            )
            sentences.update(
                dict.fromkeys(
                    sentence for sentence in fitting if not repeats_a_word(sentence)
                )
            )
            for pair in zip(found[::2], found[1::2], strict=False):
                if all(4 <= len(each.split()) <= 40 for each in pair) and not all(
                    each.endswith("?") for each in pair
                ):
                    pairs["\n".join(pair)] = None
    short = [
        " ".join(row["text"].split())
        for row in rows(DATA / "text" / "everyday.jsonl.gz")
    ]
    everyday = dict.fromkeys(text for text in short if not repeats_a_word(text))
    for name, documents in (
        ("everyday", everyday),
        ("sentences", sentences),
        ("pairs", pairs),
    ):
        write_text(
            out / f"{name}.txt", "".join(f"{document}\n\n" for document in documents)
        )


def repeats_a_word(sentence: str) -> bool:
    """Return whether a word of three letters or more, other than the most frequent
    ones, stands in it twice.
    """
    words = [
        word
        for word in re.findall(r"[a-z]{3,}", sentence.lower())
        if word not in FREQUENT
    ]
    return len(set(words)) < len(words)


def _documents() -> Iterator[tuple[int, str]]:
    """Yield (N, text), where one in N of these texts goes into the sample."""
    for book in rows(DATA / "text" / "books.jsonl.gz"):
        yield from ((10, chapter["text"]) for chapter in book["chapters"])
    for article in rows(DATA / "text" / "wiki_articles.jsonl.gz"):
        yield 1, article["text"]
    for paragraphs in squad("train"):
        yield 1, "\n".join(part["context"] for part in paragraphs)
        yield (
            1,
            "\n".join(
                qa["question"].strip() for part in paragraphs for qa in part["qas"]
            ),
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
