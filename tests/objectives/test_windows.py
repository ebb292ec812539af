"""Corpora of several windows: any batch by its number, and no more held than two windows."""

import gc
import tracemalloc
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import pytest

from litebert.config.schema import ObjectiveConfig
from litebert.corpus import Shard
from litebert.corpus.shards import Counts
from litebert.objectives import Loader, Vocabulary, sentence_objective
from litebert.objectives.sampling import plan_epoch
from litebert.objectives.sequences import Library
from litebert.objectives.windows import Mixed, Windowed, estimated_samples

from .conftest import shard
from .test_batches_by_number import assert_equal

CONFIG = ObjectiveConfig(max_seq_length=64)
SETTINGS = {"config": CONFIG, "batch_size": 12}
SHARDS = [shard(seed, num_documents=12 + seed) for seed in range(8)]


COUNTS = [
    Counts(documents=len(each.documents) - 1, sentences=len(each.sentences) - 1, tokens=each.tokens.size)
    for each in SHARDS
]
WINDOW = 3 * max(each.tokens for each in COUNTS)


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


def _windowed(opened: Opened, vocabulary: Vocabulary, seed: int = 3) -> Windowed:
    open_loader = partial(Loader, vocabulary=vocabulary, config=CONFIG, batch_size=12, seed=seed, early_mask_prob=0.5)
    return Windowed(COUNTS, opened, open_loader, early_samples=100, window_pieces=WINDOW, seed=seed, **SETTINGS)


def test_an_epoch_has_every_shard_once_in_an_order_of_its_own(vocabulary: Vocabulary) -> None:
    windowed = _windowed(Opened(SHARDS), vocabulary)
    epochs = [windowed.windows(epoch) for epoch in range(3)]
    for windows in epochs:
        assert sorted(chain.from_iterable(w.shards for w in windows)) == list(range(len(SHARDS)))
        assert len(windows) > 2
        assert all(sum(COUNTS[number].tokens for number in w.shards) <= WINDOW for w in windows)
        samples = list(chain.from_iterable(window.samples for window in windows))
        assert samples == list(range(windowed.epoch_size))
    assert len({tuple(w.shards for w in windows) for windows in epochs}) == 3


def test_any_batch_is_the_same_in_any_order_while_two_windows_are_held(vocabulary: Vocabulary) -> None:
    opened = Opened(SHARDS)
    forwards = _windowed(opened, vocabulary)
    steps = range(forwards.epoch_size // 12 + 20)  # crosses windows and an epoch
    batches = {step: forwards.batch(step) for step in steps}
    assert opened.most <= 3 * max(len(window.shards) for window in forwards.windows(0))
    assert opened.most < len(SHARDS) + 2
    backwards = _windowed(Opened(SHARDS), vocabulary)
    for step in reversed(steps):
        assert_equal(backwards.batch(step), batches[step])
    corpora = [_windowed(Opened(SHARDS), vocabulary, seed) for seed in (3, 4)]
    mixes = [Mixed(corpora, [1, 9_999], batch_size=4, seed=1).batch(0) for _ in range(2)]  # the second corpus alone
    assert_equal(*mixes)


@pytest.mark.parametrize(("sentence", "length"), [("order", 64), ("next", 256), ("none", 256)])
def test_the_estimate_is_near_the_plan(sentence: str, length: int) -> None:
    config = ObjectiveConfig(sentence=sentence, max_seq_length=length)
    objective = sentence_objective(sentence)
    plan = plan_epoch(Library(SHARDS), config, objective, seed=1, purpose="train", epoch=0)
    estimated = sum(estimated_samples(COUNTS, config))
    assert estimated == pytest.approx(len(plan), rel=0.2)


def test_a_billion_documents_take_no_more_memory_than_two_windows(vocabulary: Vocabulary) -> None:
    text = SHARDS[0]
    count, documents, pieces = 7_500, 134_000, 67_000_000
    sizes = [Counts(documents=documents, sentences=20 * documents, tokens=pieces)] * count
    tracemalloc.start()
    open_loader = partial(Loader, vocabulary=vocabulary, config=CONFIG, batch_size=12, seed=1)
    windowed = Windowed(sizes, Opened([text] * count), open_loader, window_pieces=1 << 32, seed=1, **SETTINGS)
    assert windowed.epoch_size > 1e9
    for step in (0, 10_000_000, 80_000_000):
        assert len(windowed.batch(step).offsets) == 13
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 << 20
