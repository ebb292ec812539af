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

Vectors = NDArray[np.float16 | np.float32]

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
        # `documents` has the start of each document, and the end of the last.
        num_documents = [len(shard.documents) - 1 for shard in shards]
        self.first_document = np.cumsum([0, *num_documents])  # (shards + 1,)
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
    """Two neighboring segments of random lengths, in order; each objective overrides
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
        missing = instance.target - first.size
        return first, _random_second(library, instance, missing, generator)

    def label(self, kind: int) -> int:
        """Return 0 for segments in order, 1 for all others, and NO_LABEL if there is
        only one segment.
        """
        return NO_LABEL if kind == ALONE else int(kind != IN_ORDER)


def _random_second(
    library: Library, instance: Instance, missing: int, generator: np.random.Generator
) -> Tokens:
    """Return whole sentences of another document, from a random one on, until they have
    `missing` tokens or the document ends (L314-337).
    """
    # the last draw is for the sentence, the others are for the document
    draws = generator.random(TRIES_FOR_ANOTHER_DOCUMENT + 1)
    drawn = (draws[:-1] * library.num_documents).astype(np.int64).tolist()
    # Numbers of documents count across all shards, places within one.
    shard = library.shards[instance.shard]
    place = int(np.searchsorted(shard.documents, instance.start, side="right")) - 1
    document_of_instance = int(library.first_document[instance.shard]) + place
    # the instance's own document if each try met it, as upstream
    other = document_of_instance
    for document in drawn:
        if document != document_of_instance:
            other = document
            break

    number = int(np.searchsorted(library.first_document, other, side="right")) - 1
    other_shard = library.shards[number]
    other_shard.require_unchanged()
    other_place = other - int(library.first_document[number])
    # the sentences of that document, from `begin` to before `end`
    begin, end = other_shard.documents[other_place : other_place + 2].tolist()
    start = begin + int(draws[-1] * (end - begin))
    # `sentences` has the first token of each: the first sentence that starts after
    # enough tokens is no longer needed. At least one sentence is taken.
    sentences = other_shard.sentences
    enough = int(np.searchsorted(sentences, sentences[start] + missing))
    stop = min(max(enough, start + 1), end)
    return other_shard.between(start, stop)


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
    # One is added, because the logarithm of a piece that never occurs must be finite.
    counts = np.ones(vocab_size, dtype=np.int64)
    for shard in shards:
        pieces = shard.tokens[: ENOUGH_PIECES // len(shards)]
        counts += np.bincount(pieces, minlength=vocab_size)
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
    objective = sentence_objective(config.sentence)
    first, second = objective.segments(library, instance, generator)
    # [CLS], and [SEP] after each segment
    num_framing = 3 if second.size else 2
    room = config.max_seq_length - num_framing
    first_size, second_size = truncated_sizes(first.size, second.size, room)

    # In this order: every truncation draws from the same generator.
    parts: list[Tokens | list[int]] = [[tokenizer.cls_id]]
    parts += [_truncate(first, first_size, generator), [tokenizer.sep_id]]
    if second.size:
        parts += [_truncate(second, second_size, generator), [tokenizer.sep_id]]
    ids = np.concatenate(parts, dtype=np.int64)
    is_same_vocabulary = ids.max() < tokenizer.vocab_size
    assert is_same_vocabulary, "the corpus was made with another vocabulary"
    return ids, first_size + 2


def _truncate(tokens: Tokens, size: int, generator: np.random.Generator) -> Tokens:
    """Cut a segment to `size` tokens, at both ends.

    Upstream cuts each surplus token from the front or the back with p = 0.5 (L601-616):
    together, the front loses a binomial number.
    """
    num_surplus = tokens.size - size
    num_front = np.count_nonzero(generator.random(num_surplus) < 0.5)
    return tokens[num_front : num_front + size]


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
    # Positions that may be masked: all but [CLS] and [SEP]. (maskable,)
    maskable = np.flatnonzero((ids != tokenizer.cls_id) & (ids != tokenizer.sep_id))
    begins = _word_begins(ids[maskable], tokenizer, config)  # (words,)
    # Which word is tried first, and how many words the run from it has. (words,) each
    order = generator.random(begins.size).argsort()
    law = np.cumsum(run_length_law(config))[:-1]
    runs = np.searchsorted(law, generator.random(begins.size), side="right") + 1

    budget = num_to_predict(ids.size, config)
    chosen = _choose_runs(begins, order, runs, maskable.size, budget)
    positions = maskable[chosen]  # (masked,)
    return positions, _replace(ids[positions], tokenizer, generator)


def _word_begins(pieces: Ints, tokenizer: Tokenizer, config: ObjectiveConfig) -> Ints:
    """Return where words begin among pieces without [CLS] and [SEP]; without
    `whole_word`, each piece is a word.
    """
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
    left = budget
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


# ---- sequences as a batch ------------------------------------------------------------


class MaskedSequence(NamedTuple):
    """One training sequence, and what the model must predict of it."""

    ids: Ints
    first_length: int  # how many ids are in segment 0
    label: int | None  # None: no sentence task
    masked_positions: Ints
    replacements: Ints
    vector: Vectors | None = None  # (width,), a teacher's


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
    # (sequences, width), a teacher's, if it has read the texts before
    vectors: Vectors | None = None

    def unmasked_ids(self) -> Ints:
        """Return the ids as they were before they were masked, shape (tokens,)."""
        ids: Ints = self.ids.copy()
        ids[self.masked_positions] = self.masked_ids
        return ids


def collate(sequences: Iterable[MaskedSequence]) -> PretrainingBatch:
    """Lay sequences end to end, the longest first: attention is fastest on neighbors of
    equal length.
    """
    rows = sorted(sequences, key=lambda row: -row.ids.size)
    lengths = np.array([row.ids.size for row in rows])  # (sequences,)
    offsets = np.concatenate(([0], np.cumsum(lengths)))  # (sequences + 1,)
    starts = offsets[:-1]  # (sequences,), of each sequence on the token axis
    # (tokens,), from 0 in each sequence
    positions = np.arange(offsets[-1]) - np.repeat(starts, lengths)
    first_lengths = np.array([row.first_length for row in rows])
    segments = positions >= np.repeat(first_lengths, lengths)

    # from positions in a sequence to positions on the token axis: (masked,)
    num_masked = [row.masked_positions.size for row in rows]
    masked_positions = np.concatenate([row.masked_positions for row in rows])
    masked_positions += np.repeat(starts, num_masked)
    ids = np.concatenate([row.ids for row in rows])  # (tokens,)
    masked_ids = ids[masked_positions]  # the targets, before they are replaced
    ids[masked_positions] = np.concatenate([row.replacements for row in rows])

    sentence_labels = None
    if rows[0].label is not None:
        sentence_labels = np.array([row.label for row in rows])
    vectors = [row.vector for row in rows if row.vector is not None]
    return PretrainingBatch(
        ids=ids,
        positions=positions,
        segments=segments.astype(np.int64),
        offsets=offsets,
        masked_positions=masked_positions,
        masked_ids=masked_ids,
        sentence_labels=sentence_labels,
        vectors=np.stack(vectors) if vectors else None,
    )
