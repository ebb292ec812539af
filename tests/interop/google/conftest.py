"""Checkpoints of real TensorFlow (tests/tensorflow/make_fixtures.py), and what is in them."""

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

Numbers = Mapping[str, NDArray[np.float32]]


@pytest.fixture(scope="session")
def written() -> Path:
    """Give the folder of the checkpoints."""
    return Path(__file__).parent / "fixtures"


@pytest.fixture(scope="session")
def numbers(written: Path) -> Callable[[str], Numbers]:
    """Give a function that returns what TensorFlow wrote into one of them."""

    def read(name: str) -> Numbers:
        with np.load(written / name / "expected.npz", allow_pickle=False) as table:
            return dict(table)

    return read


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a SentencePiece model with as many pieces as the checkpoints have words."""
    from litebert.tokenizer import train_tokenizer

    words = ["".join(letters) for letters in product("aeinrst", repeat=3)]
    text = [" ".join(words[begin::13]) for begin in range(13)]
    path = tmp_path_factory.mktemp("vocabulary") / "30k-clean.model"
    path.write_bytes(train_tokenizer(text, vocab_size=40))
    return path
