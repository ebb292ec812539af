"""Batches made ahead in other processes: the same in the same order, and no process left behind."""

import hashlib
import itertools
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from litebert.config.schema import ObjectiveConfig
from litebert.corpus import Shard
from litebert.errors import LitebertError
from litebert.objectives import Loader, PretrainingBatch, Vocabulary, prefetch, sampling

STEPS = range(30, 230)


@pytest.fixture(scope="module")
def open_loader(corpus: list[Shard], vocabulary: Vocabulary) -> partial[Loader]:
    config = ObjectiveConfig(max_seq_length=64)
    return partial(Loader, corpus, vocabulary=vocabulary, config=config, batch_size=8, seed=3)


@pytest.fixture(scope="module")
def expected(open_loader: partial[Loader]) -> str:
    loader = open_loader()
    return digest((loader.batch(step),) for step in STEPS)


def digest(steps: Iterable[tuple[PretrainingBatch, ...]]) -> str:
    """Hash all that a run sees, with the shares of each step laid end to end."""
    seen = hashlib.blake2b()
    for shares in steps:
        names = ("ids", "positions", "segments", "masked_ids", "sentence_labels")
        parts = [[getattr(share, name) for share in shares] for name in names]
        parts.append([np.diff(share.offsets) for share in shares])
        starts = np.cumsum([0, *(len(share.ids) for share in shares)])
        parts.append([share.masked_positions + start for share, start in zip(shares, starts[:-1], strict=True)])
        seen.update(b"".join(np.concatenate(part).tobytes() for part in parts))
    return seen.hexdigest()


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_do_not_depend_on_workers_depth_or_ranks(
    open_loader: partial[Loader], expected: str, workers: int, world_size: int
) -> None:
    ranks = [prefetch(open_loader, STEPS, rank=n, world_size=world_size, workers=workers) for n in range(world_size)]
    assert digest(zip(*ranks, strict=True)) == expected
    assert not multiprocessing.active_children()


def test_an_error_in_a_worker_reaches_the_reader_whole(open_loader: partial[Loader]) -> None:
    open_nothing = partial(open_loader.func, [], **open_loader.keywords)  # LB-400: there is nothing to learn from
    told = []
    for workers in (0, 1):
        with pytest.raises(LitebertError) as caught:
            next(prefetch(open_nothing, range(5), workers=workers))
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert not multiprocessing.active_children()


def the_worker() -> multiprocessing.Process:
    (worker,) = multiprocessing.active_children()
    return worker


# SIGBUS: what the system sends to a reader of a file cut off
@pytest.mark.parametrize(("number", "message"), [(signal.SIGKILL, r"LB-403: .*\n.*code -9"), (signal.SIGBUS, "LB-344")])
def test_a_killed_worker_is_reported(open_loader: partial[Loader], number: int, message: str) -> None:
    batches = prefetch(open_loader, range(10**9), workers=1)
    next(batches)
    os.kill(the_worker().pid, number)
    with pytest.raises(LitebertError, match=message):
        list(batches)


def test_workers_end_with_the_iterator(open_loader: partial[Loader]) -> None:
    batches = prefetch(open_loader, range(10**9), workers=2)
    next(batches)
    batches.close()
    assert not multiprocessing.active_children()


PARENT = """
import multiprocessing
from functools import partial
import numpy as np
from litebert.config.schema import ObjectiveConfig
from litebert.corpus import Shard
from litebert.objectives import Loader, Vocabulary, prefetch

if __name__ == "__main__":
    text = Shard(np.arange(5, 2405, dtype=np.uint16), np.arange(241) * 10, np.arange(21) * 12)
    vocabulary = Vocabulary(2405, 2, 3, 4, np.ones(2405, bool))
    opened = partial(Loader, [text], vocabulary=vocabulary, config=ObjectiveConfig(), batch_size=8, seed=1)
    batches = prefetch(opened, range(10**9), workers=2)
    next(batches)
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    input()
"""


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        workers = [os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()]
        parent.send_signal(signal.SIGKILL)
    assert len(workers) == 2
    for worker in workers:
        ended, _, _ = select.select([worker], [], [], 8)
        os.close(worker)
        assert ended


@pytest.mark.parametrize("batch_size", [8, 300])  # a batch of 300 does not fit a pipe: one is half sent
def test_a_worker_that_is_stopped_is_replaced(
    open_loader: partial[Loader], batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "STUCK_SECONDS", 1.5)
    opener = partial(open_loader.func, *open_loader.args, **{**open_loader.keywords, "batch_size": batch_size})
    steps, seen = range(3, 23), []
    for batch in prefetch(opener, steps, workers=1):
        seen.append((batch,))
        if len(seen) == 5:
            time.sleep(0.5)
            os.kill(the_worker().pid, signal.SIGSTOP)
    loader = opener()
    assert digest(seen) == digest((loader.batch(step),) for step in steps)


def test_control_batches_counted_by_each_reader_depend_on_the_ranks(
    open_loader: partial[Loader], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, count = Loader.batch, itertools.count(STEPS.start)

    def counted(self: Loader, step: int, *, rank: int = 0, world_size: int = 1) -> PretrainingBatch:
        return original(self, next(count), rank=rank, world_size=world_size)

    monkeypatch.setattr(Loader, "batch", counted)
    test_batches_do_not_depend_on_workers_depth_or_ranks(open_loader, expected, 0, 1)
    with pytest.raises(AssertionError):
        test_batches_do_not_depend_on_workers_depth_or_ranks(open_loader, expected, 0, 2)


def test_control_a_worker_that_nobody_replaces_stays_stopped(
    open_loader: partial[Loader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "STUCK_SECONDS", 1e9)
    batches = prefetch(open_loader, range(10**9), workers=1)
    next(batches)
    worker = the_worker()
    os.kill(worker.pid, signal.SIGSTOP)
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError))
    signal.setitimer(signal.ITIMER_REAL, 4)  # more than twice what the test above needs
    try:
        with pytest.raises(TimeoutError):
            list(batches)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        worker.kill()
