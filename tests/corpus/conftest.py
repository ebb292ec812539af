"""Generated stories, a vocabulary trained on them, and ways to write and read them."""

import json
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import TypeAlias

import pytest

from litebert.corpus import Corpus, build_corpus
from litebert.corpus.build import CorpusSummary
from litebert.tokenizer import Tokenizer, train_tokenizer

WHO = (
    "The ferryman",
    "A tired nurse",
    "My uncle",
    "Our neighbour",
    "Every pilot",
    "Nobody",
)
DID = ("found", "was painting", "could not sell", "has counted", "lent", "lost")
WHAT = (
    "nine lanterns",
    "a blue kettle",
    "some letters",
    "old boots",
    "the ladder",
    "three maps",
)
FACTS = list(product(WHO, DID, WHAT))

Story = list[str]
Write: TypeAlias = Callable[[str, bytes | str], Path]
Build: TypeAlias = Callable[..., CorpusSummary]


def tales(count: int, first: int = 0) -> list[Story]:
    """Return stories of nine sentences that all differ, from story `first` on."""
    return [
        [
            "{} {} {} on day {}.".format(
                *FACTS[(7 * number + 11 * k) % 216], number * 100 + k
            )
            for k in range(9)
        ]
        for number in range(first, first + count)
    ]


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a vocabulary of 120 pieces and return its folder."""
    folder = tmp_path_factory.mktemp("vocabulary")
    texts = ["The quick, brown fox jumps over a lazy dog."] * 9 + [
        " ".join(story) for story in tales(60)
    ]
    Tokenizer.from_model(train_tokenizer(texts, vocab_size=120)).save(folder)
    return folder


@pytest.fixture
def build(vocabulary: Path, tmp_path: Path) -> Build:
    """Return a function that builds a corpus in `tmp_path / output`."""

    def built(
        *inputs: Path, output: str = "corpus", workers: int = 1, **settings: object
    ) -> CorpusSummary:
        return build_corpus(
            inputs,
            tokenizer=vocabulary,
            output=tmp_path / output,
            workers=workers,
            **settings,
        )

    return built


def paragraphs(stories: Iterable[Story]) -> str:
    """Format stories with a blank line between them and a line for each sentence."""
    return "\n\n".join("\n".join(story) for story in stories)


def rows(stories: list[Story] | list[str]) -> str:
    """Format each story as a row of JSON."""
    texts = [story if isinstance(story, str) else " ".join(story) for story in stories]
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def texts_of(corpus: Corpus) -> list[Story]:
    """Return the sentences of every document, decoded."""
    decode = corpus.tokenizer().decode
    return [
        [
            decode(shard.between(k, k + 1).tolist())
            for k in range(*shard.documents[number : number + 2])
        ]
        for shard in corpus.shards
        for number in range(len(shard.documents) - 1)
    ]
