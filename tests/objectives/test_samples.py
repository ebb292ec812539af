"""One sample: its place in a shuffled epoch, its sentences, what is cut off and what is
masked, compared with the official loops on the same draws; and the shares that were
measured for the official script on real text.
"""

import gzip
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert import rng
from litebert.config import ObjectiveConfig
from litebert.corpus import Shard
from litebert.objectives import masking, sequences
from litebert.objectives.loading import CorpusLoader, LoaderSettings, plan_epoch
from litebert.objectives.sentences import (
    ALONE,
    IN_ORDER,
    RANDOM_SECOND,
    SWAPPED,
    Instance,
    Library,
)
from litebert.rng import Ints, permutation, stream
from litebert.tokenizer import Tokenizer

from .conftest import NUMBERED, NUMBERS, tokenizer


def test_places_of_any_length_do_not_collide_and_seed_and_epoch_change_the_order() -> (
    None
):
    for length in range(2_001):
        order = permutation(1, "test", 0, length, np.arange(length))
        np.testing.assert_array_equal(np.sort(order), np.arange(length))
    length = 10**9 + 7
    places = np.arange(10_000)
    ends = np.concatenate([places, length - 1 - places])
    order = permutation(1, "test", 0, length, ends)
    assert 0 <= order.min() <= order.max() < length
    assert len(np.unique(order)) == len(ends)
    order = permutation(1, "test", 0, 10_000, places)
    for seed, epoch in ((2, 0), (1, 1)):
        assert (order != permutation(seed, "test", epoch, 10_000, places)).mean() > 0.99
    # 5 sigma of independent numbers
    for other, numbers in ((places, order), (order[:-1], order[1:])):
        assert abs(np.corrcoef(other, numbers)[0, 1]) < 5 / np.sqrt(10_000)


CONFIGS = st.builds(
    ObjectiveConfig,
    sentence=st.sampled_from(["order", "order-official", "next", "none"]),
    max_seq_length=st.integers(8, 64),
    short_seq_prob=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    short_seq_per=st.sampled_from(["instance", "document"]),
)


def official_chunks(
    lengths: list[int], offset: int, config: ObjectiveConfig, epoch: int
) -> Iterator[tuple[int, ...]]:
    """Walk through a document sentence by sentence, as the official script does, with
    our draws.
    """

    def draw(what: str, sentence: int) -> float:
        return float(rng.uniform(7, f"train-{what}", epoch, 0, sentence))

    is_strict = config.sentence == "order" and len(lengths) > 1
    longest = config.max_seq_length - (2 if config.sentence == "none" else 3)
    i = 0
    while i < len(lengths):
        if is_strict and i == len(lengths) - 1:
            i -= 1
        start = offset + i
        key = offset if config.short_seq_per == "document" else start
        is_short = draw("is-short", key) < config.short_seq_prob
        target = 2 + int(draw("short", key) * (longest - 1)) if is_short else longest
        size = total = 0
        while i + size < len(lengths) and (total < target or (is_strict and size < 2)):
            total += lengths[i + size]
            size += 1
        middle = size
        kind = IN_ORDER
        if config.sentence != "none" and size == 1:
            kind = ALONE if config.sentence == "order" else RANDOM_SECOND
        elif config.sentence != "none":
            middle = 1 + int(draw("middle", start) * (size - 1))
            if draw("kind", start) < 0.5:
                kind = RANDOM_SECOND if config.sentence == "next" else SWAPPED
        yield start, start + middle, start + size, kind, target
        i += middle if config.sentence == "next" and kind == RANDOM_SECOND else size


@given(
    st.lists(
        st.lists(st.integers(1, 30), min_size=1, max_size=12), min_size=1, max_size=8
    ),
    CONFIGS,
    st.integers(0, 50),
)
@settings(max_examples=300, deadline=None)
def test_chunks_are_those_of_the_official_loop(
    documents: list[list[int]], config: ObjectiveConfig, epoch: int
) -> None:
    starts = np.cumsum([0, *map(len, documents)])
    sentences = np.cumsum([0, *chain.from_iterable(documents)])
    text = Shard(np.zeros(sentences[-1], np.uint16), sentences, starts)
    plan = plan_epoch(Library([text]), config, seed=7, purpose="train", epoch=epoch)
    planned = map(tuple, plan[:, 1:].tolist())
    pairs = zip(documents, starts.tolist(), strict=False)
    expected = (
        row
        for lengths, start in pairs
        for row in official_chunks(lengths, start, config, epoch)
    )
    assert sorted(planned) == sorted(expected)


# sentences 14 to 16 against 16 to 19 of the numbered corpus; its token i has the id 5 +
# i
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
    assert (ids[0], ids[first - 1], ids[-1]) == (2, 3, 3)
    return ids[1 : first - 1].tolist(), ids[first:-1].tolist()


def ids_of(first: int, stop: int) -> list[int]:
    """Return the ids of sentences first to stop of the numbered corpus."""
    return list(range(5 + 10 * first, 5 + 10 * stop))


@given(st.integers(1, 60), st.integers(0, 60), st.integers(5, 64))
@settings(max_examples=500, deadline=None)
def test_sizes_after_cutting_equal_those_of_cutting_one_at_a_time(
    first: int, second: int, room: int
) -> None:
    sizes = [first, second]
    while sum(sizes) > room:
        sizes[sizes[0] <= sizes[1]] -= 1
    assert sequences.truncated_sizes(first, second, room) == tuple(sizes)


def test_a_random_second_is_whole_sentences_of_another_document_of_any_shard() -> None:
    half = Shard(
        NUMBERED.tokens[:1_200], NUMBERED.sentences[:121], NUMBERED.documents[:11]
    )
    remainder = Shard(
        NUMBERED.tokens[1_200:],
        NUMBERED.sentences[120:] - 1_200,
        NUMBERED.documents[10:] - 120,
    )
    instance = INSTANCE._replace(kind=RANDOM_SECOND)
    other_documents = set()
    for sample in range(300):
        first, second = framed(instance, sample=sample)
        assert (first, second) == framed(instance, [half, remainder], sample=sample)
        start = (second[0] - 5) // 10
        stop = (second[-1] - 5) // 10 + 1
        assert (first, second) == (ids_of(14, 16), ids_of(start, stop))
        # 50 - 20 tokens, or the document ends
        assert stop - start == 3 or stop % 12 == 0
        other_documents.add(start // 12)
    assert other_documents == set(range(20)) - {1}
    alone = Shard(
        NUMBERED.tokens[:120], NUMBERED.sentences[:13], NUMBERED.documents[:2]
    )
    # the second from the same document
    assert framed(instance._replace(start=0, middle=2, end=4), [alone])[1]
    # a sentence, even if the target is reached
    assert len(framed(instance._replace(target=2))[1]) == 10


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


CLS = 2
SEP = 3
MASK = 4
# ids 5 to 9 start a word, 10 to 12 continue one
TOKENIZER = tokenizer(13, starts_word=np.arange(13) < 10)
PIECES = st.lists(st.integers(5, 12), min_size=1, max_size=60)
MASKINGS = st.builds(
    ObjectiveConfig,
    ngram=st.integers(1, 4),
    favor_shorter_ngram=st.booleans(),
    whole_word=st.booleans(),
    mask_prob=st.sampled_from([0.15, 0.4]),
    max_predictions=st.sampled_from([None, 1, 5, 20]),
)


def masked(ids: Ints, config: ObjectiveConfig, sample: int) -> tuple[Ints, Ints]:
    return masking.mask(ids, TOKENIZER, config, stream(1, "test", 0, sample))


def official_choice(
    ids: list[int], config: ObjectiveConfig, *, sample: int
) -> set[int]:
    """Choose positions word by word with sets and lists, as the official script
    does.
    """
    words: list[list[int]] = []
    for position, piece in enumerate(ids):
        if piece in (CLS, SEP):
            continue
        if words and config.whole_word and not TOKENIZER.starts_word[piece]:
            words[-1].append(position)
        else:
            words.append([position])
    generator = stream(1, "test", 0, sample)
    order = np.argsort(generator.random(len(words))).tolist()
    sums = np.cumsum(masking.run_length_law(config)).tolist()
    runs = [
        1 + sum(draw >= bound for bound in sums[:-1])
        for draw in generator.random(len(words))
    ]
    budget = masking.num_to_predict(len(ids), config)
    chosen = set[int]()
    for word, run in zip(order, runs, strict=True):
        if len(chosen) >= budget:
            break
        for length in range(run, 0, -1):
            window = [
                position for word in words[word : word + length] for position in word
            ]
            if len(chosen) + len(window) <= budget:
                break
        if len(chosen) + len(window) <= budget and not chosen.intersection(window):
            chosen.update(window)
    return chosen


@given(PIECES, PIECES, MASKINGS, st.integers(0, 10**6))
@settings(max_examples=400, deadline=None)
def test_chosen_positions_equal_those_of_the_official_loop(
    first: list[int], second: list[int], config: ObjectiveConfig, sample: int
) -> None:
    ids = [CLS, *first, SEP, *second, SEP]
    expected = official_choice(ids, config, sample=sample)
    assert masked(np.array(ids), config, sample)[0].tolist() == sorted(expected)


def test_chosen_tokens_become_mask_stay_or_change_by_80_10_10() -> None:
    ids = np.full(2_000, 5)
    shown = np.concatenate(
        [masked(ids, ObjectiveConfig(), sample)[1] for sample in range(100)]
    )
    shares = np.bincount(shown, minlength=13) / len(shown)
    # a random piece is any of the 13, special ones, [MASK] and the original included
    expected = np.full(13, 0.1 / 13)
    expected[[MASK, 5]] += [0.8, 0.1]
    assert len(shown) == 30_000
    assert (
        np.abs(shares - expected) < 5 * np.sqrt(expected * (1 - expected) / len(shown))
    ).all()


def test_official_settings_give_the_official_shares_on_real_text(
    real_data: Path, official: Tokenizer
) -> None:
    with gzip.open(
        real_data / "text/wikitext2_valid.txt.gz", "rt", encoding="utf-8"
    ) as file:
        sections = re.split(r"\n = .*\n", file.read())
    encoded = [
        official.encode_ids(re.split(r"(?<= [.!?]) |\n", section))
        for section in sections
    ]
    documents = [
        kept for document in encoded if (kept := [ids for ids in document if ids])
    ]
    sentences = [ids for document in documents for ids in document]
    starts = np.cumsum([0, *map(len, sentences)])
    firsts = np.cumsum([0, *map(len, documents)])
    articles = Shard(np.concatenate(sentences).astype(np.uint16), starts, firsts)
    config = ObjectiveConfig(
        sentence="order-official", short_seq_per="document", max_predictions=77
    )
    batch = CorpusLoader(
        [articles], LoaderSettings(official, config, batch_size=1, seed=1)
    ).batch_between(0, 2_000)

    ids = batch.ids.copy()
    is_masked = np.zeros(len(batch.ids), np.bool_)
    runs = Counter[int]()
    ids[batch.masked_positions] = batch.masked_ids
    is_masked[batch.masked_positions] = True
    # unbroken runs of masked words
    for start, stop in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
        words = (
            official.starts_word[ids[start:stop]]
            & (ids[start:stop] != 2)
            & (ids[start:stop] != 3)
        )
        edges = np.diff(
            np.concatenate(([0], is_masked[start:stop][words].astype(int), [0]))
        )
        runs.update((np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)).tolist())
    shares = np.array([runs[1], runs[2], runs[3]]) / runs.total()
    assert np.abs(shares - [0.527, 0.266, 0.169]).max() < 0.012
    assert abs(1 - shares.sum() - 0.038) < 0.006
    assert abs(len(batch.masked_ids) / len(batch.ids) - 0.150) < 0.001
    assert 0.53 < batch.sentence_labels.mean() < 0.59
