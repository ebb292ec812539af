"""Run the parts of a build on a Ray cluster; only this module imports ray."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from litebert.errors import LitebertError, ResourceError, missing_package

Task = TypeVar("Task")
Result = TypeVar("Result")


def run_on_ray(work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
    """Yield the results of all tasks as they finish; join the cluster at RAY_ADDRESS if set.

    Every node needs litebert, and the same paths for inputs, tokenizer and output.

    Raises:
        LitebertError: That of the first task that fails; the others are stopped.
        ResourceError: LB-337, a worker died.
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
                yield _unwrapped(ray.get(reference))
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


def _unwrapped(result: Result | LitebertError) -> Result:
    if isinstance(result, LitebertError):
        raise result
    return result
