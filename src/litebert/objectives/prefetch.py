"""Batches made ahead of time in processes of their own, in order."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from litebert.errors import LitebertError, ResourceError
from litebert.objectives.batch import PretrainingBatch
from litebert.objectives.loader import Loader


def prefetch(
    open_loader: Callable[[], Loader],
    steps: range,
    *,
    rank: int = 0,
    world_size: int = 1,
    workers: int,
    depth: int = 2,
) -> Iterator[PretrainingBatch]:
    """Yield one rank's batches of `steps` in order, each worker up to `depth` batches ahead.

    Without workers they are made here on demand. Worker i of n makes steps i, i + n, ...; it is
    sent `open_loader`, which must be small (a `partial` of a module's function and paths) and opens
    the corpus there. Workers end with the iterator, and on their own when this process is killed.
    Raises: what `open_loader` and `Loader.batch` raise; ResourceError where a worker was killed.
    """
    task = _Task(open_loader, steps, rank, world_size, depth)
    if not workers:
        loader = open_loader()
        yield from (task.batch(loader, step) for step in steps)
        return
    workers = min(workers, len(steps))
    crew = [_Worker.hired(replace(task, steps=steps[i::workers])) for i in range(workers)]
    try:
        for turn in range(len(steps)):
            yield crew[turn % workers].receive()
    finally:
        for worker in crew:
            worker.dismiss()


@dataclass(frozen=True)
class _Task:
    """Say what a worker is to make."""

    open_loader: Callable[[], Loader]
    steps: range
    rank: int
    world_size: int
    depth: int

    def batch(self, loader: Loader, step: int) -> PretrainingBatch:
        return loader.batch(step, rank=self.rank, world_size=self.world_size)


@dataclass(frozen=True)
class _Worker:
    """Own a process and the reading end of its pipe."""

    process: SpawnProcess
    connection: Connection

    @classmethod
    def hired(cls, task: _Task) -> _Worker:
        context = get_context("spawn")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_serve, args=(task, sender), daemon=True)
        process.start()
        sender.close()  # the worker alone holds this end now, so its death ends the pipe
        return cls(process, receiver)

    def receive(self) -> PretrainingBatch:
        try:
            message = self.connection.recv()
        except (EOFError, OSError):  # ended between two messages, or within one
            self.process.join()
            raise _lost(self.process) from None
        if isinstance(message, LitebertError):
            raise message
        assert isinstance(message, PretrainingBatch)
        return message

    def dismiss(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.join()


def _serve(task: _Task, sender: Connection) -> None:
    """Run in a worker: send the batches of a task, as far ahead as its depth and the pipe allow."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever reads the batches decides when to stop
    with suppress(BrokenPipeError):  # the reader is gone
        try:
            for batch in _made_ahead(task):
                sender.send(batch)
        except LitebertError as error:
            sender.send(error)


def _made_ahead(task: _Task) -> Iterator[PretrainingBatch]:
    """Yield batches while a thread makes the next ones."""
    loader = task.open_loader()
    ready: deque[Future[PretrainingBatch]] = deque()
    with ThreadPoolExecutor(1) as maker:
        for step in task.steps:
            ready.append(maker.submit(task.batch, loader, step))
            if len(ready) > task.depth:
                yield ready.popleft().result()
        while ready:
            yield ready.popleft().result()


def _lost(process: SpawnProcess) -> ResourceError:
    return ResourceError(
        "LB-403",
        "a process that prepares batches ended before its work was done",
        received=f"exit code {process.exitcode}",
        expected="that it lives as long as the run; exit code -9 mostly means: out of memory",
        next="repeat the command with train.loader_workers=0",
    )
