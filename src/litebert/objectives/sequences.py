"""One training sequence: sentences paired, framed and masked, then laid end to end with
others as a batch.

Line numbers refer to the official create_pretraining_data.py: pairs L266-386 (paper,
3.1), masks L426-540.

A chunk is a run of consecutive sentences of one document. A sentence objective cuts it
into segments A and B, and defines the label that the sentence head should predict. To
add one, see docs/extending/objective.md.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert import rng
from litebert.config import ObjectiveConfig
from litebert.corpus.shards import Shard, Tokens
from litebert.plugins import SENTENCE_OBJECTIVES
from litebert.rng import IntLike, Ints
from litebert.tokenizer import Tokenizer

IN_ORDER = 0
SWAPPED = 1
RANDOM_SECOND = 2
ALONE = 4
"""Kinds of instance: A, then B; B, then A; B is from another document; no B (labels 0,
1, 1, NO_LABEL).
"""

# the label of a sequence that the sentence head neither learns from nor is measured on
NO_LABEL = -1

# how often another document is drawn before the instance's own is accepted (L314-337)
TRIES_FOR_ANOTHER_DOCUMENT = 10


class Library:
    """Shards with documents numbered across all of them; those of shard s start at
    `first_document[s]`.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards = tuple(shards)
        # (shards + 1,)
        self.first_document = np.cumsum(
            [0, *(len(shard.documents) - 1 for shard in shards)]
        )
        self.num_documents = int(self.first_document[-1])


class Instance(NamedTuple):
    """An instance, as sentences of a shard: A is start to middle; B is middle to end,
    or as `kind` says.
    """

    shard: int
    start: int
    middle: int
    end: int
    kind: int
    target: int  # how many tokens it should have


@dataclass(frozen=True)
class Draws:
    """Random numbers for the sentences of one shard in one epoch, each a function of
    its sentence.
    """

    seed: int
    purpose: str
    epoch: int
    shard: int

    def uniform(self, what: str, sentence: Ints) -> NDArray[np.float64]:  # in [0, 1)
        return rng.uniform(
            self.seed, f"{self.purpose}-{what}", self.epoch, self.shard, sentence
        )

    # in [low, high]
    def integers(self, what: str, low: IntLike, high: IntLike, sentence: Ints) -> Ints:
        return rng.integers(
            self.seed,
            f"{self.purpose}-{what}",
            low,
            high,
            self.epoch,
            self.shard,
            sentence,
        )


class SentenceObjective:
    """Two neighbouring segments of random lengths, in order; each objective overrides
    what differs.

    `divide` and `following` work on arrays with one entry per chunk, that is, the
    sentences start, ... end - 1 of one document. Every random number comes from `draws`
    (by sentence) or `generator` (by sample).
    """

    # the fewest sentences that a chunk may have; shorter documents are skipped
    fewest_sentences = 1
    # whether documents of one sentence are kept anyway, as sequences without a label
    keeps_single_sentences = False
    # whether there are two segments and a label for the sentence head
    has_labels = True

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Return where B starts, and the kind of each instance; A has a sentence and,
        if possible, so does B.
        """
        middle = start + draws.integers(
            "middle", 1, np.maximum(end - start - 1, 1), start
        )
        return middle, np.full_like(end, IN_ORDER)

    def following(self, _draws: Draws, _start: Ints, end: Ints) -> Ints:
        """Return where the next chunks start: after these."""
        return end

    def segments(
        self, library: Library, instance: Instance, generator: np.random.Generator
    ) -> tuple[Tokens, Tokens]:
        """Return the tokens of A and B, as `kind` defines them, before truncation."""
        shard = library.shards[instance.shard]
        first = shard.between(instance.start, instance.middle)
        if instance.kind != RANDOM_SECOND:
            second = shard.between(instance.middle, instance.end)
            return (second, first) if instance.kind == SWAPPED else (first, second)
        # B is whole sentences of another document, from a random one on, until the rest
        # of `target` tokens is reached.
        local = int(np.searchsorted(shard.documents, instance.start, side="right")) - 1
        own = int(library.first_document[instance.shard]) + local
        # the last for the sentence, the rest for the document
        draws = generator.random(TRIES_FOR_ANOTHER_DOCUMENT + 1)
        drawn = (draws[:-1] * library.num_documents).astype(np.int64).tolist()
        other = next((document for document in drawn if document != own), own)
        # of the shard
        number = int(np.searchsorted(library.first_document, other, side="right")) - 1
        shard = library.shards[number]
        local = other - int(library.first_document[number])
        shard.require_unchanged()
        begin, stop = shard.documents[local : local + 2].tolist()
        start = begin + int(draws[-1] * (stop - begin))
        missing = instance.target - first.size
        # the first end from there on
        reached = int(
            np.searchsorted(shard.sentences, shard.sentences[start] + missing)
        )
        return first, shard.between(start, min(max(reached, start + 1), stop))

    def label(self, kind: int) -> int:
        """Return 0 for segments in order, 1 for all others, and NO_LABEL if there is
        only one segment.
        """
        return NO_LABEL if kind == ALONE else int(kind != IN_ORDER)


class OfficialOrder(SentenceObjective):
    """Sentence order as upstream draws it: a chunk of one sentence gets a random B and
    label 1.

    Thus the length of a chunk gives away some labels (create_pretraining_data.py
    L314-337).
    """

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        middle, _ = super().divide(draws, start, end)
        # (chunks,)
        kind = np.where(draws.uniform("kind", start) < 0.5, SWAPPED, IN_ORDER)
        return middle, np.where(end - start == 1, RANDOM_SECOND, kind)


class SentenceOrder(OfficialOrder):
    """Sentence order as in the paper: chunks of two sentences or more, swapped or not.

    A document of a single sentence has no order: it is one segment, for masked LM only.
    """

    fewest_sentences = 2
    keeps_single_sentences = True

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        middle, kind = super().divide(draws, start, end)
        return middle, np.where(end - start == 1, ALONE, kind)


class NextSentence(SentenceObjective):
    """Next sentence (BERT, 3.1): half of the chunks get a random second segment, as
    upstream.
    """

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        middle, _ = super().divide(draws, start, end)
        is_random = (draws.uniform("kind", start) < 0.5) | (end - start == 1)
        return middle, np.where(is_random, RANDOM_SECOND, IN_ORDER)

    def following(self, draws: Draws, start: Ints, end: Ints) -> Ints:
        middle, kind = self.divide(draws, start, end)
        # The next chunk starts with the sentences that a random B replaced (L314-337).
        return np.where(kind == RANDOM_SECOND, middle, end)


class NoSentences(SentenceObjective):
    """The whole chunk is one segment, and the sentence head is not trained."""

    has_labels = False

    def divide(self, _draws: Draws, _start: Ints, end: Ints) -> tuple[Ints, Ints]:
        return end, np.full_like(end, IN_ORDER)


SENTENCE_OBJECTIVES.add("order", SentenceOrder())
SENTENCE_OBJECTIVES.add("order-official", OfficialOrder())
SENTENCE_OBJECTIVES.add("next", NextSentence())
SENTENCE_OBJECTIVES.add("none", NoSentences())


def sentence_objective(name: str) -> SentenceObjective:
    """Return the sentence objective of this name."""
    objective: SentenceObjective = SENTENCE_OBJECTIVES[name]
    return objective


# ---- how often each piece occurs -----------------------------------------------------

# the most pieces that are counted for their frequency; more would hardly change a
# logarithm
ENOUGH_PIECES = 20_000_000


def log_frequencies(shards: Sequence[Shard], vocab_size: int) -> NDArray[np.float32]:
    """Return log p of every piece, shape (vocab,), with one added to each count.

    In a large corpus only the first part of every shard is counted.

    >>> text = Shard(np.array([3, 1, 1], np.uint16), np.array([0, 3]), np.array([0, 1]))
    >>> (7 * np.exp(log_frequencies([text], 4))).round().tolist()
    [1.0, 3.0, 1.0, 2.0]
    """
    counts = np.ones(vocab_size, dtype=np.int64)
    for shard in shards:
        counts += np.bincount(
            shard.tokens[: ENOUGH_PIECES // len(shards)], minlength=vocab_size
        )
    logs: NDArray[np.float64] = np.log(counts / counts.sum())
    return logs.astype(np.float32)


# ---- one instance as tokens ----------------------------------------------------------


def frame(
    library: Library,
    instance: Instance,
    tokenizer: Tokenizer,
    config: ObjectiveConfig,
    generator: np.random.Generator,
) -> tuple[Ints, int]:
    """Return the ids of `[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]`, and how many of
    them are in segment 0.
    """
    first, second = sentence_objective(config.sentence).segments(
        library, instance, generator
    )
    sizes = truncated_sizes(
        first.size, second.size, config.max_seq_length - (3 if second.size else 2)
    )
    parts: list[Tokens | list[int]] = [[tokenizer.cls_id]]
    for tokens, size in zip((first, second), sizes, strict=True):
        if tokens.size or tokens is first:
            # A surplus token is cut from the front or the back with p = 0.5 (L601-616):
            # the front loses a binomial.
            front = np.count_nonzero(generator.random(tokens.size - size) < 0.5)
            parts += [tokens[front : front + size], [tokenizer.sep_id]]
    ids = np.concatenate(parts, dtype=np.int64)
    assert ids.max() < tokenizer.vocab_size, (
        "the corpus was made with another vocabulary"
    )
    return ids, sizes[0] + 2


def truncated_sizes(first: int, second: int, room: int) -> tuple[int, int]:
    """Return two sizes that fit `room`: the larger (the second, if equal) shrinks first
    (L601-616).

    >>> truncated_sizes(300, 400, 509), truncated_sizes(100, 900, 509), truncated_sizes(5, 6, 509)
    ((255, 254), (100, 409), (5, 6))
    """
    first = min(first, max(room - second, (room + 1) // 2))
    return first, min(second, room - first)


# ---- masked LM: choose tokens and replace them ---------------------------------------


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
    # (tokens,) positions
    maskable = np.flatnonzero((ids != tokenizer.cls_id) & (ids != tokenizer.sep_id))
    # (tokens,)
    starts_word = tokenizer.starts_word[ids[maskable]] | (not config.whole_word)
    # other pieces continue the word before them, even across a [SEP]
    starts_word[:1] = True
    begins = np.flatnonzero(starts_word)  # (words,)
    # (words,): which run is tried first
    order = generator.random(begins.size).argsort()
    law = np.cumsum(run_length_law(config))[:-1]
    # (words,): words in the run at each
    runs = np.searchsorted(law, generator.random(begins.size), side="right") + 1

    # Words lie end to end here, so that a run is one interval and the loop handles
    # slices of bytes.
    bounds = begins.tolist() + [maskable.size] * int(runs.max(initial=0))
    taken = bytearray(maskable.size)
    budget = num_to_predict(ids.size, config)
    for word, run in zip(order.tolist(), runs.tolist(), strict=True):
        start = bounds[word]
        stop = bounds[word + run]
        while stop - start > budget and run > 1:  # a shorter n-gram may still fit
            run -= 1
            stop = bounds[word + run]
        # or overlaps an earlier one
        if stop - start > budget or 1 in taken[start:stop]:
            continue
        taken[start:stop] = b"\x01" * (stop - start)
        budget -= stop - start
        if not budget:
            break
    positions = maskable[np.frombuffer(taken, dtype=np.bool_)]  # (masked,)

    # Each token, not each run, becomes [MASK], stays, or becomes any piece, even a
    # special one (L535).
    originals = ids[positions]
    choice, piece = generator.random((2, positions.size))  # (masked,) each
    random_pieces = (piece * tokenizer.vocab_size).astype(np.int64)
    kept_or_random = np.where(
        choice < MASKED_SHARE + KEPT_SHARE, originals, random_pieces
    )
    return positions, np.where(choice < MASKED_SHARE, tokenizer.mask_id, kept_or_random)


def num_to_predict(length: int, config: ObjectiveConfig) -> int:
    """Return the maximum number of tokens to predict; `length` includes the special
    ones.

    >>> [num_to_predict(length, ObjectiveConfig()) for length in (3, 30, 50, 512)]  # halves to even
    [1, 4, 8, 77]
    """
    wanted = max(1, round(length * config.mask_prob))
    return (
        wanted
        if config.max_predictions is None
        else min(wanted, config.max_predictions)
    )


def run_length_law(config: ObjectiveConfig) -> NDArray[np.float64]:
    """Return p(n) for runs of n = 1 .. ngram words, proportional to 1/n (paper, 4.2) or
    reversed.

    >>> run_length_law(ObjectiveConfig()) * 11
    array([6., 3., 2.])
    """
    weights = 1 / np.arange(1, config.ngram + 1, dtype=np.float64)
    law: NDArray[np.float64] = weights / weights.sum()
    return law if config.favor_shorter_ngram else law[::-1]


# ---- samples as a batch --------------------------------------------------------------


class Sample(NamedTuple):
    """One sequence."""

    ids: Ints
    first_length: int  # how many ids are in segment 0
    label: int | None  # None: no sentence task
    masked_positions: Ints
    replacements: Ints


@dataclass(frozen=True)
class PretrainingBatch:
    """Masked sequences, the longest first, and their targets; all int64, without
    padding.
    """

    ids: Ints  # (tokens,)
    positions: Ints  # (tokens,), within the sequence
    segments: Ints  # (tokens,)
    offsets: Ints  # (sequences + 1,)
    masked_positions: Ints  # (masked,), on the token axis
    masked_ids: Ints  # (masked,), the original tokens there
    # (sequences,): 0 in order, 1 swapped or random, NO_LABEL alone; None without the
    # task
    sentence_labels: Ints | None


def collate(samples: Iterable[Sample]) -> PretrainingBatch:
    """Lay samples end to end, the longest first: attention is fastest on neighbours of
    equal length.
    """
    samples = sorted(samples, key=lambda sample: -sample.ids.size)
    lengths = np.array([sample.ids.size for sample in samples])  # (sequences,)
    first_lengths = np.array([sample.first_length for sample in samples])
    offsets = np.concatenate(([0], np.cumsum(lengths)))  # (sequences + 1,)
    # (tokens,), from 0 in each sequence
    positions = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    num_masked = [sample.masked_positions.size for sample in samples]
    # (masked,)
    masked_positions = np.concatenate([sample.masked_positions for sample in samples])
    # from positions in a sequence to positions in the batch
    masked_positions += np.repeat(offsets[:-1], num_masked)
    ids = np.concatenate([sample.ids for sample in samples])  # (tokens,)
    masked_ids = ids[masked_positions]
    ids[masked_positions] = np.concatenate([sample.replacements for sample in samples])
    return PretrainingBatch(
        ids=ids,
        positions=positions,
        segments=(positions >= np.repeat(first_lengths, lengths)).astype(np.int64),
        offsets=offsets,
        masked_positions=masked_positions,
        masked_ids=masked_ids,
        sentence_labels=(
            None
            if samples[0].label is None
            else np.array([sample.label for sample in samples])
        ),
    )
