"""Make any batch of a pretraining run directly from its number, from a corpus of any
size or a mix; and prefetch.

The plan of an epoch lists the sentences of each instance (create_pretraining_data.py
L266-386). Every random number is a function of (seed, purpose, epoch, shard, sentence),
so none depends on another or on the order of the work.
"""

import atexit
import signal
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from litebert import rng
from litebert.config import ObjectiveConfig
from litebert.corpus import Shard
from litebert.corpus.shards import Counts
from litebert.errors import DamagedError, LitebertError, ResourceError, format_count
from litebert.objectives import sequences
from litebert.objectives.sequences import (
    Draws,
    Instance,
    Library,
    PretrainingBatch,
    Sample,
    sentence_objective,
)
from litebert.rng import Ints
from litebert.system import STOP_SIGNALS, is_stopped, truncated_a_mapped_file
from litebert.tokenizer import Tokenizer

SHORTEST_TARGET = 2  # the smallest target length of a short sequence, in tokens (L284)

# pieces that are shuffled together; a corpus of up to this many is one window, planned
# exactly
WINDOW_PIECES = 1 << 32
TRIAL_DOCUMENTS = 64
TRIAL_SENTENCES = 1_000
# samples per cycle of a mix; each cycle has exactly the share of every corpus, in a new
# random order
CYCLE = 10_000

# the most batches that a worker keeps ready, besides the one that it is making
DEPTH = 2
# a worker that has been stopped (SIGSTOP) for this long is replaced
STOPPED_SECONDS = 30.0


# ---- the plan of an epoch ------------------------------------------------------------


def plan_epoch(
    library: Library, config: ObjectiveConfig, *, seed: int, purpose: str, epoch: int
) -> NDArray[np.int32]:
    """Cut documents into the instances of one epoch, rows of `Instance`; documents that
    are too short are left out.
    """
    sentence = sentence_objective(config.sentence)
    # tokens of text: without [CLS] and [SEP]
    longest = config.max_seq_length - (3 if sentence.has_labels else 2)
    planned = [np.empty((0, 6), np.int32)]
    for number, shard in enumerate(library.shards):
        shard.require_unchanged()
        draws = Draws(seed, purpose, epoch, number)
        # All documents advance by one chunk at a time: each array has an entry per
        # unfinished document.
        start = shard.documents[:-1]
        stop = shard.documents[1:]
        fewest = np.full_like(start, sentence.fewest_sentences)
        if sentence.keeps_single_sentences:
            fewest = np.minimum(fewest, stop - start)
        usable = (stop > start) & (stop - start >= fewest)
        start = start[usable]
        stop = stop[usable]
        fewest = fewest[usable]
        document = start
        rounds = [np.empty((3, 0), np.int64)]
        while start.size:
            # too few sentences left: reuse earlier ones
            start = np.minimum(start, stop - fewest)
            # The target length in tokens (L282-284) is drawn per chunk; upstream, once
            # per document and pass.
            key = document if config.short_seq_per == "document" else start
            is_short = draws.uniform("is-short", key) < config.short_seq_prob
            target = np.full_like(key, longest)
            target[is_short] = draws.integers(
                "short", SHORTEST_TARGET, longest, key[is_short]
            )
            reached = np.searchsorted(shard.sentences, shard.sentences[start] + target)
            end = np.minimum(np.maximum(reached, start + fewest), stop)
            rounds.append(np.stack((start, end, target)))  # (3, unfinished documents)
            before = start
            start = sentence.following(draws, start, end)
            # Stop if too few sentences are left to move on, or the same chunk would
            # repeat forever.
            goes_on = (start < stop) & (np.minimum(start, stop - fewest) > before)
            start = start[goes_on]
            stop = stop[goes_on]
            fewest = fewest[goes_on]
            document = document[goes_on]
        start, end, target = np.concatenate(rounds, axis=1)  # (instances of the shard,)
        middle, kind = sentence.divide(draws, start, end)
        columns = (np.full_like(start, number), start, middle, end, kind, target)
        planned.append(np.stack(columns, axis=1).astype(np.int32))
    return np.concatenate(planned)


# ---- samples by their number ---------------------------------------------------------


class Samples(ABC):
    """Samples by number. Each depends only on the seed and its number, not on the
    process or the order of requests.
    """

    batch_size: int

    @abstractmethod
    def make(self, start: int, stop: int) -> Iterator[Sample]:
        """Yield the samples with the numbers start, start + 1, ... stop - 1."""

    def samples(self, start: int, stop: int) -> PretrainingBatch:
        """Return these samples as one batch."""
        return sequences.collate(self.make(start, stop))

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
        start, stop = (size * place // world_size for place in (rank, rank + 1))
        return self.samples(step * size + start, step * size + stop)


@dataclass(frozen=True)
class Sampling:
    """Everything that the samples of a corpus depend on, apart from its text and their
    numbers.
    """

    tokenizer: Tokenizer
    config: ObjectiveConfig
    batch_size: int
    seed: int
    # selects the random numbers, so that evaluation never draws what training draws
    purpose: str = "train"
    # the share of masked pieces in the first `early_samples`
    early_mask_prob: float | None = None
    early_samples: int = 0


class Loader(Samples):
    """The samples of a corpus, numbered consecutively over all epochs.

    Every epoch has `epoch_size` of them, the number of instances of epoch 0. Epochs cut
    documents differently: if a later one has a few more instances, a random few stay
    unseen; if it has fewer, a random few are seen twice, with other masks. In return, a
    sample needs only the plan of its own epoch: a resumed run replays nothing.
    """

    def __init__(self, shards: Sequence[Shard], given: Sampling) -> None:
        self.batch_size = given.batch_size
        self._given = given
        self._library = Library(shards)
        self._early = given.config.model_copy(
            update={"mask_prob": given.early_mask_prob or given.config.mask_prob}
        )
        plan = partial(
            plan_epoch,
            self._library,
            given.config,
            seed=given.seed,
            purpose=given.purpose,
        )
        self._plan = lru_cache(maxsize=2)(plan)
        self.epoch_size = len(self._plan(epoch=0))
        if not self.epoch_size:
            sentence = sentence_objective(given.config.sentence)
            fewest = format_count(
                1 if sentence.keeps_single_sentences else sentence.fewest_sentences,
                "sentence",
            )
            what = (
                "the corpus has no training sequence for objective.sentence ="
                f" {given.config.sentence!r}"
            )
            received = format_count(self._library.num_documents, "document")
            expected = f"a document of {fewest} or more"
            advice = (
                "give more text, or separate its documents (--documents blank-line)"
            )
            raise LitebertError(
                "LB-400", what, received=received, expected=expected, next=advice
            )

    def make(self, start: int, stop: int) -> Iterator[Sample]:
        given = self._given
        sentence = sentence_objective(self._given.config.sentence)
        while start < stop:
            epoch, first = divmod(start, self.epoch_size)
            positions = np.arange(first, min(first + stop - start, self.epoch_size))
            # The order of an epoch is a random permutation of the rows of its plan.
            plan = self._plan(epoch=epoch)
            rows = rng.permutation(
                given.seed,
                f"{given.purpose}-order",
                epoch,
                len(plan),
                positions % len(plan),
            )
            for position, row in zip(
                positions.tolist(), plan[rows].tolist(), strict=True
            ):
                generator = rng.stream(
                    given.seed, f"{given.purpose}-sample", epoch, position
                )
                instance = Instance(*row)
                is_early = epoch * self.epoch_size + position < given.early_samples
                config = self._early if is_early else given.config
                ids, first_length = sequences.frame(
                    self._library, instance, given.tokenizer, config, generator
                )
                masked, replacements = sequences.mask(
                    ids, given.tokenizer, config, generator
                )
                label = sentence.label(instance.kind) if sentence.has_labels else None
                yield Sample(ids, first_length, label, masked, replacements)
            start += len(positions)

    def once(self, num_sequences: int) -> Iterator[PretrainingBatch]:
        """Yield at most `num_sequences` sequences of one pass over the corpus, none
        twice, as batches.
        """
        total = min(num_sequences, self.epoch_size)
        for start in range(0, total, self.batch_size):
            yield self.samples(start, min(start + self.batch_size, total))


# ---- a corpus too large to plan at once: windows of its shards -----------------------
#
# Its shards are shuffled, then its instances within windows of shards. Memory does not
# grow with the corpus, except for a few numbers per shard: only two windows are held.


# opens the shards with these numbers
Opener: TypeAlias = Callable[[Sequence[int]], Sequence[Shard]]


class Window(NamedTuple):
    """A window of an epoch: its number, its shards, and which samples of the epoch it
    has.
    """

    epoch: int
    number: int
    shards: tuple[int, ...]
    samples: range


class Windowed(Samples):
    """The samples of a large corpus, window by window; the next window is opened ahead
    of time.

    The number of samples of a shard is estimated from its sizes. If its plan has more,
    a random few stay unseen in this epoch; if it has fewer, a random few are seen
    twice.
    """

    def __init__(
        self,
        shards: Sequence[Counts],
        open_shards: Opener,
        given: Sampling,
        *,
        window_pieces: int,
    ) -> None:
        samples = estimated_samples(shards, given.config)
        self._sizes = [*zip(samples, (each.tokens for each in shards), strict=True)]
        self.batch_size = given.batch_size
        self.epoch_size = sum(samples)
        self._open_shards = open_shards
        self._given = given
        self._window_pieces = window_pieces
        self.windows = lru_cache(maxsize=2)(self._windows)
        self._opener = ThreadPoolExecutor(1, "windows")
        self._held: dict[Window, Future[Loader]] = {}

    def _windows(self, epoch: int) -> list[Window]:
        count = len(self._sizes)
        purpose = f"{self._given.purpose}-shards"
        shuffled = rng.permutation(
            self._given.seed, purpose, epoch, count, np.arange(count)
        )
        windows = list[Window]()
        shards = list[int]()
        size = 0
        first = 0
        stop = 0
        # A shard is never split between windows, even if it is larger than one.
        for shard in shuffled.tolist():
            samples, pieces = self._sizes[shard]
            if shards and size + pieces > self._window_pieces:
                windows.append(
                    Window(epoch, len(windows), tuple(shards), range(first, stop))
                )
                shards = []
                size = 0
                first = stop
            shards.append(shard)
            size = size + pieces
            stop = stop + samples
        return [
            *windows,
            Window(epoch, len(windows), tuple(shards), range(first, stop)),
        ]

    def make(self, start: int, stop: int) -> Iterator[Sample]:
        while start < stop:
            epoch, position = divmod(start, self.epoch_size)
            windows = self.windows(epoch)
            window = next(each for each in windows if position in each.samples)
            # All windows but this one and the next are released.
            following = (
                self.windows(epoch + 1)[0]
                if window is windows[-1]
                else windows[window.number + 1]
            )
            both = (window, following)
            submit = self._opener.submit
            self._held = {
                each: self._held.get(each) or submit(self._open, each) for each in both
            }
            first = position - window.samples.start
            # the rest is in the next window
            count = min(stop - start, window.samples.stop - position)
            yield from self._held[window].result().make(first, first + count)
            start += count

    def _open(self, window: Window) -> Loader:
        # samples of the run before this window
        before = window.epoch * self.epoch_size + window.samples.start
        num_early = min(max(0, self._given.early_samples - before), len(window.samples))
        purpose = f"{self._given.purpose}-{window.epoch}-{window.number}"
        given = replace(self._given, purpose=purpose, early_samples=num_early)
        return Loader(self._open_shards(window.shards), given)


def estimated_samples(
    shards: Sequence[Counts], config: ObjectiveConfig
) -> tuple[int, ...]:
    """Estimate the number of instances of each shard without reading it.

    A document of n pieces gives n / c instances, rounded up, where c is found by a
    trial. If lengths are distributed exponentially with mean m, that is 1 / (1 - exp(-c
    / m)) on average.
    """
    sentence = sentence_objective(config.sentence)
    num_sentences = sum(each.sentences for each in shards)
    num_pieces = sum(each.tokens for each in shards)
    mean = num_sentences and num_pieces / num_sentences
    # A trial with sentences of that mean length: how many pieces lie between one
    # instance and the next?
    drawn = rng.uniform(0, "trial", np.arange(TRIAL_DOCUMENTS * TRIAL_SENTENCES))
    lengths: Ints = np.ceil(-mean * np.log1p(-drawn)).astype(np.int64).clip(1)
    sentences = np.concatenate(([0], np.cumsum(lengths)))  # (sentences + 1,), in pieces
    trial = Shard(
        np.empty(0, np.uint16),
        sentences,
        np.arange(TRIAL_DOCUMENTS + 1) * TRIAL_SENTENCES,
    )
    plan = plan_epoch(Library([trial]), config, seed=0, purpose="trial", epoch=0)
    starts = np.sort(plan[:, 1])  # (instances,), in sentences
    documents = starts // TRIAL_SENTENCES
    # pieces, within a document
    between = np.diff(sentences[starts])[documents[1:] == documents[:-1]]
    advance = (
        float(between.mean()) if between.size else float(sentences[-1] / len(plan))
    )
    # A document of one sentence gives no sample for an objective that compares two,
    # unless it keeps such documents.
    skips_single = sentence.fewest_sentences > 1 and not sentence.keeps_single_sentences
    estimated = []
    for each in shards:
        usable = each.documents - each.single_sentence_documents * skips_single
        expected = (
            usable / -np.expm1(-advance * usable / each.tokens)
            if usable and each.tokens
            else 0
        )
        estimated.append(max(1, round(expected)) if expected else 0)
    return tuple(estimated)


# ---- a mix of corpora ----------------------------------------------------------------


class Mixed(Samples):
    """Samples of several corpora by weight: a sample's number decides which corpus it
    comes from.

    Each corpus gives its samples in order, so that it seldom changes its epoch or its
    window.
    """

    def __init__(
        self,
        corpora: Sequence[Samples],
        weights: Sequence[float],
        *,
        batch_size: int,
        seed: int,
    ) -> None:
        self.batch_size = batch_size
        self._corpora = corpora
        self._seed = seed
        self._counts = counts_in_cycle(weights)
        self._cycle = lru_cache(maxsize=1)(self._shuffle)

    def make(self, start: int, stop: int) -> Iterator[Sample]:
        corpora, numbers = self.places(start, stop)
        # Each corpus is asked once for all of its samples, which have consecutive
        # numbers: asked for them one by one, it would draw the order of each anew.
        samples: dict[int, Iterator[Sample]] = {}
        firsts = np.unique(corpora, return_index=True, return_counts=True)
        for corpus, at, count in zip(*(part.tolist() for part in firsts), strict=True):
            first = int(numbers[at])
            samples[corpus] = self._corpora[corpus].make(first, first + count)
        for corpus in corpora.tolist():
            yield next(samples[corpus])

    def places(self, start: int, stop: int) -> tuple[Ints, Ints]:
        """Return the corpora of the samples start, start + 1, ... stop - 1, and their
        numbers within these corpora; both (samples,).
        """
        corpora = [np.empty(0, np.int64)]
        numbers = [np.empty(0, np.int64)]
        for cycle in range(start // CYCLE, -(-stop // CYCLE)):
            begins = cycle * CYCLE
            here = slice(max(0, start - begins), min(CYCLE, stop - begins))
            corpus, earlier = self._cycle(cycle)
            corpora.append(corpus[here])
            numbers.append(cycle * self._counts[corpus[here]] + earlier[here])
        return np.concatenate(corpora), np.concatenate(numbers)

    def _shuffle(self, cycle: int) -> tuple[Ints, Ints]:
        """Return the corpus of each sample of a cycle, and how many earlier ones come
        from the same; both (CYCLE,).
        """
        order = rng.permutation(self._seed, "mix", cycle, CYCLE, np.arange(CYCLE))
        corpora = np.repeat(np.arange(len(self._counts)), self._counts)[order]
        earlier = np.empty_like(corpora)
        earlier[np.argsort(corpora, kind="stable")] = np.concatenate(
            [np.arange(count) for count in self._counts]
        )
        return corpora, earlier


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
    given = np.array(weights or sizes, dtype=np.float64)
    # exact, below 1: none overflows
    powers = (given / 2.0 ** np.frexp(given.max())[1]) ** (1 / temperature)
    return [float(share) for share in powers / powers.sum()]


def counts_in_cycle(weights: Sequence[float]) -> Ints:
    """Return how many samples of a cycle each corpus has, rounded by largest remainder.

    >>> counts_in_cycle([2, 1]).tolist()
    [6667, 3333]
    """
    exact = np.array(weights, dtype=np.float64) / np.sum(weights) * CYCLE
    counts: Ints = np.floor(exact).astype(np.int64)
    missing = CYCLE - counts.sum()  # fewer than there are corpora
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    if (counts == 0).any():
        what = f"a corpus of the mix has almost no share, less than 1 in {CYCLE:,}"
        received = ", ".join(f"{weight:g}" for weight in weights)
        advice = "omit that corpus, or raise data.temperature"
        raise LitebertError("LB-268", what, received=received, next=advice)
    return counts


# ---- prefetching, in worker processes ------------------------------------------------
#
# torch's DataLoader has no pipe per worker: all of its workers share one. Its writing
# end stays open, so a worker that is stopped or killed in the middle of a message hangs
# the reader forever.


def prefetch(
    open_loader: Callable[[], Samples],
    steps: range,
    *,
    rank: int = 0,
    world_size: int = 1,
    workers: int,
) -> Iterator[PretrainingBatch]:
    """Yield one rank's batches of `steps` in order, prepared ahead of time by worker
    processes.

    Without workers, batches are made here on demand. Worker i of n makes steps i, i +
    n, ...; it receives `open_loader`, which must pickle small (a `partial` of a
    module's function and paths), and opens the corpus itself. Workers end with the
    iterator, or when this process is killed.
    """
    if not workers:
        loader = open_loader()
        yield from (
            loader.batch(step, rank=rank, world_size=world_size) for step in steps
        )
        return

    def start(some: range) -> _Worker:
        return _Worker(partial(_serve, open_loader, some, rank, world_size))

    workers = min(workers, len(steps))
    crew = [start(steps[place::workers]) for place in range(workers)]
    try:
        for index in range(len(steps)):
            place = index % workers
            batch = crew[place].receive()
            # stopped; a batch depends only on its number, so another worker makes the
            # same ones
            while batch is None:
                crew[place] = start(steps[index::workers])
                batch = crew[place].receive()
            yield batch
    finally:
        for worker in crew:
            worker.dismiss()


class _Worker:
    """A process that sends batches, and the reading end of its pipe."""

    def __init__(self, serve: Callable[[Connection], None]) -> None:
        context = get_context("spawn")
        self._receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=serve, args=(sender,), daemon=True)
        self._process.start()
        # else multiprocessing sends SIGTERM, which is ignored, and waits
        atexit.register(self._process.kill)
        # now only the worker holds this end, so its death closes the pipe
        sender.close()
        self._reader = ThreadPoolExecutor(1)

    def receive(self) -> PretrainingBatch | None:
        """Wait for the next batch; if the worker has been stopped for STOPPED_SECONDS,
        kill it and return None.

        A thread reads the pipe, because a worker may be stopped in the middle of a
        message.
        """
        coming = self._reader.submit(self._receiver.recv)
        process = self._process.pid
        assert process is not None, "it has been started"
        # when it was last seen running
        running = time.monotonic()
        while not wait([coming], timeout=1).done:
            if not is_stopped(process):
                running = time.monotonic()
            elif time.monotonic() - running > STOPPED_SECONDS:
                self.dismiss()
                return None
        try:
            message: PretrainingBatch | LitebertError = coming.result()
        except (EOFError, OSError):  # ended between two messages, or within one
            self._process.join()
            code = self._process.exitcode
            if truncated_a_mapped_file(code):
                what = "a file of the corpus was truncated while it was read"
                advice = "litebert corpus check CORPUS"
                raise DamagedError("LB-344", what, next=advice) from None
            what = "a process that prepares batches ended before its work was done"
            advice = (
                "rerun with train.loader_workers=0; in a script, put the call under if"
                " __name__ == '__main__':"
            )
            received = f"exit code {code}; -9 usually means out of memory"
            raise ResourceError(
                "LB-403", what, received=received, next=advice
            ) from None
        if isinstance(message, LitebertError):
            raise message
        return message

    def dismiss(self) -> None:
        self._process.kill()  # a stopped process would not react to a gentler signal
        atexit.unregister(self._process.kill)
        self._process.join()
        self._reader.shutdown()  # the pipe was closed with the process
        self._receiver.close()


def _serve(
    open_loader: Callable[[], Samples],
    steps: range,
    rank: int,
    world_size: int,
    sender: Connection,
) -> None:
    """Run in a worker: make batches, while a thread sends the earlier ones, at most
    DEPTH of them.
    """
    # Launchers send signals to the whole group, and the reader of the batches decides
    # when to stop.
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    unsent: deque[Future[None]] = deque()
    # a broken pipe: the reader is gone
    with suppress(BrokenPipeError), ThreadPoolExecutor(1) as outbox:
        try:
            loader = open_loader()
            for step in steps:
                unsent.append(
                    outbox.submit(
                        sender.send,
                        loader.batch(step, rank=rank, world_size=world_size),
                    )
                )
                if len(unsent) > DEPTH:
                    unsent.popleft().result()
        except LitebertError as error:
            outbox.submit(sender.send, error)
