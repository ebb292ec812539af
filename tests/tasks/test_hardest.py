"""Hard example mining chooses the sequences of the largest loss, whole."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from litebert.config import AlbertConfig, ObjectiveConfig
from litebert.corpus import Corpus
from litebert.nn import AlbertForPretraining
from litebert.objectives.sampling import Loader
from litebert.objectives.sequences import PretrainingBatch, of_sequences
from litebert.tasks.finetuning import hardest_features
from litebert.tasks.kinds.family import Feature
from litebert.tasks.pretraining import hardest, micro_batches, sequence_losses
from litebert.train.sources import vocabulary_of


@pytest.fixture
def batch(corpus: Path) -> PretrainingBatch:
    opened = Corpus.open(corpus)
    loader = Loader(
        opened.shards,
        vocabulary=vocabulary_of(opened.tokenizer()),
        config=ObjectiveConfig(max_seq_length=40, short_seq_prob=0.5),
        batch_size=12,
        seed=1,
    )
    return loader.batch(0)


@pytest.fixture
def network() -> AlbertForPretraining:
    config = AlbertConfig(
        vocab_size=90,
        embedding_size=8,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=32,
        num_hidden_layers=2,
        hidden_dropout_prob=0.3,
        initializer_range=0.3,
    )
    return AlbertForPretraining(config, generator=torch.Generator().manual_seed(1))


def _sequence(batch: PretrainingBatch, number: int) -> PretrainingBatch:
    return of_sequences(batch, np.array([number]))


def _ids(batch: PretrainingBatch) -> list[tuple[int, ...]]:
    bounds = batch.offsets.tolist()
    return [tuple(batch.ids[a:b].tolist()) for a, b in pairwise(bounds)]


def test_the_hardest_sequences_stay_whole(batch: PretrainingBatch, network: AlbertForPretraining) -> None:
    network.eval()
    losses = []
    for number in range(12):
        (work,) = micro_batches(_sequence(batch, number), None, torch.device("cpu"))
        with torch.no_grad():
            losses.append(float(sequence_losses(network, work)))
    expected = {_ids(batch)[number] for number in np.argsort(losses)[-5:]}

    for micro_batch_size in (None, 5):
        found = hardest(network, batch, 5, micro_batch_size=micro_batch_size)
        assert set(_ids(found)) == expected
        assert network.training


def test_the_weight_of_a_label_does_not_make_an_example_hard() -> None:
    features = [
        Feature(([2, 5, 3],), ([0, 0, 0],), np.array([label]), number, weight=weight)
        for number, (label, weight) in enumerate([(0, 9.0), (1, 1.0), (0, 0.0), (1, 1.0)])
    ]
    weighted = torch.tensor([0.9, 0.5, 0.0, 0.7])  # losses 0.1, 0.5, unknown, 0.7

    class Known:
        def losses(self, *_: object) -> torch.Tensor:
            return weighted

    network = torch.nn.Linear(1, 1)
    chosen = hardest_features(features, network=network, family=Known(), keep=2)  # type: ignore[arg-type]
    assert [feature.example for feature in chosen] == [1, 3]
