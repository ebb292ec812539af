"""Make any batch of a pretraining run directly from its number, from one corpus or a
mix of several.

The plan of an epoch lists the sentences of each instance (create_pretraining_data.py
L266-386). Every random number is a function of (seed, purpose, epoch, shard, sentence),
so none depends on another or on the order of the work.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from litebert import rng
from litebert.config import ObjectiveConfig
from litebert.corpus import Shard
from litebert.errors import LitebertError, format_count
from litebert.objectives.masking import mask
from litebert.objectives.sentences import (
    RANDOM_SECOND,
    Draws,
    Instance,
    Library,
    SentenceObjective,
    sentence_objective,
)
from litebert.objectives.sequences import (
    MaskedSequence,
    PretrainingBatch,
    collate,
    frame,
)
from litebert.rng import Ints
from litebert.tokenizer import Tokenizer

SHORTEST_TARGET = 2  # the smallest target length of a short sequence, in tokens (L284)
# shards whose plan gives the mean length of a corpus's sequences
SHARDS_MEASURED = 4
# sequences per cycle of a mix; each cycle has exactly the share of every corpus, in a
# new random order
CYCLE = 10_000


# ---- the plan of an epoch ------------------------------------------------------------


def plan_epoch(
    library: Library, config: ObjectiveConfig, *, seed: int, purpose: str, epoch: int
) -> NDArray[np.int32]:
    """Cut documents into the instances of one epoch, rows of `Instance` (instances, 6);
    documents that are too short are left out.

    A row takes 24 bytes, so an epoch of four billion pieces in sequences of 512 takes
    200 MB.
    """
    planned = [np.empty((0, 6), np.int32)]
    for number, shard in enumerate(library.shards):
        shard.require_unchanged()
        draws = Draws(seed, purpose, epoch, number)
        planned.append(_plan_shard(shard, number, draws, config))
    return np.concatenate(planned)


@dataclass(frozen=True)
class _OpenDocuments:
    """The documents of a shard that are not cut to their ends, and where their next
    chunks start; (documents,) each, in sentences of the shard.
    """

    first: Ints  # of each document, which identifies it
    start: Ints  # of its next chunk
    stop: Ints  # its end
    fewest: Ints  # sentences in a chunk

    @classmethod
    def of(cls, shard: Shard, sentence: SentenceObjective) -> "_OpenDocuments":
        """Return the documents that are long enough for a chunk."""
        first = shard.documents[:-1]
        stop = shard.documents[1:]
        fewest = np.full_like(first, sentence.fewest_sentences)
        if sentence.keeps_single_sentences:
            fewest = np.minimum(fewest, stop - first)
        is_long_enough = (stop > first) & (stop - first >= fewest)
        return cls(first, first, stop, fewest).where(is_long_enough)

    @property
    def last_start(self) -> Ints:
        """The last sentence at which a chunk can start."""
        return self.stop - self.fewest

    def where(self, is_kept: NDArray[np.bool_]) -> "_OpenDocuments":
        """Return some of the documents."""
        return _OpenDocuments(
            first=self.first[is_kept],
            start=self.start[is_kept],
            stop=self.stop[is_kept],
            fewest=self.fewest[is_kept],
        )


def _plan_shard(
    shard: Shard, number: int, draws: Draws, config: ObjectiveConfig
) -> NDArray[np.int32]:
    """Cut the documents of one shard into chunks, and each chunk into A and B.

    All documents advance by one chunk at a time, so that a round of the loop is a few
    operations on arrays with one entry per open document.
    """
    sentence = sentence_objective(config.sentence)
    documents = _OpenDocuments.of(shard, sentence)
    rounds = [np.empty((3, 0), np.int64)]
    while documents.start.size:
        # too few sentences left: reuse earlier ones
        start = np.minimum(documents.start, documents.last_start)
        # The target length in tokens (L282-284) is drawn per chunk; upstream, once
        # per document and pass.
        key = documents.first if config.short_seq_per == "document" else start
        target = _draw_target(draws, key, config, has_labels=sentence.has_labels)
        # `sentences` has the first token of each: a chunk ends with the sentence that
        # reaches the target
        reached = np.searchsorted(shard.sentences, shard.sentences[start] + target)
        end = np.minimum(np.maximum(reached, start + documents.fewest), documents.stop)
        rounds.append(np.stack((start, end, target)))  # (3, open documents)

        following = sentence.following(draws, start, end)
        # A document is done if too few sentences are left to move on, or if the same
        # chunk would repeat forever.
        moves_on = np.minimum(following, documents.last_start) > start
        is_open = (following < documents.stop) & moves_on
        documents = replace(documents, start=following).where(is_open)
    start, end, target = np.concatenate(rounds, axis=1)  # (instances of the shard,)
    middle, kind = sentence.divide(draws, start, end)
    columns = (np.full_like(start, number), start, middle, end, kind, target)
    return np.stack(columns, axis=1).astype(np.int32)


def _draw_target(
    draws: Draws, key: Ints, config: ObjectiveConfig, *, has_labels: bool
) -> Ints:
    """Draw the length in tokens that each chunk should have, (chunks,): the longest or,
    for some, any shorter one.
    """
    # tokens of text: without [CLS] and [SEP]
    num_framing = 3 if has_labels else 2
    longest = config.max_seq_length - num_framing
    target = np.full_like(key, longest)
    is_short = draws.uniform("is-short", key) < config.short_seq_prob
    target[is_short] = draws.integers("short", SHORTEST_TARGET, longest, key[is_short])
    return target


def mean_length(shards: Sequence[Shard], config: ObjectiveConfig) -> float:
    """Return the mean length of a corpus's sequences in tokens, special ones included,
    by the plan of its first shards.
    """
    library = Library(shards[:SHARDS_MEASURED])
    plan = plan_epoch(library, config, seed=0, purpose="length", epoch=0)
    lengths = [np.empty(0, np.int64)]  # (instances,) of each shard
    for number, shard in enumerate(library.shards):
        _, start, _, end, kind, target = plan[plan[:, 0] == number].T
        num_tokens = shard.sentences[end] - shard.sentences[start]
        # a B from another document fills up what is missing after A
        text = np.where(kind == RANDOM_SECOND, target, num_tokens)
        # with [CLS] and two [SEP]
        lengths.append(np.minimum(text + 3, config.max_seq_length))
    planned = np.concatenate(lengths)
    if not planned.size:
        return float(config.max_seq_length)
    return float(planned.mean())


# ---- batches by their number ---------------------------------------------------------


class Loader(ABC):
    """Masked sequences and batches by number. Each depends only on the seed and its
    number, not on the process or the order of requests.
    """

    batch_size: int  # sequences of a training step, over all processes

    @abstractmethod
    def sequences(self, start: int, stop: int) -> Iterator[MaskedSequence]:
        """Yield the sequences with the numbers start, start + 1, ... stop - 1."""

    def batch_between(self, start: int, stop: int) -> PretrainingBatch:
        """Return these sequences as one batch."""
        return collate(self.sequences(start, stop))

    def batch(
        self, step: int, *, rank: int = 0, world_size: int = 1
    ) -> PretrainingBatch:
        """Return one rank's share of the batch of one step.

        Together, the shares are the whole batch. Likewise, batches 2k and 2k + 1 of
        size n are batch k of size 2n, as gradient accumulation needs.
        """
        size = self.batch_size
        assert size >= world_size, (
            "a run with more processes than sequences is refused when it begins"
        )
        # Shares differ by at most one sequence.
        begin = step * size
        start = begin + size * rank // world_size
        stop = begin + size * (rank + 1) // world_size
        return self.batch_between(start, stop)


@dataclass(frozen=True)
class LoaderSettings:
    """Everything that the sequences of a corpus depend on, apart from its text and
    their numbers.
    """

    tokenizer: Tokenizer
    objective: ObjectiveConfig
    batch_size: int
    seed: int
    # selects the random numbers, so that evaluation never draws what training draws
    purpose: str = "train"
    # the share of masked pieces in the first `early_sequences`
    early_mask_prob: float | None = None
    early_sequences: int = 0


class CorpusLoader(Loader):
    """The sequences of a corpus, numbered consecutively over all epochs.

    Every epoch has `epoch_size` of them, the number of instances of epoch 0. Epochs cut
    documents differently: if a later one has a few more instances, a random few stay
    unseen; if it has fewer, a random few are seen twice, with other masks. In return, a
    sequence needs only the plan of its own epoch: a resumed run replays nothing.
    """

    def __init__(self, shards: Sequence[Shard], settings: LoaderSettings) -> None:
        self.batch_size = settings.batch_size
        self._settings = settings
        self._library = Library(shards)
        early_prob = settings.early_mask_prob or settings.objective.mask_prob
        self._early = settings.objective.model_copy(update={"mask_prob": early_prob})
        plan = partial(
            plan_epoch,
            self._library,
            settings.objective,
            seed=settings.seed,
            purpose=settings.purpose,
        )
        # a batch may have the end of one epoch and the beginning of the next
        self._plan = lru_cache(maxsize=2)(plan)
        self.epoch_size = len(self._plan(epoch=0))
        if self.epoch_size == 0:
            raise _no_sequence(self._library, settings.objective)

    def sequences(self, start: int, stop: int) -> Iterator[MaskedSequence]:
        settings = self._settings
        number = start  # of the next sequence
        while number < stop:
            epoch, first = divmod(number, self.epoch_size)
            positions = np.arange(first, min(first + stop - number, self.epoch_size))
            # The order of an epoch is a random permutation of the rows of its plan.
            plan = self._plan(epoch=epoch)
            rows = rng.permutation(
                settings.seed,
                f"{settings.purpose}-order",
                epoch,
                len(plan),
                positions % len(plan),
            )
            instances = plan[rows].tolist()
            for position, row in zip(positions.tolist(), instances, strict=True):
                yield self._masked_sequence(epoch, position, Instance(*row))
            number += len(positions)

    def _masked_sequence(
        self, epoch: int, position: int, instance: Instance
    ) -> MaskedSequence:
        """Frame and mask one instance; all of its randomness is one stream."""
        settings = self._settings
        tokenizer = settings.tokenizer
        purpose = f"{settings.purpose}-sample"
        generator = rng.stream(settings.seed, purpose, epoch, position)
        number = epoch * self.epoch_size + position  # in the whole run
        is_early = number < settings.early_sequences
        config = self._early if is_early else settings.objective
        ids, first_length = frame(self._library, instance, tokenizer, config, generator)
        masked, replacements = mask(ids, tokenizer, config, generator)
        sentence = sentence_objective(config.sentence)
        label = sentence.label(instance.kind) if sentence.has_labels else None
        return MaskedSequence(ids, first_length, label, masked, replacements)

    def once(self, num_sequences: int) -> Iterator[PretrainingBatch]:
        """Yield at most `num_sequences` sequences of one pass over the corpus, none
        twice, as batches.
        """
        total = min(num_sequences, self.epoch_size)
        for start in range(0, total, self.batch_size):
            yield self.batch_between(start, min(start + self.batch_size, total))


def _no_sequence(library: Library, config: ObjectiveConfig) -> LitebertError:
    """Return the error for a corpus whose documents are all too short."""
    sentence = sentence_objective(config.sentence)
    fewest = 1 if sentence.keeps_single_sentences else sentence.fewest_sentences
    return LitebertError(
        "LB-400",
        "the corpus has no training sequence for objective.sentence ="
        f" {config.sentence!r}",
        received=format_count(library.num_documents, "document"),
        expected=f"a document of {format_count(fewest, 'sentence')} or more",
        next="give more text, or separate its documents (--documents blank-line)",
    )


# ---- a mix of corpora ----------------------------------------------------------------


class MixLoader(Loader):
    """Sequences of several corpora by weight: the number of a sequence decides which
    corpus it comes from.

    Each corpus gives its sequences in order, so that it seldom changes its epoch.
    """

    def __init__(
        self,
        loaders: Sequence[Loader],
        weights: Sequence[float],
        *,
        batch_size: int,
        seed: int,
    ) -> None:
        self.batch_size = batch_size
        self._loaders = loaders
        self._seed = seed
        self._counts = counts_in_cycle(weights)
        self._cycle = lru_cache(maxsize=1)(self._shuffle)

    def sequences(self, start: int, stop: int) -> Iterator[MaskedSequence]:
        corpora, numbers = self.places(start, stop)
        # Each corpus is asked once for all of its sequences, which have consecutive
        # numbers: asked for them one by one, it would draw the order of each anew.
        streams: dict[int, Iterator[MaskedSequence]] = {}
        for corpus in np.unique(corpora).tolist():
            numbers_there = numbers[corpora == corpus]
            first = int(numbers_there[0])
            last = int(numbers_there[-1])
            streams[corpus] = self._loaders[corpus].sequences(first, last + 1)
        for corpus in corpora.tolist():
            yield next(streams[corpus])

    def places(self, start: int, stop: int) -> tuple[Ints, Ints]:
        """Return the corpora of the sequences start, start + 1, ... stop - 1, and their
        numbers within these corpora; both (sequences,).
        """
        corpora = [np.empty(0, np.int64)]
        numbers = [np.empty(0, np.int64)]
        last_cycle = -(-stop // CYCLE)  # rounded up
        for cycle in range(start // CYCLE, last_cycle):
            begin = cycle * CYCLE
            inside = slice(max(0, start - begin), min(CYCLE, stop - begin))
            corpus, num_earlier = self._cycle(cycle)
            corpora.append(corpus[inside])
            before = cycle * self._counts[corpus[inside]]  # in the cycles before
            numbers.append(before + num_earlier[inside])
        return np.concatenate(corpora), np.concatenate(numbers)

    def _shuffle(self, cycle: int) -> tuple[Ints, Ints]:
        """Return the corpus of each sequence of a cycle, and how many earlier ones come
        from the same; both (CYCLE,).
        """
        order = rng.permutation(self._seed, "mix", cycle, CYCLE, np.arange(CYCLE))
        corpora = np.repeat(np.arange(len(self._counts)), self._counts)[order]
        # the sequences of each corpus in turn, in their order, are its 0, 1, 2, ...
        by_corpus = np.argsort(corpora, kind="stable")
        num_earlier = np.empty_like(corpora)
        num_earlier[by_corpus] = np.concatenate([*map(np.arange, self._counts)])
        return corpora, num_earlier


def shares(
    sizes: Sequence[int],
    *,
    weights: Sequence[float] | None = None,
    temperature: float = 1.0,
) -> list[float]:
    """Return the share of each corpus: its weight (its size by default) to the power 1
    / T.

    A temperature T above 1 favors small corpora (as in XLM-R, arXiv 1911.02116,
    section 3.1).

    >>> shares([900, 100]), [round(share, 2) for share in shares([900, 100], temperature=2.0)]
    ([0.9, 0.1], [0.75, 0.25])
    """
    amounts = np.array(weights or sizes, dtype=np.float64)
    # divided by a power of two: exact, and no power of a number below 1 overflows
    scaled = amounts / 2.0 ** np.frexp(amounts.max())[1]
    powers = scaled ** (1 / temperature)
    return [float(share) for share in powers / powers.sum()]


def counts_in_cycle(weights: Sequence[float]) -> Ints:
    """Return how many sequences of a cycle each corpus has, rounded by largest remainder.

    >>> counts_in_cycle([2, 1]).tolist()
    [6667, 3333]
    """
    exact = np.array(weights, dtype=np.float64) / np.sum(weights) * CYCLE
    counts: Ints = np.floor(exact).astype(np.int64)
    missing = CYCLE - counts.sum()  # fewer than there are corpora
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    if (counts == 0).any():
        raise LitebertError(
            "LB-268",
            f"a corpus of the mix has almost no share, less than 1 in {CYCLE:,}",
            received=", ".join(f"{weight:g}" for weight in weights),
            next="omit that corpus, or raise data.temperature",
        )
    return counts
