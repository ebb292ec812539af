"""Make batches ahead of time, in worker processes, and yield them in order."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from litebert.errors import DamagedError, LitebertError, ResourceError
from litebert.objectives.batch import PretrainingBatch
from litebert.objectives.staged import Batches

STUCK_SECONDS = 30.0
"""A worker that uses no processor time for this long is replaced."""


def prefetch(
    open_loader: Callable[[], Batches],
    steps: range,
    *,
    rank: int = 0,
    world_size: int = 1,
    workers: int,
    depth: int = 2,
) -> Iterator[PretrainingBatch]:
    """Yield one rank's batches of `steps` in order, each worker up to `depth` batches ahead.

    Without workers, batches are made here on demand. Worker i of n makes steps i, i + n, ...; it
    receives `open_loader`, which must pickle small (a `partial` of a module's function and paths),
    and opens the corpus itself. Workers end with the iterator, or when this process is killed.

    Raises:
        ResourceError: LB-403, a worker was killed; LB-545, workers make no progress.
        DamagedError: LB-344, the corpus was truncated during the run.
        LitebertError: What `open_loader` and `Loader.batch` raise.
    """
    task = _Assignment(open_loader, steps, rank, world_size, depth)
    if not workers:
        loader = open_loader()
        yield from (task.batch(loader, step) for step in steps)
        return
    workers = min(workers, len(steps))
    crew = [_Worker.started(replace(task, steps=steps[i::workers])) for i in range(workers)]
    try:
        for index in range(len(steps)):
            place = index % workers
            batch = crew[place].receive()
            if batch is None:
                crew[place] = _Worker.started(replace(task, steps=steps[index::workers]))
                batch = crew[place].receive()
            if batch is None:
                raise _stuck()
            yield batch
    finally:
        for worker in crew:
            worker.dismiss()


@dataclass(frozen=True)
class _Assignment:
    """The batches that a worker makes."""

    open_loader: Callable[[], Batches]
    steps: range
    rank: int
    world_size: int
    depth: int

    def batch(self, loader: Batches, step: int) -> PretrainingBatch:
        return loader.batch(step, rank=self.rank, world_size=self.world_size)


@dataclass(frozen=True)
class _Worker:
    """A worker process and the reading end of its pipe."""

    process: SpawnProcess
    connection: Connection
    reader: ThreadPoolExecutor

    @classmethod
    def started(cls, task: _Assignment) -> _Worker:
        context = get_context("spawn")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_serve, args=(task, sender), daemon=True)
        process.start()
        sender.close()  # the worker alone holds this end now, so its death ends the pipe
        return cls(process, receiver, ThreadPoolExecutor(1))

    def _processor_time(self) -> str:
        """Return the processor time of the process, where the system tells it (Linux)."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        fields = stat.read_text().rpartition(")")[2].split() if stat.exists() else []
        return " ".join(fields[11:13])  # utime, stime

    def receive(self) -> PretrainingBatch | None:
        """Wait for the next batch; kill a stuck worker and return None.

        A worker is stuck if it uses no processor time for STUCK_SECONDS: the first batch of a large
        corpus may take longer than that, but it computes. A thread reads the pipe, because a worker
        may be stuck in the middle of a message.
        """
        coming = self.reader.submit(self.connection.recv)
        used, since = self._processor_time(), time.monotonic()
        while not wait([coming], timeout=1).done:
            if (now_used := self._processor_time()) != used:
                used, since = now_used, time.monotonic()
            elif time.monotonic() - since > STUCK_SECONDS:
                self.process.kill()
                wait([coming])  # the pipe ends with the process
                self.dismiss()
                return None
        try:
            message = coming.result()
        except (EOFError, OSError):  # ended between two messages, or within one
            self.process.join()
            raise _lost(self.process) from None
        if isinstance(message, LitebertError):
            raise message
        assert isinstance(message, PretrainingBatch)
        return message

    def dismiss(self) -> None:
        self.process.kill()  # a stopped process would not see a gentler signal
        self.process.join()
        self.reader.shutdown()
        self.connection.close()


def _serve(task: _Assignment, sender: Connection) -> None:
    """Send the batches of a task, as far ahead as its depth and the pipe allow; in a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the reader of the batches decides when to stop
    with suppress(BrokenPipeError):  # the reader is gone
        try:
            for batch in _made_ahead(task):
                sender.send(batch)
        except LitebertError as error:
            sender.send(error)


def _made_ahead(task: _Assignment) -> Iterator[PretrainingBatch]:
    """Yield batches while a thread makes the next `depth` ones."""
    loader = task.open_loader()
    ready: deque[Future[PretrainingBatch]] = deque()
    with ThreadPoolExecutor(1) as maker:
        for step in task.steps:
            ready.append(maker.submit(task.batch, loader, step))
            if len(ready) > task.depth:
                yield ready.popleft().result()
        while ready:
            yield ready.popleft().result()


def _stuck() -> ResourceError:
    return ResourceError(
        "LB-545",
        "the processes that prepare batches are stuck",
        received=f"no processor time used in {STUCK_SECONDS:.0f} seconds, twice in a row",
        expected="a corpus on a disk that responds, and processes that are not killed",
        next="repeat the command with train.loader_workers=0",
    )


def _lost(process: SpawnProcess) -> LitebertError:
    if process.exitcode == -signal.SIGBUS:  # a mapped file became shorter
        return DamagedError(
            "LB-344",
            "a file of the corpus was truncated while it was read",
            received="SIGBUS in a process that prepares batches",
            expected="a corpus that does not change during the run",
            next="litebert corpus check CORPUS, then rerun the command to resume",
        )
    return ResourceError(
        "LB-403",
        "a process that prepares batches ended before its work was done",
        received=f"exit code {process.exitcode}",
        expected="a process that lives as long as the run; exit code -9 mostly means out of memory",
        next="rerun with train.loader_workers=0; in a script, call below if __name__ == '__main__'",
    )
