"""Batches by number: the same for every reader, also in large corpora, and prefetched
by other processes.
"""

import gc
import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count

import numpy as np
import pytest

from litebert.config import ObjectiveConfig
from litebert.corpus import Shard
from litebert.corpus.shards import Counts
from litebert.errors import LitebertError
from litebert.objectives import (
    NO_LABEL,
    Loader,
    PretrainingBatch,
    Sampling,
    prefetch,
    sampling,
)
from litebert.objectives.sampling import (
    CYCLE,
    Mixed,
    Windowed,
    estimated_samples,
    plan_epoch,
    shares,
)
from litebert.objectives.sequences import Library
from tests.memory import memory_below
from tests.waiting import assert_ends

from .conftest import CORPUS, NUMBERED, NUMBERS, TOKENIZER, shard

GIVEN = Sampling(TOKENIZER, ObjectiveConfig(max_seq_length=64), batch_size=12, seed=3)
OPEN = partial(Loader, CORPUS, GIVEN)


def assert_equal(first: PretrainingBatch, second: PretrainingBatch) -> None:
    for name, array in vars(first).items():
        np.testing.assert_array_equal(array, getattr(second, name), err_msg=name)


def sequences_of(batch: PretrainingBatch) -> list[list[int]]:
    """Return the ids of each sequence before they were masked."""
    ids = batch.ids.copy()
    ids[batch.masked_positions] = batch.masked_ids
    return [part.tolist() for part in np.split(ids, batch.offsets[1:-1])]


def rows_of(batches: Iterable[PretrainingBatch]) -> list[bytes]:
    """Return everything about each sequence, sorted: its ids before and after masking,
    its masked places, its label.
    """
    rows = []
    for batch in batches:
        is_masked = np.isin(np.arange(len(batch.ids)), batch.masked_positions)
        columns = (batch.ids, batch.positions, batch.segments, is_masked)
        parts = zip(
            *(np.split(column, batch.offsets[1:-1]) for column in columns), strict=True
        )
        every = zip(sequences_of(batch), parts, batch.sentence_labels, strict=True)
        rows += [
            np.stack([ids, *part, np.full(len(ids), label)]).tobytes()
            for ids, part, label in every
        ]
    return sorted(rows)


def test_any_batch_is_the_same_in_any_order_and_has_the_longest_sequences_first() -> (
    None
):
    in_order = OPEN()
    backwards = OPEN()
    small = Loader(CORPUS, replace(GIVEN, batch_size=4))
    batches = [in_order.batch(step) for step in range(100)]
    assert 2 * in_order.epoch_size < 100 * 12  # crosses epochs
    assert all((np.diff(np.diff(batch.offsets)) <= 0).all() for batch in batches)
    for step in reversed(range(100)):
        assert_equal(backwards.batch(step), batches[step])
    assert rows_of(small.batch(12 + part) for part in range(3)) == rows_of([batches[4]])


@pytest.mark.parametrize("sentence", ["order", "order-official", "next", "none"])
def test_a_batch_is_consistent_and_its_text_is_in_the_corpus(sentence: str) -> None:
    config = ObjectiveConfig(sentence=sentence, max_seq_length=50)
    batch = Loader([NUMBERED], Sampling(NUMBERS, config, batch_size=200, seed=3)).batch(
        0
    )
    assert {array.dtype for array in vars(batch).values() if array is not None} == {
        np.dtype("i8")
    }
    assert batch.ids.max() < NUMBERS.vocab_size
    assert np.all(np.diff(batch.masked_positions) > 0)
    assert (batch.sentence_labels is None) == (sentence == "none")
    labels = (
        batch.sentence_labels if batch.sentence_labels is not None else [NO_LABEL] * 200
    )
    cuts = batch.offsets[1:-1]
    frames = zip(
        sequences_of(batch),
        np.split(batch.segments, cuts),
        np.split(batch.positions, cuts),
        strict=True,
    )
    for (sequence, segments, positions), label in zip(frames, labels, strict=True):
        assert 3 <= len(sequence) <= 50
        assert (sequence[0], sequence[-1], sequence.count(3)) == (
            2,
            3,
            1 if label == NO_LABEL else 2,
        )
        cut = sequence.index(3)
        np.testing.assert_array_equal(segments, np.arange(len(sequence)) > cut)
        np.testing.assert_array_equal(positions, np.arange(len(sequence)))
        # ids count up through the corpus, so a segment is one run of them
        first = sequence[1:cut]
        second = sequence[cut + 1 : -1]
        assert np.all(np.diff(first) == 1) and np.all(np.diff(second) == 1)
        if sentence == "order":
            assert (first[0] > second[0]) == bool(label)
            assert (first[0] - 5) // 120 == (second[0] - 5) // 120


def test_evaluation_batches_are_fixed_distinct_and_not_those_of_training() -> None:
    given = replace(GIVEN, tokenizer=NUMBERS, batch_size=8)
    loader = Loader([NUMBERED], replace(given, purpose="evaluation"))
    few = list(loader.once(20))
    for first, second in zip(few, loader.once(20), strict=True):
        assert_equal(first, second)
    assert [len(batch.offsets) - 1 for batch in few] == [8, 8, 4]
    seen = [
        tuple(sequence)
        for batch in loader.once(10**9)
        for sequence in sequences_of(batch)
    ]
    assert len(seen) == len(set(seen)) > 20
    assert sequences_of(few[0]) != sequences_of(Loader([NUMBERED], given).batch(0))


def test_a_document_of_one_sentence_is_a_segment_without_a_label() -> None:
    text = Shard(
        np.arange(5, 45, dtype=np.uint16), np.arange(0, 41, 10), np.array([0, 1, 2, 4])
    )
    batch = Loader([text], GIVEN).samples(0, 3)
    by_length = {
        len(ids): label
        for ids, label in zip(sequences_of(batch), batch.sentence_labels, strict=True)
    }
    assert by_length[12] == NO_LABEL and by_length[23] in (0, 1)


# Corpora of several windows: at most two windows are held in memory.

SHARDS = [shard(seed, num_documents=12 + seed) for seed in range(8)]
SIZES = (
    (len(each.documents) - 1, len(each.sentences) - 1, each.tokens.size)
    for each in SHARDS
)
COUNTS = [
    Counts(documents=documents, sentences=sentences, tokens=tokens)
    for documents, sentences, tokens in SIZES
]
WINDOW = 3 * max(each.tokens for each in COUNTS)
EARLY = replace(GIVEN, early_mask_prob=0.5, early_samples=100)


class Opened:
    """Open shards, and track which are still in memory."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards = shards
        self.held = list[weakref.ref[Shard]]()
        self.most = 0

    def __call__(self, numbers: Sequence[int]) -> list[Shard]:
        gc.collect()
        made = [replace(self.shards[number]) for number in numbers]
        self.held = [
            each for each in (*self.held, *map(weakref.ref, made)) if each() is not None
        ]
        self.most = max(self.most, len(self.held))
        return made


def _windowed(opened: Opened, seed: int = 3) -> Windowed:
    return Windowed(COUNTS, opened, replace(EARLY, seed=seed), window_pieces=WINDOW)


def test_an_epoch_has_every_shard_once_in_an_order_of_its_own() -> None:
    windowed = _windowed(Opened(SHARDS))
    epochs = [windowed.windows(epoch) for epoch in range(3)]
    for windows in epochs:
        assert sorted(chain.from_iterable(w.shards for w in windows)) == list(
            range(len(SHARDS))
        )
        assert len(windows) > 2
        assert all(
            sum(COUNTS[number].tokens for number in w.shards) <= WINDOW for w in windows
        )
        samples = list(chain.from_iterable(window.samples for window in windows))
        assert samples == list(range(windowed.epoch_size))
    assert len({tuple(w.shards for w in windows) for windows in epochs}) == 3


def test_any_batch_of_many_windows_is_the_same_in_any_order_while_two_windows_are_held() -> (
    None
):
    opened = Opened(SHARDS)
    forwards = _windowed(opened)
    steps = range(forwards.epoch_size // 12 + 20)  # crosses windows and an epoch
    batches = {step: forwards.batch(step) for step in steps}
    assert opened.most <= 3 * max(len(window.shards) for window in forwards.windows(0))
    assert opened.most < len(SHARDS) + 2
    backwards = _windowed(Opened(SHARDS))
    for step in reversed(steps):
        assert_equal(backwards.batch(step), batches[step])
    corpora = [_windowed(Opened(SHARDS), seed) for seed in (3, 4)]
    # only the second corpus
    mixes = [
        Mixed(corpora, [1, 9_999], batch_size=4, seed=1).batch(0) for _ in range(2)
    ]
    assert_equal(*mixes)
    assert shares([10**9, 10**8], temperature=0.02) == pytest.approx([1.0, 0.0]), (
        "a mix that is refused by name"
    )


def test_samples_of_a_mix_are_those_that_its_corpora_draw_one_by_one() -> None:
    """Over the end of a cycle and of the epochs of both corpora."""
    corpora = [Loader(CORPUS, replace(GIVEN, seed=seed)) for seed in (1, 2)]
    mix = Mixed(corpora, [3, 1], batch_size=4, seed=1)
    first = CYCLE - 30
    last = CYCLE + 30
    together = list(mix.make(first, last))
    places = zip(*(part.tolist() for part in mix.places(first, last)), strict=True)
    assert len(together) == 60
    for sample, (corpus, number) in zip(together, places, strict=True):
        (alone,) = corpora[corpus].make(number, number + 1)
        assert np.array_equal(sample.ids, alone.ids)
        assert np.array_equal(sample.masked_positions, alone.masked_positions)
        assert np.array_equal(sample.replacements, alone.replacements)


@pytest.mark.parametrize(
    ("sentence", "length"), [("order", 64), ("next", 256), ("none", 256)]
)
def test_the_estimated_number_of_samples_is_near_the_plan(
    sentence: str, length: int
) -> None:
    config = ObjectiveConfig(sentence=sentence, max_seq_length=length)
    plan = plan_epoch(Library(SHARDS), config, seed=1, purpose="train", epoch=0)
    assert sum(estimated_samples(COUNTS, config)) == pytest.approx(len(plan), rel=0.2)


def test_a_billion_documents_take_no_more_memory_than_two_windows() -> None:
    sizes = [
        Counts(documents=134_000, sentences=20 * 134_000, tokens=67_000_000)
    ] * 7_500
    with memory_below(64 << 20):
        windowed = Windowed(
            sizes, Opened(SHARDS[:1] * 7_500), GIVEN, window_pieces=1 << 32
        )
        assert windowed.epoch_size > 1e9
        for step in (0, 10_000_000, 80_000_000):
            assert len(windowed.batch(step).offsets) == 13


# Prefetched by other processes: the same batches in the same order, and no process is
# left behind.

STEPS = range(30, 230)


def digest(steps: Iterable[tuple[PretrainingBatch, ...]]) -> str:
    """Hash everything that a run sees, step by step, whichever rank has a sequence."""
    return hashlib.blake2b(
        b"".join(chain.from_iterable(map(rows_of, steps)))
    ).hexdigest()


@pytest.fixture(scope="module")
def expected() -> str:
    return digest((batch,) for batch in map(OPEN().batch, STEPS))


@pytest.mark.parametrize("world_size", [1, 2, 5])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_do_not_depend_on_workers_depth_or_ranks(
    expected: str, workers: int, world_size: int
) -> None:
    ranks = [
        prefetch(OPEN, STEPS, rank=n, world_size=world_size, workers=workers)
        for n in range(world_size)
    ]
    assert digest(zip(*ranks, strict=True)) == expected
    assert not multiprocessing.active_children()


def test_an_error_in_a_worker_reaches_the_reader_whole_and_workers_end_with_the_iterator() -> (
    None
):
    messages = set()
    for workers in (0, 1):
        with pytest.raises(
            LitebertError, match=r"LB-400: .*\n.*0 documents\n.*1 sentence"
        ) as caught:
            next(prefetch(partial(Loader, [], GIVEN), range(5), workers=workers))
        messages.add(str(caught.value))
    assert len(messages) == 1 and not multiprocessing.active_children()
    batches = prefetch(OPEN, range(10**9), workers=2)
    next(batches)
    batches.close()
    assert not multiprocessing.active_children()


# SIGBUS: what the system sends to the reader of a mapped file that was truncated
@pytest.mark.parametrize(
    ("number", "message"),
    [(signal.SIGKILL, r"LB-403: .*\n.*code -9"), (signal.SIGBUS, "LB-344")],
)
def test_a_killed_worker_is_reported(number: int, message: str) -> None:
    batches = prefetch(OPEN, range(10**9), workers=1)
    next(batches)
    (worker,) = multiprocessing.active_children()
    os.kill(worker.pid, number)
    with pytest.raises(LitebertError, match=message):
        list(batches)


PARENT = """
import multiprocessing
from litebert.objectives import prefetch
from tests.objectives.test_batches_by_number import OPEN
batches = prefetch(OPEN, range(10**9), workers=2)
next(batches)
print(*(child.pid for child in multiprocessing.active_children()), flush=True)
input()
"""


def test_workers_end_when_their_parent_is_killed() -> None:
    command = [sys.executable, "-c", PARENT]  # run in the root of the repository
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        workers = [os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()]
        parent.send_signal(signal.SIGKILL)
    assert len(workers) == 2
    for worker in workers:
        assert_ends(worker)
        os.close(worker)


# a batch of 300 does not fit into a pipe: it is half sent
@pytest.mark.parametrize("batch_size", [8, 300])
def test_a_worker_that_is_stopped_is_replaced(
    batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "STOPPED_SECONDS", 1.5)
    opener = partial(Loader, CORPUS, replace(GIVEN, batch_size=batch_size))
    steps = range(3, 23)
    seen = []
    for batch in prefetch(opener, steps, workers=1):
        seen.append((batch,))
        if len(seen) == 5:
            time.sleep(0.5)
            (worker,) = multiprocessing.active_children()
            os.kill(worker.pid, signal.SIGSTOP)
    assert digest(seen) == digest((batch,) for batch in map(opener().batch, steps))


def test_control_batches_counted_by_each_reader_depend_on_the_ranks(
    expected: str, monkeypatch
) -> None:
    original = Loader.batch
    numbers = count(STEPS.start)
    monkeypatch.setattr(
        Loader, "batch", lambda self, _, **share: original(self, next(numbers), **share)
    )
    test_batches_do_not_depend_on_workers_depth_or_ranks(expected, 0, 1)
    with pytest.raises(AssertionError):
        test_batches_do_not_depend_on_workers_depth_or_ranks(expected, 0, 2)


def test_control_a_worker_that_is_not_replaced_stays_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampling, "STOPPED_SECONDS", 1e9)
    batches = prefetch(OPEN, range(10**9), workers=1)
    next(batches)
    (worker,) = multiprocessing.active_children()
    os.kill(worker.pid, signal.SIGSTOP)
    before = signal.signal(
        signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError)
    )
    signal.setitimer(signal.ITIMER_REAL, 4)  # more than twice what the test above needs
    try:
        with pytest.raises(TimeoutError):
            list(batches)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        worker.kill()
