"""Run the parts of a build in processes of this machine, or as tasks of a Ray
cluster.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from litebert.errors import ResourceError, missing_package


def run_local(jobs: Sequence[Callable[[], object]], *, workers: int) -> None:
    """Run all jobs in spawned processes, or in this one if one is enough.

    The error of the first job that fails is raised, and the others are stopped at once,
    as when this process dies.
    """
    num_workers = min(workers, len(jobs))
    if num_workers <= 1:
        for job in jobs:
            job()
        return
    # Spawned: a fork would copy locks that other threads hold, such as a tokenizer's.
    context = get_context("spawn")
    # Only this process has the writing end. If it is killed, the pipe closes, and the
    # workers end with it.
    lifeline, held_here = context.Pipe(duplex=False)
    executor = ProcessPoolExecutor(
        num_workers, mp_context=context, initializer=_end_with, initargs=(lifeline,)
    )
    with lifeline, held_here, executor:
        try:
            for future in as_completed([executor.submit(job) for job in jobs]):
                future.result()
        except BaseException as error:
            # Ends the workers at once, in the middle of a job: a build is resumed from
            # its files, however it was stopped.
            held_here.close()
            executor.shutdown(cancel_futures=True)
            if isinstance(error, BrokenProcessPool):
                raise _died(
                    "rerun the command with fewer --workers to resume"
                ) from error
            raise


def _end_with(lifeline: Connection) -> None:
    """End this process when the other end of a pipe closes, for instance because its
    owner was killed.
    """

    def wait_and_exit() -> None:
        lifeline.poll(None)  # nothing is ever sent
        os._exit(1)  # from any thread, and without waiting for the others

    threading.Thread(target=wait_and_exit, daemon=True).start()


def run_on_ray(jobs: Sequence[Callable[[], object]]) -> None:
    """Run all jobs on the cluster at RAY_ADDRESS, or on one that is started here.

    Every node needs litebert and the same paths. Ray retries tasks whose worker died;
    `ray.util.multiprocessing` does not.
    """
    try:
        import ray
    except ImportError as error:
        raise missing_package("ray", extra="cluster", needed_for="--cluster") from error
    ray.init(log_to_driver=False, ignore_reinit_error=True)
    # Ray takes functions; a job is a `partial`.
    remote: Any = ray.remote(_run)
    pending = [remote.remote(job) for job in jobs]
    try:
        while pending:
            done, pending = ray.wait(pending)
            ray.get(done)  # raises the error of a job as soon as it has failed
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error  # the error of the job itself, for people
    except (
        ray.exceptions.WorkerCrashedError,
        ray.exceptions.OutOfMemoryError,
    ) as error:
        raise _died("ray status; then rerun the command to resume") from error
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)


def _run(job: Callable[[], object]) -> None:
    job()


def _died(advice: str) -> ResourceError:
    return ResourceError(
        "LB-320",
        "a worker process died",
        received="the system may have run out of memory",
        next=advice,
    )
