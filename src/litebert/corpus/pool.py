"""Run the parts of a build in processes of this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TypeVar

from litebert.errors import ResourceError

Task = TypeVar("Task")
Result = TypeVar("Result")


def num_cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_local(work: Callable[[Task], Result], tasks: Sequence[Task], *, workers: int) -> Iterator[Result]:
    """Yield the results of all tasks as they finish, from spawned processes, or from this one.

    Raises:
        LitebertError: That of the first task that fails; the others are stopped at once.
        ResourceError: LB-320, a worker process died.
    """
    if min(workers, len(tasks)) <= 1:
        yield from map(work, tasks)
        return
    with _processes(min(workers, len(tasks))) as executor:
        futures = [executor.submit(work, task) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool as error:
            raise ResourceError(
                "LB-320",
                "a worker process died",
                received=f"{workers} workers; the system may have run out of memory",
                expected="workers that end on their own",
                next="rerun the command with fewer --workers to resume",
            ) from error


@contextmanager
def _processes(num: int) -> Iterator[ProcessPoolExecutor]:
    """Yield processes that end, even if busy, when the block fails or this process dies."""
    context = get_context("spawn")
    lifeline, held_here = context.Pipe(duplex=False)
    executor = ProcessPoolExecutor(num, mp_context=context, initializer=_end_with, initargs=(lifeline,))
    try:
        yield executor
        executor.shutdown()
    finally:
        held_here.close()
        executor.shutdown(cancel_futures=True)
        lifeline.close()


def _end_with(lifeline: Connection) -> None:
    """End this process when the other end of a pipe closes, for instance because it was killed."""
    threading.Thread(target=_wait_and_exit, args=(lifeline,), daemon=True).start()


def _wait_and_exit(lifeline: Connection) -> None:
    lifeline.poll(None)
    os._exit(1)
