"""Masked LM: choose tokens of a sequence, and replace them.

Line numbers refer to the official create_pretraining_data.py, L426-540.
"""

import numpy as np
from numpy.typing import NDArray

from litebert.config import ObjectiveConfig
from litebert.rng import Ints
from litebert.tokenizer import Tokenizer

MASKED_SHARE = 0.8
KEPT_SHARE = 0.1
"""Shares of the chosen tokens that become [MASK] and that stay as they are; the rest
become random (BERT, 3.1).
"""


def mask(
    ids: Ints,
    tokenizer: Tokenizer,
    config: ObjectiveConfig,
    generator: np.random.Generator,
) -> tuple[Ints, Ints]:
    """Choose runs of 1 to `ngram` words up to the budget; return their positions,
    ascending, and replacements.
    """
    # Positions that may be masked: all but [CLS] and [SEP]. (maskable,)
    maskable = np.flatnonzero((ids != tokenizer.cls_id) & (ids != tokenizer.sep_id))
    begins = _word_begins(ids[maskable], tokenizer, config)  # (words,)
    # In which order the words are tried, and how many words the run from each has;
    # (words,) both. A uniform number falls between two bounds of the cumulative law with
    # the probability of that length.
    order = generator.random(begins.size).argsort()
    law = np.cumsum(run_length_law(config))[:-1]  # (ngram - 1,)
    runs = np.searchsorted(law, generator.random(begins.size), side="right") + 1

    budget = num_to_predict(ids.size, config)
    chosen = _choose_runs(begins, order, runs, maskable.size, budget)
    positions = maskable[chosen]  # (masked,)
    return positions, _replace(ids[positions], tokenizer, generator)


def _word_begins(pieces: Ints, tokenizer: Tokenizer, config: ObjectiveConfig) -> Ints:
    """Return where words begin among pieces without [CLS] and [SEP]; without
    `whole_word`, each piece is a word.
    """
    # As upstream, only pieces of a-z continue a word. In Greek, Hindi or Arabic each
    # piece counts as a word, which is easier than whole words.
    starts_word = tokenizer.starts_word[pieces] | (not config.whole_word)
    # Other pieces continue the word before them, even across a [SEP]; the first has
    # none before it.
    starts_word[:1] = True
    return np.flatnonzero(starts_word)


def _choose_runs(
    begins: Ints, order: Ints, runs: Ints, num_pieces: int, budget: int
) -> NDArray[np.bool_]:
    """Return which pieces are masked, at most `budget`, shape (num_pieces,).

    The words are tried in `order`; a run that does not fit becomes shorter, and one
    that overlaps an earlier one is left out.
    """
    # Words lie end to end, so that a run is one interval, from the bound of its first
    # word to the bound after its last. Bounds beyond the last word let runs end there.
    bounds = begins.tolist() + [num_pieces] * int(runs.max(initial=0))
    # Bytes, so that a run is looked at and marked as one slice.
    taken = bytearray(num_pieces)
    left = budget  # pieces that may still be masked
    for word, longest_run in zip(order.tolist(), runs.tolist(), strict=True):
        run = longest_run
        start = bounds[word]
        stop = bounds[word + run]
        while stop - start > left and run > 1:  # a shorter n-gram may still fit
            run -= 1
            stop = bounds[word + run]
        size = stop - start
        if size > left or 1 in taken[start:stop]:
            continue
        taken[start:stop] = b"\x01" * size
        left -= size
        if left == 0:
            break
    return np.frombuffer(taken, dtype=np.bool_)


def _replace(
    originals: Ints, tokenizer: Tokenizer, generator: np.random.Generator
) -> Ints:
    """Return what each masked token becomes, shape (masked,): [MASK], itself, or any
    piece, even a special one (L535).

    It is drawn for each token, not for each run.
    """
    choice, piece = generator.random((2, originals.size))  # (masked,) each
    random_pieces = (piece * tokenizer.vocab_size).astype(np.int64)
    is_kept = choice < MASKED_SHARE + KEPT_SHARE
    unmasked = np.where(is_kept, originals, random_pieces)
    return np.where(choice < MASKED_SHARE, tokenizer.mask_id, unmasked)


def num_to_predict(length: int, config: ObjectiveConfig) -> int:
    """Return the maximum number of tokens to predict; `length` includes the special
    ones.

    >>> [num_to_predict(length, ObjectiveConfig()) for length in (3, 30, 50, 512)]  # halves to even
    [1, 4, 8, 77]
    """
    # Special tokens count for the budget, though they are never masked, as upstream.
    share = max(1, round(length * config.mask_prob))
    if config.max_predictions is None:
        return share
    return min(share, config.max_predictions)


def run_length_law(config: ObjectiveConfig) -> NDArray[np.float64]:
    """Return p(n) for runs of n = 1 .. ngram words, proportional to 1/n (paper, 4.2) or
    reversed.

    >>> run_length_law(ObjectiveConfig()) * 11
    array([6., 3., 2.])
    """
    weights = 1 / np.arange(1, config.ngram + 1, dtype=np.float64)
    law: NDArray[np.float64] = weights / weights.sum()
    return law if config.favor_shorter_ngram else law[::-1]
