"""Run the parts of a build in processes of this machine, or as tasks of a Ray cluster."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from litebert.errors import LitebertError, ResourceError, missing_package

Task = TypeVar("Task")
Result = TypeVar("Result")


def num_cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_local(work: Callable[[Task], Result], tasks: Sequence[Task], *, workers: int) -> Iterator[Result]:
    """Yield the results of all tasks as they finish, from spawned processes, or from this one.

    The error of the first task that fails is raised, and the others are stopped at once. The processes end, even if
    busy, when this one dies.
    """
    workers = min(workers, len(tasks))
    if workers <= 1:
        yield from map(work, tasks)
        return
    context = get_context("spawn")
    lifeline, held_here = context.Pipe(duplex=False)
    executor = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with, initargs=(lifeline,))
    try:
        for future in as_completed([executor.submit(work, task) for task in tasks]):
            yield future.result()
        executor.shutdown()
    except BrokenProcessPool as error:
        raise ResourceError(
            "LB-320",
            "a worker process died",
            received=f"{workers} workers; the system may have run out of memory",
            expected="workers that end on their own",
            next="rerun the command with fewer --workers to resume",
        ) from error
    finally:
        held_here.close()
        executor.shutdown(cancel_futures=True)
        lifeline.close()


def _end_with(lifeline: Connection) -> None:
    """End this process when the other end of a pipe closes, for instance because it was killed."""

    def wait_and_exit() -> None:
        lifeline.poll(None)
        os._exit(1)

    threading.Thread(target=wait_and_exit, daemon=True).start()


def run_on_ray(work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
    """Yield the results of all tasks as they finish; join the cluster at RAY_ADDRESS if set.

    Every node needs litebert, and the same paths for inputs, tokenizer and output. Ray repeats a task whose worker
    died; its `util.multiprocessing.Pool` would not.
    """
    try:
        import ray
    except ImportError as error:
        raise missing_package("ray", extra="cluster", needed_for="--cluster") from error
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    remote: Any = ray.remote(_guarded)
    pending = [remote.remote(work, task) for task in tasks]
    try:
        while pending:
            done, pending = ray.wait(pending)
            for reference in done:
                result = ray.get(reference)
                if isinstance(result, LitebertError):
                    raise result
                yield result
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
        raise ResourceError(
            "LB-337",
            "a worker on the cluster died",
            received=type(error).__name__,
            expected="workers that end on their own",
            next="ray status; then rerun the command to resume",
        ) from error
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)


def _guarded(work: Callable[[Task], Result], task: Task) -> Result | LitebertError:
    """Do the work; return a LitebertError instead of raising it, because Ray would wrap it."""
    try:
        return work(task)
    except LitebertError as error:
        return error
