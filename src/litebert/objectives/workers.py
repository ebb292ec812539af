"""Prepare batches ahead of time, in worker processes.

torch's DataLoader has no pipe per worker: all of its workers share one. Its writing
end stays open, so a worker that is stopped or killed in the middle of a message hangs
the reader forever.
"""

import atexit
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection

from litebert.errors import DamagedError, LitebertError, ResourceError
from litebert.objectives.loading import Loader
from litebert.objectives.sequences import PretrainingBatch
from litebert.system import STOP_SIGNALS, is_stopped, truncated_a_mapped_file

# the most batches that a worker keeps ready, besides the one that it is making
DEPTH = 2
# a worker that has been stopped (SIGSTOP) for this long is replaced
STOPPED_SECONDS = 30.0


def prefetch(
    open_loader: Callable[[], Loader],
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
    if workers == 0:
        loader = open_loader()
        for step in steps:
            yield loader.batch(step, rank=rank, world_size=world_size)
        return

    serve = partial(_serve, open_loader, rank, world_size)
    num_workers = min(workers, len(steps))
    crew = list[_Worker]()
    for place in range(num_workers):
        crew.append(_Worker(partial(serve, steps[place::num_workers])))
    try:
        for index in range(len(steps)):
            place = index % num_workers
            batch = crew[place].receive()
            while batch is None:
                # The worker is stopped. A batch depends only on its number, so another
                # worker makes the same ones.
                crew[place] = _Worker(partial(serve, steps[index::num_workers]))
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
        """
        # A thread reads the pipe, because a worker may be stopped in the middle of a
        # message.
        pending = self._reader.submit(self._receiver.recv)
        if not self._wait_for(pending):
            self.dismiss()
            return None
        try:
            message: PretrainingBatch | LitebertError = pending.result()
        except (EOFError, OSError):  # ended between two messages, or within one
            self._process.join()
            raise _death_of_worker(self._process.exitcode) from None
        if isinstance(message, LitebertError):
            raise message
        return message

    def _wait_for(self, pending: Future[PretrainingBatch | LitebertError]) -> bool:
        """Wait for a message, or until the worker has been stopped for too long; return
        whether there is one.
        """
        process = self._process.pid
        assert process is not None, "it has been started"
        last_running = time.monotonic()
        while not wait([pending], timeout=1).done:
            if not is_stopped(process):
                last_running = time.monotonic()
            elif time.monotonic() - last_running > STOPPED_SECONDS:
                return False
        return True

    def dismiss(self) -> None:
        self._process.kill()  # a stopped process would not react to a gentler signal
        atexit.unregister(self._process.kill)
        self._process.join()
        self._reader.shutdown()  # the pipe was closed with the process
        self._receiver.close()


def _death_of_worker(exit_code: int | None) -> LitebertError:
    """Return the error for a worker that ended before its work was done."""
    if truncated_a_mapped_file(exit_code):
        return DamagedError(
            "LB-344",
            "a file of the corpus was truncated while it was read",
            next="litebert corpus check CORPUS",
        )
    return ResourceError(
        "LB-403",
        "a process that prepares batches ended before its work was done",
        received=f"exit code {exit_code}; -9 usually means out of memory",
        next=(
            "rerun with train.loader_workers=0; in a script, put the call under if"
            " __name__ == '__main__':"
        ),
    )


def _serve(
    open_loader: Callable[[], Loader],
    rank: int,
    world_size: int,
    steps: range,
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
                batch = loader.batch(step, rank=rank, world_size=world_size)
                unsent.append(outbox.submit(sender.send, batch))
                if len(unsent) > DEPTH:
                    unsent.popleft().result()
        except LitebertError as error:
            outbox.submit(sender.send, error)
