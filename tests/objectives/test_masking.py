"""Which pieces of a sample are masked, and what stands in their place: compared with the
official loop on the same draws, and with the shares that were measured for the official
script on real text.
"""

import gzip
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.config import ObjectiveConfig
from litebert.corpus import Shard
from litebert.objectives import masking
from litebert.objectives.loading import CorpusLoader, LoaderSettings
from litebert.objectives.sequences import PretrainingBatch
from litebert.rng import Ints, stream
from litebert.tokenizer import Tokenizer

from .conftest import tokenizer

# ---- the positions -------------------------------------------------------------------

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
    """Return the positions that are masked, and what stands there."""
    return masking.mask(ids, TOKENIZER, config, stream(1, "test", 0, sample))


def words_of(ids: list[int], config: ObjectiveConfig) -> list[list[int]]:
    """Return the positions of each word; without whole words, each piece is one."""
    words = list[list[int]]()
    for position, piece in enumerate(ids):
        if piece in (CLS, SEP):
            continue
        is_continuing = config.whole_word and not TOKENIZER.starts_word[piece]
        if words and is_continuing:
            words[-1].append(position)
        else:
            words.append([position])
    return words


def official_choice(
    ids: list[int], config: ObjectiveConfig, *, sample: int
) -> set[int]:
    """Choose positions word by word with sets and lists, as the official script
    does.
    """
    words = words_of(ids, config)
    generator = stream(1, "test", 0, sample)
    order = np.argsort(generator.random(len(words))).tolist()
    bounds = np.cumsum(masking.run_length_law(config)).tolist()[:-1]
    budget = masking.num_to_predict(len(ids), config)
    chosen = set[int]()
    for word, draw in zip(order, generator.random(len(words)), strict=True):
        if len(chosen) >= budget:
            break
        # the longest run of words from this one on that the budget allows
        longest = 1 + sum(draw >= bound for bound in bounds)
        for num_words in range(longest, 0, -1):
            run = [
                place for places in words[word : word + num_words] for place in places
            ]
            if len(chosen) + len(run) <= budget:
                if chosen.isdisjoint(run):
                    chosen.update(run)
                break
    return chosen


@given(PIECES, PIECES, MASKINGS, st.integers(0, 10**6))
@settings(max_examples=400, deadline=None)
def test_chosen_positions_equal_those_of_the_official_loop(
    first: list[int], second: list[int], config: ObjectiveConfig, sample: int
) -> None:
    ids = [CLS, *first, SEP, *second, SEP]
    expected = official_choice(ids, config, sample=sample)
    assert masked(np.array(ids), config, sample)[0].tolist() == sorted(expected)


# ---- what stands there ---------------------------------------------------------------


def test_chosen_pieces_become_mask_stay_or_change_by_80_10_10() -> None:
    ids = np.full(2_000, 5)
    samples = [masked(ids, ObjectiveConfig(), sample)[1] for sample in range(100)]
    pieces = np.concatenate(samples)
    assert len(pieces) == 30_000  # 15 % of 100 * 2,000

    # a random piece is any of the 13, special ones, [MASK] and the original included
    expected = np.full(13, 0.1 / 13)
    expected[MASK] += 0.8
    expected[5] += 0.1
    shares = np.bincount(pieces, minlength=13) / len(pieces)
    sigma = np.sqrt(expected * (1 - expected) / len(pieces))
    assert (np.abs(shares - expected) < 5 * sigma).all()


# ---- the shares on real text ---------------------------------------------------------


def corpus_of(documents: Sequence[Sequence[list[int]]]) -> Shard:
    """Return a shard of documents, which are lists of encoded sentences."""
    sentences = [ids for document in documents for ids in document]
    starts = np.cumsum([0, *map(len, sentences)])
    firsts = np.cumsum([0, *map(len, documents)])
    return Shard(np.concatenate(sentences).astype(np.uint16), starts, firsts)


@pytest.fixture(scope="module")
def of_real_text(real_data: Path, official: Tokenizer) -> PretrainingBatch:
    """Return 2,000 samples of WikiText-2 with the official settings."""
    path = real_data / "text/wikitext2_valid.txt.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        sections = re.split(r"\n = .*\n", file.read())
    documents = list[list[list[int]]]()
    for section in sections:
        encoded = official.encode_ids(re.split(r"(?<= [.!?]) |\n", section))
        sentences = [ids for ids in encoded if ids]
        if sentences:
            documents.append(sentences)
    config = ObjectiveConfig(
        sentence="order-official", short_seq_per="document", max_predictions=77
    )
    options = LoaderSettings(official, config, batch_size=1, seed=1)
    loader = CorpusLoader([corpus_of(documents)], options)
    return loader.batch_between(0, 2_000)


def count_runs(batch: PretrainingBatch, starts_word: np.ndarray) -> Counter[int]:
    """Count the unbroken runs of masked words by their length."""
    ids = batch.ids.copy()
    ids[batch.masked_positions] = batch.masked_ids
    is_masked = np.zeros(len(ids), np.int64)
    is_masked[batch.masked_positions] = 1
    is_word = starts_word[ids] & (ids != CLS) & (ids != SEP)
    runs = Counter[int]()
    for start, stop in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
        of_words = is_masked[start:stop][is_word[start:stop]]
        edges = np.diff(np.concatenate([[0], of_words, [0]]))
        begins = np.flatnonzero(edges == 1)
        ends = np.flatnonzero(edges == -1)
        runs.update((ends - begins).tolist())
    return runs


def test_runs_of_masked_words_have_the_official_lengths(
    of_real_text: PretrainingBatch, official: Tokenizer
) -> None:
    runs = count_runs(of_real_text, official.starts_word)
    shares = np.array([runs[1], runs[2], runs[3]]) / runs.total()
    assert np.abs(shares - [0.527, 0.266, 0.169]).max() < 0.012
    longer = 1 - shares.sum()
    assert abs(longer - 0.038) < 0.006


def test_the_official_share_of_pieces_is_masked(
    of_real_text: PretrainingBatch,
) -> None:
    share = len(of_real_text.masked_ids) / len(of_real_text.ids)
    assert abs(share - 0.150) < 0.001


def test_the_official_share_of_pairs_is_swapped(
    of_real_text: PretrainingBatch,
) -> None:
    assert 0.53 < of_real_text.sentence_labels.mean() < 0.59
