"""Masked LM: choose tokens and replace them (create_pretraining_data.py L426-540)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from litebert.config.schema import ObjectiveConfig
from litebert.objectives.vocabulary import Vocabulary
from litebert.rng import Ints

MASKED_SHARE, KEPT_SHARE = 0.8, 0.1
"""Shares of the chosen tokens that become [MASK], and stay; others become random (BERT, 3.1)."""


@dataclass(frozen=True)
class Masking:
    """Hold the chosen positions of a sequence, ascending, and the ids that replace them."""

    positions: Ints
    replacements: Ints


def mask(ids: Ints, *, vocabulary: Vocabulary, config: ObjectiveConfig, generator: np.random.Generator) -> Masking:
    """Choose runs of 1 to `ngram` words up to the budget, then a replacement for each token.

    >>> vocabulary = Vocabulary(9, cls_id=2, sep_id=3, mask_id=4, starts_word=np.ones(9, bool))
    >>> ids = np.array([2, 5, 6, 7, 3, 8, 5, 3])
    >>> generator = np.random.Generator(np.random.Philox(0))
    >>> masking = mask(ids, vocabulary=vocabulary, config=ObjectiveConfig(), generator=generator)
    >>> len(masking.positions)
    1
    """
    maskable = np.flatnonzero((ids != vocabulary.cls_id) & (ids != vocabulary.sep_id))
    begins = np.flatnonzero(_word_begins(ids[maskable], vocabulary, config))
    order = generator.random(begins.size).argsort()
    runs = _run_lengths(begins.size, config, generator)
    taken = _choose(order, runs, begins, maskable.size, num_to_predict(ids.size, config))
    positions = maskable[taken]
    return Masking(positions, _replacements(ids[positions], vocabulary, generator))


def num_to_predict(length: int, config: ObjectiveConfig) -> int:
    """Return the most tokens that are predicted; `length` includes the special ones.

    >>> num_to_predict(512, ObjectiveConfig())
    77
    >>> num_to_predict(512, ObjectiveConfig(max_predictions=20))
    20
    """
    wanted = max(1, round(length * config.mask_prob))
    return wanted if config.max_predictions is None else min(wanted, config.max_predictions)


def run_length_law(config: ObjectiveConfig) -> NDArray[np.float64]:
    """Return p(n) for runs of n = 1 .. ngram words, proportional to 1/n (paper, 4.2) or reversed.

    >>> run_length_law(ObjectiveConfig()) * 11
    array([6., 3., 2.])
    """
    weights = 1 / np.arange(1, config.ngram + 1, dtype=np.float64)
    law: NDArray[np.float64] = weights / weights.sum()
    return law if config.favor_shorter_ngram else law[::-1]


def _word_begins(pieces: Ints, vocabulary: Vocabulary, config: ObjectiveConfig) -> NDArray[np.bool_]:
    """Tell which pieces begin a word; others belong to the word before, even across a [SEP]."""
    if not config.whole_word:
        return np.ones(pieces.size, dtype=np.bool_)
    begins = vocabulary.starts_word[pieces]
    begins[:1] = True
    return begins


def _run_lengths(count: int, config: ObjectiveConfig, generator: np.random.Generator) -> Ints:
    bounds = np.cumsum(run_length_law(config))[:-1]
    return np.searchsorted(bounds, generator.random(count), side="right") + 1


def _choose(order: Ints, runs: Ints, begins: Ints, size: int, budget: int) -> NDArray[np.bool_]:
    """Take runs of words in `order`, shortened to the budget, that overlap no earlier one.

    Words lie end to end here, so that a run is one interval and the loop handles slices of bytes.
    """
    bounds = begins.tolist() + [size] * int(runs.max(initial=0))
    taken = bytearray(size)
    for word, run in zip(order.tolist(), runs.tolist(), strict=True):
        start, stop = bounds[word], bounds[word + run]
        while stop - start > budget and run > 1:
            run -= 1
            stop = bounds[word + run]
        if stop - start > budget or 1 in taken[start:stop]:
            continue
        taken[start:stop] = b"\x01" * (stop - start)
        budget -= stop - start
        if not budget:
            break
    return np.frombuffer(taken, dtype=np.bool_)


def _replacements(originals: Ints, vocabulary: Vocabulary, generator: np.random.Generator) -> Ints:
    """Draw for each token, not run: [MASK], itself, or any piece, even a special one (L535)."""
    choice, piece = generator.random((2, originals.size))
    random_pieces = (piece * vocabulary.size).astype(np.int64)
    kept_or_random = np.where(choice < MASKED_SHARE + KEPT_SHARE, originals, random_pieces)
    return np.where(choice < MASKED_SHARE, vocabulary.mask_id, kept_or_random)
