"""A vocabulary trained on stories written here, and the stories as files."""

import gzip
import json
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import pytest

from litebert.corpus import Corpus
from litebert.tokenizer import Tokenizer, train_tokenizer

WHO = ("The ferryman", "A tired nurse", "My uncle", "Our neighbour", "Every pilot", "Nobody")
DID = ("found", "was painting", "could not sell", "has counted", "lent", "lost")
WHAT = ("nine lanterns", "a blue kettle", "some letters", "old boots", "the ladder", "three maps")

Story = list[str]


def tell(number: int, *, length: int = 9) -> Story:
    """Return the sentences of a story, another one for each number."""
    facts = list(product(WHO, DID, WHAT))
    return [
        "{} {} {} on day {}.".format(*facts[(7 * number + 11 * k) % len(facts)], number * 100 + k)
        for k in range(length)
    ]


@pytest.fixture(scope="session")
def stories() -> Callable[..., list[Story]]:
    """Give a teller of `count` stories that all differ, from story `first` on."""
    return lambda count, first=0: [tell(number) for number in range(first, first + count)]


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder of a vocabulary of 120 pieces."""
    folder = tmp_path_factory.mktemp("vocabulary")
    texts = ["The quick, brown fox jumps over a lazy dog."] * 9
    texts += [" ".join(tell(number)) for number in range(60)]
    model = train_tokenizer(texts, vocab_size=120, character_coverage=1.0)
    Tokenizer.from_model(model).save(folder)
    return folder


@pytest.fixture(scope="session")
def tokenizer(vocabulary: Path) -> Tokenizer:
    return Tokenizer.load(vocabulary)


@pytest.fixture
def jsonl(write: Callable[[str, bytes | str], Path]) -> Callable[[str, Sequence[Story]], Path]:
    """Give a writer of stories as .jsonl.gz, a row each."""

    def write_rows(name: str, rows: Sequence[Story]) -> Path:
        text = "".join(json.dumps({"text": " ".join(row)}) + "\n" for row in rows)
        return write(name, gzip.compress(text.encode(), mtime=0))

    return write_rows


def texts_of(corpus: Corpus, tokenizer: Tokenizer) -> list[list[str]]:
    """Return the sentences of every document, decoded."""
    return [
        [
            tokenizer.decode(shard.tokens[shard.sentences[k] : shard.sentences[k + 1]].tolist())
            for k in range(shard.documents[number], shard.documents[number + 1])
        ]
        for shard in corpus.shards
        for number in range(len(shard.documents) - 1)
    ]


@pytest.fixture(scope="session")
def read_back() -> Callable[[Corpus, Tokenizer], list[list[str]]]:
    return texts_of


@pytest.fixture(scope="session")
def tree() -> Callable[[Path], dict[str, bytes]]:
    """Give a reader of all files of a folder, hidden ones too."""
    return lambda folder: {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
