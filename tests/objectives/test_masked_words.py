"""Masked words: the choice of the official loop with the same draws, and the laws of the draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.config.schema import ObjectiveConfig
from litebert.objectives.batch import Masking, Vocabulary, mask, num_to_predict, run_length_law
from litebert.rng import Ints, stream

CLS, SEP, MASK = 2, 3, 4
SPECIALS = (CLS, SEP)

# ids 5 to 9 start a word, 10 to 12 continue one
VOCABULARY = Vocabulary(13, CLS, SEP, MASK, starts_word=np.arange(13) < 10)

configs = st.builds(
    ObjectiveConfig,
    ngram=st.integers(1, 4),
    favor_shorter_ngram=st.booleans(),
    whole_word=st.booleans(),
    mask_prob=st.sampled_from([0.15, 0.4]),
    max_predictions=st.sampled_from([None, 1, 5, 20]),
)
pieces = st.lists(st.integers(5, 12), min_size=1, max_size=60)


def masked(ids: Ints, config: ObjectiveConfig, *, sample: int = 0) -> Masking:
    generator = stream(1, "test", 0, sample)
    return mask(ids, vocabulary=VOCABULARY, config=config, generator=generator)


def official_choice(ids: list[int], config: ObjectiveConfig, *, sample: int) -> set[int]:
    """Choose positions word by word with sets and lists, as the official script does."""
    words: list[list[int]] = []
    for position, piece in enumerate(ids):
        if piece in SPECIALS:
            continue
        if words and config.whole_word and not VOCABULARY.starts_word[piece]:
            words[-1].append(position)
        else:
            words.append([position])
    generator = stream(1, "test", 0, sample)
    order = np.argsort(generator.random(len(words))).tolist()
    sums = np.cumsum(run_length_law(config)).tolist()
    runs = [1 + sum(draw >= bound for bound in sums[:-1]) for draw in generator.random(len(words))]
    budget, chosen = num_to_predict(len(ids), config), set[int]()
    for word, run in zip(order, runs, strict=True):
        if len(chosen) >= budget:
            break
        for length in range(run, 0, -1):
            window = [position for word in words[word : word + length] for position in word]
            if len(chosen) + len(window) <= budget:
                break
        if len(chosen) + len(window) <= budget and not chosen.intersection(window):
            chosen.update(window)
    return chosen


@given(pieces, pieces, configs, st.integers(0, 10**6))
@settings(max_examples=400, deadline=None)
def test_chosen_positions_equal_those_of_the_official_loop(
    first: list[int], second: list[int], config: ObjectiveConfig, sample: int
) -> None:
    ids = [CLS, *first, SEP, *second, SEP]
    masking = masked(np.array(ids), config, sample=sample)
    expected = official_choice(ids, config, sample=sample)
    assert masking.positions.tolist() == sorted(expected)


@pytest.mark.parametrize(
    ("length", "cap", "expected"),
    [(3, None, 1), (10, None, 2), (30, None, 4), (50, None, 8), (512, None, 77), (512, 20, 20)],
)
def test_number_to_predict_rounds_half_to_even(length: int, cap: int | None, expected: int) -> None:
    assert num_to_predict(length, ObjectiveConfig(max_predictions=cap)) == expected


def test_chosen_tokens_become_mask_stay_or_change_by_80_10_10() -> None:
    ids = np.full(2_000, 5)
    shown = np.concatenate([masked(ids, ObjectiveConfig(), sample=sample).replacements for sample in range(100)])
    shares = np.bincount(shown, minlength=13) / len(shown)
    # a random piece is any of the 13, special ones, [MASK] and the original included
    expected = np.full(13, 0.1 / 13)
    expected[[MASK, 5]] += [0.8, 0.1]
    bounds = 5 * np.sqrt(expected * (1 - expected) / len(shown))
    assert len(shown) == 30_000
    assert (np.abs(shares - expected) < bounds).all()
