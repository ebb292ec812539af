"""Write the texts of the packaged model: `python -m benchmarks.distillation.texts OUT`.

Needs LITEBERT_TEST_DATA with the files that `benchmarks.texts` names BOOKS, ARTICLES
and EVERYDAY, and squad/train-v1.1.json.gz. It writes

- `text-0.jsonl` to `text-3.jsonl`, the documents: each chapter of a book, each article
  of Wikipedia, and of each SQuAD article all paragraphs, and all questions;
- `sample.jsonl`, for the vocabulary: every tenth chapter, and all other documents;
- `everyday.txt`: the sentences of everyday English, each a document;
- `sentences.txt` and `pairs.txt`: short documents from the articles and from every
  third chapter, except from the documents that a corpus of these texts holds out (1 %).
  A document is one sentence of 6 to 40 words, or two in a row, of 4 to 40 words each.

A sentence that has the same noun, verb or name twice is in neither `everyday.txt` nor
`sentences.txt`: who fills a blank in one sentence expects no word that already stands
there.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.distillation.short_sentences import FREQUENT
from benchmarks.texts import EVERYDAY, articles, chapters, rows, squad
from litebert.corpus.part import is_held_out
from litebert.corpus.text import TextSettings, split_sentences
from litebert.files import append_line, write_text

NUM_FILES = 4
HELD_OUT = 0.01
SENTENCE_WORDS = range(6, 41)
PAIR_WORDS = range(4, 41)


@dataclass(frozen=True)
class Document:
    text: str
    is_chapter: bool = False


def main(out: Path) -> None:
    out.mkdir(parents=True)
    # as keys of a dict: without repetitions, in order
    sentences = dict[str, None]()
    pairs = dict[str, None]()
    for number, document in enumerate(_documents(), 1):
        row = json.dumps({"text": document.text})
        append_line(out / f"text-{number % NUM_FILES}.jsonl", row)
        if not document.is_chapter or number % 10 == 0:
            append_line(out / "sample.jsonl", row)
        is_cut = not document.is_chapter or number % 3 == 0
        if is_cut and not is_held_out(document.text, HELD_OUT):
            split = split_sentences(document.text, TextSettings())
            lines = [_one_line(sentence) for sentence in split]
            sentences |= dict.fromkeys(_short_sentences(lines))
            pairs |= dict.fromkeys(_short_pairs(lines))
    everyday = [_one_line(row["text"]) for row in rows(EVERYDAY)]
    fresh = [text for text in everyday if not repeats_a_word(text)]
    _write_documents(out / "everyday.txt", dict.fromkeys(fresh))
    _write_documents(out / "sentences.txt", sentences)
    _write_documents(out / "pairs.txt", pairs)


def _documents() -> Iterator[Document]:
    for chapter in chapters():
        yield Document(chapter, is_chapter=True)
    for article in articles():
        yield Document(article)
    for paragraphs in squad("train"):
        yield Document("\n".join(paragraph["context"] for paragraph in paragraphs))
        questions = list[str]()
        for paragraph in paragraphs:
            questions += [qa["question"].strip() for qa in paragraph["qas"]]
        yield Document("\n".join(questions))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _short_sentences(sentences: Iterable[str]) -> Iterator[str]:
    for sentence in sentences:
        is_short = len(sentence.split()) in SENTENCE_WORDS
        if is_short and not repeats_a_word(sentence):
            yield sentence


def _short_pairs(sentences: list[str]) -> Iterator[str]:
    """Yield two sentences in a row, each in at most one pair; not two questions."""
    for pair in zip(sentences[::2], sentences[1::2], strict=False):
        are_short = all(len(sentence.split()) in PAIR_WORDS for sentence in pair)
        are_questions = all(sentence.endswith("?") for sentence in pair)
        if are_short and not are_questions:
            yield "\n".join(pair)


def repeats_a_word(sentence: str) -> bool:
    """Return whether a word of three letters or more, other than the most frequent
    ones, stands in it twice.
    """
    words = re.findall(r"[a-z]{3,}", sentence.lower())
    rare = [word for word in words if word not in FREQUENT]
    return len(set(rare)) < len(rare)


def _write_documents(path: Path, documents: Iterable[str]) -> None:
    """Write documents as plain text; a blank line ends each of them."""
    write_text(path, "".join(f"{document}\n\n" for document in documents))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
