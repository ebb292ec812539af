"""A text gets the same vector, to the bit, whatever is in its batch."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch

import litebert
from litebert.hub import packaged_model

WORDS = ("the", "cat", "sat", "on", "a", "mat", "while", "dogs", "ran", "away", ".")
# words in a text: every short length, and some on both sides of the kernels' widths
LENGTHS = (*range(18), 29, 30, 31, 45, 61, 62, 63, 100)


@pytest.fixture
def threads() -> Iterator[None]:
    """Restore the number of threads."""
    number = torch.get_num_threads()
    yield
    torch.set_num_threads(number)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_text_has_the_same_vector_alone_and_in_every_batch(
    precision: str, num_threads: int
) -> None:
    torch.set_num_threads(num_threads)
    model = litebert.load(packaged_model(), precision=precision)
    draws = random.Random(1)
    texts = [" ".join(draws.choices(WORDS, k=length)) for length in LENGTHS]
    for pooling in ("mean", "cls"):
        for normalize in (False, True):
            alone = [
                model.embed(text, pooling=pooling, normalize=normalize)
                for text in texts
            ]
            for size in (2, 5, len(texts)):
                chosen = draws.sample(range(len(texts)), size)
                together = model.embed(
                    [texts[number] for number in chosen],
                    pooling=pooling,
                    normalize=normalize,
                )
                for number, vector in zip(chosen, together, strict=True):
                    assert np.array_equal(vector, alone[number]), texts[number]
