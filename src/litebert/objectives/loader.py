"""Make any batch of a pretraining run directly from its number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import TypeAlias

import numpy as np

from litebert import rng
from litebert.config.schema import ObjectiveConfig
from litebert.errors import LitebertError
from litebert.objectives.batch import PretrainingBatch, apart, collate
from litebert.objectives.instances import plan_epoch
from litebert.objectives.masking import Masking, mask
from litebert.objectives.pairs import FramedPair, frame
from litebert.objectives.sentences import SentenceObjective, sentence_objective
from litebert.objectives.shards import Library, ShardArrays
from litebert.objectives.vocabulary import Vocabulary

Made: TypeAlias = tuple[FramedPair, Masking]
"""One sample: its tokens, and which of them are masked."""


class Loader:
    """Make the batches of a corpus; each depends only on the seed and its number.

    Samples are numbered consecutively over all epochs, and every epoch has `epoch_size` of them,
    the number of instances of epoch 0. Epochs cut documents differently: if a later one has a few
    more instances, a random few stay unseen; if it has fewer, a random few are seen twice, with
    other masks. In return, a sample needs only the plan of its own epoch: a resumed run replays
    nothing.

    `sentence` defaults to the objective that `config` names. If `early_mask_prob` is given, it is
    the share of masked pieces in the first `early_samples`. `purpose` selects the random numbers,
    so that evaluation never draws what training draws.

    Raises:
        LitebertError: LB-400, the corpus contains nothing that the objective can use.
    """

    def __init__(
        self,
        shards: Sequence[ShardArrays],
        *,
        vocabulary: Vocabulary,
        config: ObjectiveConfig,
        batch_size: int,
        seed: int,
        purpose: str = "train",
        sentence: SentenceObjective | None = None,
        early_mask_prob: float | None = None,
        early_samples: int = 0,
    ) -> None:
        self._library = Library.of(shards)
        self._early_samples = early_samples if early_mask_prob else 0
        self._early_config = config.model_copy(update={"mask_prob": early_mask_prob})
        self._vocabulary, self._config = vocabulary, config
        self._batch_size, self._seed, self._purpose = batch_size, seed, purpose
        self._sentence = sentence or sentence_objective(config.sentence)
        plan = partial(plan_epoch, self._library, config, sentence=self._sentence, seed=seed, purpose=purpose)
        self._plan = lru_cache(maxsize=2)(plan)
        first = self._plan(epoch=0)
        if not len(first):
            raise _nothing_to_learn(self._library, self._sentence)
        self.epoch_size = len(first)
        self.skipped_documents = first.skipped_documents

    def batch(self, step: int, *, rank: int = 0, world_size: int = 1) -> PretrainingBatch:
        """Return one rank's share of the batch of one step.

        Shares are contiguous: concatenated in rank order they are the whole batch. Likewise,
        batches 2k and 2k + 1 of size n are batch k of size 2n, as gradient accumulation needs.

        Raises:
            LitebertError: LB-401, a rank would get no sequence.
        """
        numbers = rank_range(step, self._batch_size, rank, world_size)
        return self.samples(numbers.start, numbers.stop)

    def sample(self, number: int) -> Made:
        """Return one sample, framed and masked."""
        return next(self.made(number, number + 1))

    def samples(self, start: int, stop: int) -> PretrainingBatch:
        """Return the samples with the numbers start, start + 1, ... stop - 1 as one batch."""
        return self.joined(list(self.made(start, stop)))

    def joined(self, made: Sequence[Made]) -> PretrainingBatch:
        """Lay samples end to end as a batch."""
        pairs, maskings = zip(*made, strict=True)
        if self._sentence.is_contrast:
            pairs, maskings = apart(pairs, maskings, cls_id=self._vocabulary.cls_id)
        return collate(pairs, maskings, has_sentence_task=self._sentence.has_labels)

    def made(self, start: int, stop: int) -> Iterator[Made]:
        """Yield the samples with the numbers start, start + 1, ... stop - 1, framed and masked."""
        for epoch, positions in self._by_epoch(start, stop):
            for position, row in zip(positions, self._rows(epoch, positions), strict=True):
                yield self._sample(epoch, position, row)

    def _by_epoch(self, start: int, stop: int) -> Iterator[tuple[int, range]]:
        while start < stop:
            epoch, position = divmod(start, self.epoch_size)
            count = min(stop - start, self.epoch_size - position)
            yield epoch, range(position, position + count)
            start += count

    def _rows(self, epoch: int, positions: range) -> list[int]:
        """Return the row of the epoch's plan at each position of its random order."""
        size = len(self._plan(epoch=epoch))
        wrapped = np.array(positions) % size
        rows = rng.permutation(self._seed, f"{self._purpose}-order", epoch, size, wrapped)
        return [int(row) for row in rows]

    def _sample(self, epoch: int, position: int, row: int) -> Made:
        generator = rng.stream(self._seed, f"{self._purpose}-sample", epoch, position)
        pair = frame(
            self._library,
            self._plan(epoch=epoch).instance(row),
            sentence=self._sentence,
            vocabulary=self._vocabulary,
            max_seq_length=self._config.max_seq_length,
            generator=generator,
        )
        is_early = epoch * self.epoch_size + position < self._early_samples
        masking = mask(
            pair.ids,
            vocabulary=self._vocabulary,
            config=self._early_config if is_early else self._config,
            generator=generator,
        )
        return pair, masking


def rank_range(step: int, batch_size: int, rank: int, world_size: int) -> range:
    """Return the sample numbers of one rank's share of the batch of one step.

    >>> [rank_range(2, 8, rank, 3) for rank in range(3)]
    [range(16, 18), range(18, 21), range(21, 24)]
    """
    assert 0 <= rank < world_size
    if batch_size < world_size:
        raise _too_few_sequences(batch_size, world_size)
    start, stop = (batch_size * place // world_size for place in (rank, rank + 1))
    return range(step * batch_size + start, step * batch_size + stop)


def evaluation_batches(
    shards: Sequence[ShardArrays],
    *,
    vocabulary: Vocabulary,
    config: ObjectiveConfig,
    batch_size: int,
    seed: int,
    num_sequences: int,
    sentence: SentenceObjective | None = None,
) -> Iterator[PretrainingBatch]:
    """Yield at most `num_sequences` held-out sequences in batches, the same ones at every call.

    They are drawn at random from one pass over the corpus, none twice.

    Raises:
        LitebertError: LB-400, the corpus contains nothing that the objective can use.
    """
    loader = Loader(
        shards,
        vocabulary=vocabulary,
        config=config,
        batch_size=batch_size,
        seed=seed,
        purpose="evaluation",
        sentence=sentence,
    )
    total = min(num_sequences, loader.epoch_size)
    for start in range(0, total, batch_size):
        yield loader.samples(start, min(start + batch_size, total))


def _nothing_to_learn(library: Library, sentence: SentenceObjective) -> LitebertError:
    need = "two sentences" if sentence.fewest_sentences == 2 else "one sentence"
    return LitebertError(
        "LB-400",
        f"the corpus has no training sequence for objective.sentence = {sentence.name!r}",
        received=f"{library.num_documents:,} documents",
        expected=f"a document of at least {need}",
        next="give more text, or tell its documents apart (--documents blank-line)",
    )


def _too_few_sequences(batch_size: int, world_size: int) -> LitebertError:
    return LitebertError(
        "LB-401",
        "the batch has fewer sequences than there are processes to share it",
        received=f"{batch_size} sequences for {world_size} processes",
        expected="at least one sequence for each process",
        next=f"repeat the command with train.batch_size={world_size}",
    )
