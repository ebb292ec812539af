"""One sample: its place in a shuffled epoch, its sentences, and what is cut off,
compared with the official loops on the same draws.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert import rng
from litebert.config import ObjectiveConfig
from litebert.corpus import Shard
from litebert.objectives import sequences
from litebert.objectives.loading import plan_epoch
from litebert.objectives.sentences import (
    ALONE,
    IN_ORDER,
    RANDOM_SECOND,
    SWAPPED,
    Instance,
    Library,
)
from litebert.rng import Ints, permutation, stream

from .conftest import NUMBERED, NUMBERS

# ---- places in a shuffled epoch ------------------------------------------------------


def shuffled(length: int, places: Ints, *, seed: int = 1, epoch: int = 0) -> Ints:
    return permutation(seed, "test", epoch, length, places)


def test_every_place_of_an_epoch_of_any_length_is_taken_once() -> None:
    for length in range(2_001):
        places = np.arange(length)
        np.testing.assert_array_equal(np.sort(shuffled(length, places)), places)


def test_places_of_a_huge_epoch_do_not_collide() -> None:
    length = 10**9 + 7
    first_places = np.arange(10_000)
    last_places = length - 1 - first_places
    places = np.concatenate([first_places, last_places])
    order = shuffled(length, places)
    assert order.min() >= 0
    assert order.max() < length
    assert len(np.unique(order)) == len(places)


@pytest.mark.parametrize(("seed", "epoch"), [(2, 0), (1, 1)])
def test_seed_and_epoch_change_the_order(seed: int, epoch: int) -> None:
    places = np.arange(10_000)
    other = shuffled(10_000, places, seed=seed, epoch=epoch)
    assert (shuffled(10_000, places) != other).mean() > 0.99


def test_the_order_depends_neither_on_the_place_nor_on_the_order_before() -> None:
    places = np.arange(10_000)
    order = shuffled(10_000, places)
    most = 5 / np.sqrt(10_000)  # 5 sigma of independent numbers
    assert abs(np.corrcoef(places, order)[0, 1]) < most
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < most


# ---- sentences of a sample -----------------------------------------------------------

CONFIGS = st.builds(
    ObjectiveConfig,
    sentence=st.sampled_from(["order", "order-official", "next", "none"]),
    max_seq_length=st.integers(8, 64),
    short_seq_prob=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    short_seq_per=st.sampled_from(["instance", "document"]),
)


@dataclass(frozen=True)
class OfficialLoop:
    """Walk through a document sentence by sentence, as the official script does, with
    our draws.
    """

    config: ObjectiveConfig
    epoch: int
    offset: int  # the number of the document's first sentence
    lengths: list[int]  # of its sentences, in tokens

    def chunks(self) -> Iterator[tuple[int, ...]]:
        """Yield start, middle, end, kind and target of each chunk."""
        last = len(self.lengths) - 1
        i = 0
        while i <= last:
            if self._needs_two and i == last:
                i -= 1
            target = self._target(i)
            size = self._size(i, target)
            kind, middle = self._kind(i, size)
            start = self.offset + i
            yield start, start + middle, start + size, kind, target
            # the sentences that a random second replaced are read again
            is_replaced = self.config.sentence == "next" and kind == RANDOM_SECOND
            i += middle if is_replaced else size

    @property
    def _needs_two(self) -> bool:
        return self.config.sentence == "order" and len(self.lengths) > 1

    def _draw(self, purpose: str, sentence: int) -> float:
        return float(rng.uniform(7, f"train-{purpose}", self.epoch, 0, sentence))

    def _target(self, i: int) -> int:
        """Return how many tokens the chunk is to have."""
        num_special = 2 if self.config.sentence == "none" else 3
        longest = self.config.max_seq_length - num_special
        key = self.offset
        if self.config.short_seq_per == "instance":
            key += i
        if self._draw("is-short", key) >= self.config.short_seq_prob:
            return longest
        return 2 + int(self._draw("short", key) * (longest - 1))

    def _size(self, i: int, target: int) -> int:
        """Return the number of sentences that reach the target."""
        least = 2 if self._needs_two else 1
        sentences = self.lengths[i:]
        for size in range(least, len(sentences)):
            if sum(sentences[:size]) >= target:
                return size
        return len(sentences)

    def _kind(self, i: int, size: int) -> tuple[int, int]:
        """Return the kind of the chunk and the size of its first segment."""
        sentence = self.config.sentence
        if sentence == "none":
            return IN_ORDER, size
        if size == 1:
            return (ALONE if sentence == "order" else RANDOM_SECOND), size
        start = self.offset + i
        middle = 1 + int(self._draw("middle", start) * (size - 1))
        if self._draw("kind", start) >= 0.5:
            return IN_ORDER, middle
        return (RANDOM_SECOND if sentence == "next" else SWAPPED), middle


DOCUMENTS = st.lists(
    st.lists(st.integers(1, 30), min_size=1, max_size=12), min_size=1, max_size=8
)


@given(DOCUMENTS, CONFIGS, st.integers(0, 50))
@settings(max_examples=300, deadline=None)
def test_chunks_are_those_of_the_official_loop(
    documents: list[list[int]], config: ObjectiveConfig, epoch: int
) -> None:
    starts = np.cumsum([0, *map(len, documents)])
    sentences = np.cumsum([0, *chain.from_iterable(documents)])
    text = Shard(np.zeros(sentences[-1], np.uint16), sentences, starts)
    plan = plan_epoch(Library([text]), config, seed=7, purpose="train", epoch=epoch)

    expected = list[tuple[int, ...]]()
    for lengths, start in zip(documents, starts[:-1].tolist(), strict=True):
        loop = OfficialLoop(config, epoch, start, lengths)
        expected.extend(loop.chunks())
    planned = [tuple(row) for row in plan[:, 1:].tolist()]  # without the shard
    assert sorted(planned) == sorted(expected)


# ---- what is framed and cut off ------------------------------------------------------

# Sentences 14 and 15 of the numbered corpus against 16 to 18. A sentence has 10 tokens, a
# document 12 sentences, and token i the id 5 + i.
INSTANCE = Instance(shard=0, start=14, middle=16, end=19, kind=IN_ORDER, target=50)


def framed(
    instance: Instance,
    texts: Sequence[Shard] = (NUMBERED,),
    *,
    length: int = 64,
    sample: int = 0,
) -> tuple[list[int], list[int]]:
    """Return the tokens of both segments, and check their frame."""
    config = ObjectiveConfig(max_seq_length=length)
    generator = stream(1, "test", 0, sample)
    ids, first = sequences.frame(Library(texts), instance, NUMBERS, config, generator)
    assert ids[0] == NUMBERS.cls_id
    assert ids[first - 1] == ids[-1] == NUMBERS.sep_id
    return ids[1 : first - 1].tolist(), ids[first:-1].tolist()


def ids_of(first: int, stop: int) -> list[int]:
    """Return the ids of sentences first to stop of the numbered corpus."""
    return list(range(5 + 10 * first, 5 + 10 * stop))


@given(st.integers(1, 60), st.integers(0, 60), st.integers(5, 64))
@settings(max_examples=500, deadline=None)
def test_sizes_after_cutting_equal_those_of_cutting_one_at_a_time(
    first: int, second: int, room: int
) -> None:
    num_first = first
    num_second = second
    while num_first + num_second > room:
        if num_first > num_second:
            num_first -= 1
        else:
            num_second -= 1
    sizes = sequences.truncated_sizes(first, second, room)
    assert sizes == (num_first, num_second)


WITH_RANDOM_SECOND = INSTANCE._replace(kind=RANDOM_SECOND)
NUM_DOCUMENTS = 20
FIRST_HALF = Shard(
    NUMBERED.tokens[:1_200], NUMBERED.sentences[:121], NUMBERED.documents[:11]
)
SECOND_HALF = Shard(
    NUMBERED.tokens[1_200:],
    NUMBERED.sentences[120:] - 1_200,
    NUMBERED.documents[10:] - 120,
)
ONE_DOCUMENT = Shard(
    NUMBERED.tokens[:120], NUMBERED.sentences[:13], NUMBERED.documents[:2]
)


def sentences_of(ids: list[int]) -> tuple[int, int]:
    """Return the first sentence that the ids are in, and the one after the last."""
    return (ids[0] - 5) // 10, (ids[-1] - 5) // 10 + 1


def test_a_random_second_is_whole_sentences() -> None:
    for sample in range(300):
        first, second = framed(WITH_RANDOM_SECOND, sample=sample)
        start, stop = sentences_of(second)
        assert first == ids_of(14, 16)
        assert second == ids_of(start, stop)
        # 30 of the 50 tokens are left for it, unless its document ends before
        assert stop - start == 3 or stop % 12 == 0


def test_a_random_second_is_of_any_other_document() -> None:
    documents = set[int]()
    for sample in range(300):
        _, second = framed(WITH_RANDOM_SECOND, sample=sample)
        start, _ = sentences_of(second)
        documents.add(start // 12)
    of_first = INSTANCE.start // 12
    assert documents == set(range(NUM_DOCUMENTS)) - {of_first}


def test_a_random_second_does_not_depend_on_how_the_corpus_is_divided() -> None:
    for sample in range(300):
        divided = framed(WITH_RANDOM_SECOND, [FIRST_HALF, SECOND_HALF], sample=sample)
        assert divided == framed(WITH_RANDOM_SECOND, sample=sample)


def test_the_random_second_of_a_single_document_is_of_the_same() -> None:
    instance = WITH_RANDOM_SECOND._replace(start=0, middle=2, end=4)
    _, second = framed(instance, [ONE_DOCUMENT])
    assert second


def test_a_random_second_has_a_sentence_even_if_the_first_reaches_the_target() -> None:
    _, second = framed(WITH_RANDOM_SECOND._replace(target=2))
    assert len(second) == 10


def test_surplus_tokens_are_cut_from_both_ends_with_equal_chance() -> None:
    instance = Instance(shard=0, start=12, middle=22, end=24, kind=IN_ORDER, target=120)
    fronts = []
    for sample in range(2_000):
        first, second = framed(instance, length=63, sample=sample)
        assert second == ids_of(22, 24)
        assert first == list(range(first[0], first[0] + 40))
        fronts.append(first[0] - 125)
    # Binomial(60, .5): mean 30, variance 15
    assert abs(np.mean(fronts) - 30) < 5 * np.sqrt(15 / 2_000)
    assert abs(np.var(fronts) - 15) < 5 * 15 * np.sqrt(2 / 2_000)
