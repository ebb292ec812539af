"""Several corpora as one stream of samples, each found from its number."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from litebert.config import PretrainConfig, Resolved, resolve, settings_from_words
from litebert.errors import LitebertError
from litebert.objectives import sentence_objective
from litebert.objectives.windows import CYCLE, Mixed, counts_in_cycle
from litebert.train.sources import batches_of

Words = Callable[..., Resolved[PretrainConfig]]


def test_each_corpus_gives_every_sample_once_and_exactly_its_share() -> None:
    mixed = Mixed([], [5, 3, 2], batch_size=4, seed=1)
    corpora, numbers = mixed.places(np.arange(2 * CYCLE))
    assert np.bincount(corpora).tolist() == [10_000, 6_000, 4_000]
    for corpus, count in enumerate((10_000, 6_000, 4_000)):
        assert sorted(numbers[corpora == corpus]) == list(range(count))


def test_a_corpus_without_a_share_is_refused() -> None:
    with pytest.raises(LitebertError, match="LB-268"):
        counts_in_cycle([1e9, 1.0])


def test_ranks_laid_end_to_end_are_the_batch_of_one(corpus: Path) -> None:
    words = [f"data.corpus={corpus}", f'data.mix=["{corpus / "held-out"}"]']
    words += ["data.weights=[2, 1]", "train.batch_size=7", "objective.max_seq_length=48"]
    config = resolve(PretrainConfig, settings_from_words(words)).config
    batches = batches_of(corpus, config=config, sentence=sentence_objective("order"))
    whole = batches.batch(5)
    parts = [batches.batch(5, rank=rank, world_size=3) for rank in range(3)]
    assert np.array_equal(np.concatenate([part.ids for part in parts]), whole.ids)
    again = batches_of(corpus, config=config, sentence=sentence_objective("order"))
    assert np.array_equal(again.batch(5).ids, whole.ids)
