"""A small vocabulary trained on generated sentences, and the paragraphs of real
articles.
"""

import gzip
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from litebert.tokenizer import Tokenizer, train_tokenizer
from litebert.tokenizer.model_file import Piece, write_model

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


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """Return 729 sentences with enough numbers for pieces such as `▁2,`."""
    return [
        f"In {1700 + 7 * k % 311}, {who} {did} {137 * k % 9000:,} {what}, or № {k}."
        for k, (who, did, what) in enumerate(
            product(*(words.split(", ") for words in (SUBJECTS, VERBS, THINGS)))
        )
    ]


@pytest.fixture(scope="session")
def own_model(sentences: list[str]) -> bytes:
    return train_tokenizer(sentences, vocab_size=300)


@pytest.fixture(scope="session")
def own(own_model: bytes) -> Tokenizer:
    return Tokenizer.from_model(own_model)


@pytest.fixture(scope="session")
def paragraphs(real_data: Path) -> list[str]:
    with gzip.open(
        real_data / "text" / "wiki_articles.jsonl.gz", "rt", encoding="utf-8"
    ) as file:
        texts = [json.loads(line)["text"] for line in file]
    return [paragraph for text in texts for paragraph in text.split("\n") if paragraph]


@pytest.fixture(scope="session")
def make_model() -> Callable[[dict[str, float]], bytes]:
    """Return a function that builds a sentencepiece model: special pieces first, then
    the given ones.
    """
    special = [
        Piece(name, 0.0, 2 if name == "<unk>" else 3)
        for name in ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
    ]
    return lambda scores: write_model(
        [*special, *(Piece(text, score, 1) for text, score in scores.items())], b""
    )
