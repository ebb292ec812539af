"""Batches by number: the same for every reader, also from a mix of corpora, and prefetched
by other processes.
"""

import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, count

import numpy as np
import pytest

from litebert.config import ObjectiveConfig
from litebert.corpus import Shard
from litebert.errors import LitebertError
from litebert.objectives import (
    NO_LABEL,
    CorpusLoader,
    LoaderSettings,
    PretrainingBatch,
    prefetch,
)
from litebert.objectives import workers as worker_processes
from litebert.objectives.loading import CYCLE, MixLoader, mean_length, shares
from tests.waiting import assert_ends

from .conftest import CORPUS, NUMBERED, NUMBERS, TOKENIZER

SETTINGS = LoaderSettings(
    TOKENIZER, ObjectiveConfig(max_seq_length=64), batch_size=12, seed=3
)
OPEN = partial(CorpusLoader, CORPUS, SETTINGS)


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
    small = CorpusLoader(CORPUS, replace(SETTINGS, batch_size=4))
    batches = [in_order.batch(step) for step in range(100)]
    assert 2 * in_order.epoch_size < 100 * 12  # crosses epochs
    assert all((np.diff(np.diff(batch.offsets)) <= 0).all() for batch in batches)
    for step in reversed(range(100)):
        assert_equal(backwards.batch(step), batches[step])
    assert rows_of(small.batch(12 + part) for part in range(3)) == rows_of([batches[4]])


@pytest.mark.parametrize("sentence", ["order", "order-official", "next", "none"])
def test_a_batch_is_consistent_and_its_text_is_in_the_corpus(sentence: str) -> None:
    config = ObjectiveConfig(sentence=sentence, max_seq_length=50)
    batch = CorpusLoader(
        [NUMBERED], LoaderSettings(NUMBERS, config, batch_size=200, seed=3)
    ).batch(0)
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
    settings = replace(SETTINGS, tokenizer=NUMBERS, batch_size=8)
    loader = CorpusLoader([NUMBERED], replace(settings, purpose="evaluation"))
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
    assert sequences_of(few[0]) != sequences_of(
        CorpusLoader([NUMBERED], settings).batch(0)
    )


def test_only_the_first_sequences_have_the_early_share_of_masked_pieces() -> None:
    """They are the ones of a run with that share, also where an epoch ends."""
    objective = SETTINGS.objective.model_copy(update={"mask_prob": 0.3})
    usual = OPEN()
    strong = CorpusLoader(CORPUS, replace(SETTINGS, objective=objective))
    last = usual.epoch_size + 20
    loader = CorpusLoader(
        CORPUS, replace(SETTINGS, early_mask_prob=0.3, early_sequences=last)
    )
    early = loader.batch_between(last - 30, last)
    assert_equal(early, strong.batch_between(last - 30, last))
    late = loader.batch_between(last, last + 30)
    assert_equal(late, usual.batch_between(last, last + 30))
    shares = [len(batch.masked_ids) / len(batch.ids) for batch in (early, late)]
    assert shares == pytest.approx([0.3, 0.15], abs=0.02)


def test_a_document_of_one_sentence_is_a_segment_without_a_label() -> None:
    text = Shard(
        np.arange(5, 45, dtype=np.uint16), np.arange(0, 41, 10), np.array([0, 1, 2, 4])
    )
    batch = CorpusLoader([text], SETTINGS).batch_between(0, 3)
    by_length = {
        len(ids): label
        for ids, label in zip(sequences_of(batch), batch.sentence_labels, strict=True)
    }
    assert by_length[12] == NO_LABEL and by_length[23] in (0, 1)


# ---- a mix of corpora, and the length of what they give ------------------------------


def test_a_share_that_is_almost_nothing_is_refused_by_name() -> None:
    tiny = shares([10**9, 10**8], temperature=0.02)
    assert tiny == pytest.approx([1.0, 0.0])
    with pytest.raises(LitebertError, match="LB-268"):
        MixLoader([OPEN(), OPEN()], tiny, batch_size=4, seed=1)


def test_sequences_of_a_mix_are_those_that_its_corpora_draw_one_by_one() -> None:
    """Over the end of a cycle and of the epochs of both corpora."""
    corpora = [CorpusLoader(CORPUS, replace(SETTINGS, seed=seed)) for seed in (1, 2)]
    mix = MixLoader(corpora, [3, 1], batch_size=4, seed=1)
    first = CYCLE - 30
    last = CYCLE + 30
    together = list(mix.sequences(first, last))
    places = zip(*(part.tolist() for part in mix.places(first, last)), strict=True)
    assert len(together) == 60
    for sequence, (corpus, number) in zip(together, places, strict=True):
        (alone,) = corpora[corpus].sequences(number, number + 1)
        assert np.array_equal(sequence.ids, alone.ids)
        assert np.array_equal(sequence.masked_positions, alone.masked_positions)
        assert np.array_equal(sequence.replacements, alone.replacements)


@pytest.mark.parametrize(
    ("sentence", "length", "tolerance"),
    [
        ("order", 64, 0.02),
        ("none", 256, 0.01),
        ("next", 256, 0.25),  # a B from another document may end with that document
    ],
)
def test_the_mean_length_is_near_that_of_the_batches(
    sentence: str, length: int, tolerance: float
) -> None:
    objective = ObjectiveConfig(sentence=sentence, max_seq_length=length)
    loader = CorpusLoader(CORPUS, replace(SETTINGS, objective=objective))
    batch = loader.batch_between(0, loader.epoch_size)
    measured = np.diff(batch.offsets).mean()
    assert mean_length(CORPUS, objective) == pytest.approx(measured, rel=tolerance)


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
            next(
                prefetch(partial(CorpusLoader, [], SETTINGS), range(5), workers=workers)
            )
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
    monkeypatch.setattr(worker_processes, "STOPPED_SECONDS", 1.5)
    opener = partial(CorpusLoader, CORPUS, replace(SETTINGS, batch_size=batch_size))
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
    original = CorpusLoader.batch
    numbers = count(STEPS.start)
    monkeypatch.setattr(
        CorpusLoader,
        "batch",
        lambda self, _, **share: original(self, next(numbers), **share),
    )
    test_batches_do_not_depend_on_workers_depth_or_ranks(expected, 0, 1)
    with pytest.raises(AssertionError):
        test_batches_do_not_depend_on_workers_depth_or_ranks(expected, 0, 2)


# Waits for a worker that is stopped; ends by an alarm if it is not replaced.
STAYS_STOPPED = """
import multiprocessing, os, signal
from litebert.objectives import prefetch, workers
from tests.objectives.test_batches_by_number import OPEN

workers.STOPPED_SECONDS = 1e9
batches = prefetch(OPEN, range(10**9), workers=1)
next(batches)
(worker,) = multiprocessing.active_children()
os.kill(worker.pid, signal.SIGSTOP)
print(worker.pid, flush=True)
signal.alarm(4)  # seconds: more than twice what the test above needs
list(batches)
"""


def test_control_a_worker_that_is_not_replaced_stays_stopped() -> None:
    command = [sys.executable, "-c", STAYS_STOPPED]  # run in the root, too
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        # a line alone: the worker holds the pipe open, and may outlive its parent
        worker = int(parent.stdout.readline())
        parent.wait(timeout=300)
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    assert parent.returncode == -signal.SIGALRM
