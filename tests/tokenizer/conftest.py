"""Small vocabularies, trained on generated sentences or written by hand, and the
paragraphs of real articles.
"""

import gzip
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from litebert.tokenizer import Tokenizer, train_tokenizer
from litebert.tokenizer.model_file import CONTROL, NORMAL, UNKNOWN, Piece, write_model

SUBJECTS = (
    "The old miller, A young captain, Her sister's café, Our naïve neighbour, Jürgen,"
    " The baker's daughter, Nobody in Århus, Every third sailor, My grandfather"
)
VERBS = (
    "counted, was selling, could not find, remembered, had weighed, is mending, carried"
    " home, gave away, painted"
)
THINGS = (
    "sacks of flour, wooden boats, letters (unread), well-known songs, ripe apples,"
    " broken windows, pairs of shoes, black umbrellas, lanterns"
)

WORDPIECES = (
    "[UNK] [CLS] [SEP] want ##want ##ed wa un runn ##ing , [PAD] [MASK] hello ! how are"
    " you ? ah 博 推 zz ` $ anna walked to the house there she found 1 024 red ball ##s"
    " zoe said no ; :"
)


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """Return 729 sentences with enough numbers for pieces such as `▁2,`."""
    texts = []
    lists = [words.split(", ") for words in (SUBJECTS, VERBS, THINGS)]
    for number, (subject, verb, thing) in enumerate(product(*lists)):
        year = 1700 + 7 * number % 311
        amount = 137 * number % 9000
        texts.append(f"In {year}, {subject} {verb} {amount:,} {thing}, or № {number}.")
    return texts


@pytest.fixture(scope="session")
def wordpiece(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("wordpiece") / "vocab.txt"
    path.write_text(WORDPIECES.replace(" ", "\n") + "\n", encoding="utf-8")
    return Tokenizer.load(path)


@pytest.fixture(scope="session")
def own_model(sentences: list[str]) -> bytes:
    return train_tokenizer(sentences, vocab_size=300)


@pytest.fixture(scope="session")
def own(own_model: bytes) -> Tokenizer:
    return Tokenizer.from_model(own_model)


@pytest.fixture(scope="session")
def paragraphs(real_data: Path) -> list[str]:
    lines = list[str]()
    path = real_data / "text" / "wiki_articles.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in file:
            lines.extend(json.loads(row)["text"].split("\n"))
    return [line for line in lines if line]


@pytest.fixture(scope="session")
def make_model() -> Callable[[dict[str, float]], bytes]:
    """Return a function that builds a sentencepiece model: special pieces first, then
    the given ones.
    """
    special = [
        Piece("<pad>", 0.0, CONTROL),
        Piece("<unk>", 0.0, UNKNOWN),
        Piece("[CLS]", 0.0, CONTROL),
        Piece("[SEP]", 0.0, CONTROL),
        Piece("[MASK]", 0.0, CONTROL),
    ]

    def make(scores: dict[str, float]) -> bytes:
        pieces = [Piece(text, score, NORMAL) for text, score in scores.items()]
        return write_model([*special, *pieces], b"")

    return make
