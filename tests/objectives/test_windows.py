"""Corpora of several windows: any batch by its number, and no more held than two windows."""

import gc
import tracemalloc
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import pytest

from litebert.config.schema import ObjectiveConfig
from litebert.corpus import Shard
from litebert.objectives import Loader, Vocabulary, sentence_objective
from litebert.objectives.sampling import plan_epoch
from litebert.objectives.sentences import Library
from litebert.objectives.windows import Mixed, ShardSizes, Windowed, WindowOrder, estimated_samples

from .conftest import shard
from .test_batches_by_number import assert_equal

CONFIG = ObjectiveConfig(max_seq_length=64)
SHARDS = [shard(seed, num_documents=12 + seed) for seed in range(8)]


def _sizes(shards: Sequence[Shard]) -> list[ShardSizes]:
    return [ShardSizes(len(each.documents) - 1, len(each.sentences) - 1, each.tokens.size) for each in shards]


def _order(shards: Sequence[Shard], seed: int = 3) -> WindowOrder:
    sizes = _sizes(shards)
    samples = estimated_samples(sizes, CONFIG, sentence_objective("order"))
    pieces = tuple(size.pieces for size in sizes)
    return WindowOrder(samples, pieces, 3 * max(pieces), seed, "train")


class Opened:
    """Open shards, and remember which are still held."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards, self.held, self.most = shards, list[weakref.ref[Shard]](), 0

    def __call__(self, numbers: Sequence[int]) -> list[Shard]:
        gc.collect()
        made = [replace(self.shards[number]) for number in numbers]
        self.held = [each for each in (*self.held, *map(weakref.ref, made)) if each() is not None]
        self.most = max(self.most, len(self.held))
        return made


def _windowed(opened: Opened, vocabulary: Vocabulary, order: WindowOrder) -> Windowed:
    def open_loader(shards: Sequence[Shard], purpose: str, early_samples: int) -> Loader:
        opened = partial(Loader, shards, vocabulary=vocabulary, config=CONFIG, batch_size=12, seed=order.seed)
        return opened(purpose=purpose, early_mask_prob=0.5, early_samples=early_samples)

    return Windowed(order, opened, open_loader, batch_size=12, early_samples=100)


def test_an_epoch_has_every_shard_once_in_an_order_of_its_own() -> None:
    order = _order(SHARDS)
    epochs = [order.windows(epoch) for epoch in range(3)]
    for windows in epochs:
        assert sorted(chain.from_iterable(w.shards for w in windows)) == list(range(len(SHARDS)))
        assert len(windows) > 2
        assert all(sum(order.pieces[number] for number in w.shards) <= order.window_pieces for w in windows)
        samples = list(chain.from_iterable(window.samples for window in windows))
        assert samples == list(range(order.epoch_size))
    assert len({tuple(w.shards for w in windows) for windows in epochs}) == 3


def test_any_batch_is_the_same_in_any_order_while_two_windows_are_held(vocabulary: Vocabulary) -> None:
    order, opened = _order(SHARDS), Opened(SHARDS)
    steps = range(order.epoch_size // 12 + 20)  # crosses windows and an epoch
    forwards = _windowed(opened, vocabulary, order)
    batches = {step: forwards.batch(step) for step in steps}
    assert opened.most <= 3 * max(len(window.shards) for window in order.windows(0))
    assert opened.most < len(SHARDS) + 2
    backwards = _windowed(Opened(SHARDS), vocabulary, order)
    for step in reversed(steps):
        assert_equal(backwards.batch(step), batches[step])
    halves = [backwards.batch(40, rank=rank, world_size=2) for rank in range(2)]
    joined = np.concatenate([half.masked_ids for half in halves])
    np.testing.assert_array_equal(joined, batches[40].masked_ids)


def test_a_mix_of_windows_needs_no_sample_of_the_first_corpus(vocabulary: Vocabulary) -> None:
    corpora = [_windowed(Opened(SHARDS), vocabulary, _order(SHARDS, seed)) for seed in (3, 4)]
    first, again = (Mixed(corpora, [1, 9_999], batch_size=4, seed=1).batch(0) for _ in range(2))
    assert len(first.offsets) == 5
    assert_equal(first, again)


@pytest.mark.parametrize(("sentence", "length"), [("order", 64), ("next", 256), ("none", 256)])
def test_the_estimate_is_near_the_plan(sentence: str, length: int) -> None:
    config = ObjectiveConfig(sentence=sentence, max_seq_length=length)
    objective = sentence_objective(sentence)
    plan = plan_epoch(Library(SHARDS), config, sentence=objective, seed=1, purpose="train", epoch=0)
    estimated = sum(estimated_samples(_sizes(SHARDS), config, objective))
    assert estimated == pytest.approx(len(plan), rel=0.2)


def test_a_billion_documents_take_no_more_memory_than_two_windows(vocabulary: Vocabulary) -> None:
    text = SHARDS[0]
    count, documents, pieces = 7_500, 134_000, 67_000_000
    sizes = [ShardSizes(documents, 20 * documents, pieces)] * count
    tracemalloc.start()
    samples = estimated_samples(sizes, CONFIG, sentence_objective("order"))
    order = WindowOrder(samples, (pieces,) * count, 1 << 32, 1, "train")
    windowed = _windowed(Opened([text] * count), vocabulary, order)
    assert order.epoch_size > 1e9
    for step in (0, 10_000_000, 80_000_000):
        assert len(windowed.batch(step).offsets) == 13
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 << 20
