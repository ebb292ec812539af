"""A small vocabulary trained on sentences written here, and the official one where the data is."""

import gzip
import json
import struct
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from litebert.tokenizer import Tokenizer, train_tokenizer

SUBJECTS = (
    "The old miller", "A young captain", "Her sister's café", "Our naïve neighbour", "Jürgen",
    "The baker's daughter", "Nobody in Århus", "Every third sailor", "My grandfather",
)  # fmt: skip
VERBS = (
    "counted", "was selling", "could not find", "remembered", "had weighed", "is mending",
    "carried home", "gave away", "painted",
)  # fmt: skip
THINGS = (
    "sacks of flour", "wooden boats", "letters (unread)", "well-known songs", "ripe apples",
    "broken windows", "pairs of shoes", "black umbrellas", "lanterns",
)  # fmt: skip


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """Give 729 sentences with numbers enough for pieces such as `▁2,`."""
    return [
        f"In {1700 + 7 * k % 311}, {who} {did} {137 * k % 9000:,} {what}, or № {k}."
        for k, (who, did, what) in enumerate(product(SUBJECTS, VERBS, THINGS))
    ]


@pytest.fixture(scope="session")
def own_model(sentences: list[str]) -> bytes:
    return train_tokenizer(sentences, vocab_size=300)


@pytest.fixture(scope="session")
def own(own_model: bytes) -> Tokenizer:
    return Tokenizer.from_model(own_model)


@pytest.fixture(scope="session")
def official(real_data: Path) -> Tokenizer:
    return Tokenizer.load(real_data / "tokenizer" / "spiece.model")


@pytest.fixture(scope="session")
def paragraphs(real_data: Path) -> list[str]:
    with gzip.open(real_data / "text" / "wiki_articles.jsonl.gz", "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    return [paragraph for text in texts for paragraph in text.split("\n") if paragraph]


@pytest.fixture(scope="session")
def wikitext(real_data: Path) -> list[str]:
    with gzip.open(real_data / "text" / "wikitext2_test.txt.gz", "rt", encoding="utf-8") as file:
        return [line for line in file if line.strip()]


def _varint(value: int) -> bytes:
    low = bytes([value & 0x7F | (0x80 if value > 0x7F else 0)])
    return low + _varint(value >> 7) if value > 0x7F else low


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


@pytest.fixture(scope="session")
def message() -> Callable[[int, bytes], bytes]:
    """Give a writer of one protobuf field that holds bytes."""
    return _message


@pytest.fixture(scope="session")
def make_model() -> Callable[[dict[str, float]], bytes]:
    """Give a writer of sentencepiece models: special pieces first, then those given."""

    def make(scores: dict[str, float], **kinds: int) -> bytes:
        special = {"<pad>": 3, "<unk>": 2, "[CLS]": 3, "[SEP]": 3, "[MASK]": 3} | kinds
        pieces = dict.fromkeys(special, 0.0) | scores
        return b"".join(
            _message(
                1, _message(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([24, special.get(text, 1)])
            )
            for text, score in pieces.items()
        )

    return make
