"""The queue: bounded, in order, in batches of a token budget."""

import asyncio

import pytest

from litebert.serve.queueing import Job, JobQueue
from litebert.serve.refusals import HttpError
from litebert.serve.served import backoff_seconds


def test_a_batch_has_the_oldest_jobs_that_fit_the_budget() -> None:
    async def run() -> list[list[int]]:
        queue = JobQueue(10)
        for tokens in (300, 100, 200, 50, 900):
            queue.put(Job("embed", {}, tokens))
        return [[job.tokens for job in await queue.take(500)] for _ in range(3)]

    assert asyncio.run(run()) == [[300, 100], [200, 50], [900]]


def test_a_full_queue_refuses_and_says_when_it_has_room() -> None:
    async def run() -> None:
        queue = JobQueue(2)
        for _ in range(2):
            queue.require_room(100.0)
            queue.put(Job("embed", {}, 500))
        queue.require_room(100.0)

    with pytest.raises(HttpError, match="LB-957") as caught:
        asyncio.run(run())
    assert (caught.value.status, caught.value.retry_after) == (429, 11)


def test_a_job_that_was_given_up_leaves_its_place() -> None:
    async def run() -> int:
        queue = JobQueue(2)
        jobs = [Job("embed", {}, 1) for _ in range(2)]
        for job in jobs:
            queue.put(job)
        queue.remove(jobs[0])
        queue.require_room(1.0)
        return len(queue)

    assert asyncio.run(run()) == 1


def test_take_waits_for_the_first_job() -> None:
    async def run() -> bool:
        queue = JobQueue(2)
        taking = asyncio.create_task(queue.take(10))
        await asyncio.sleep(0)
        is_waiting = not taking.done()
        queue.put(Job("embed", {}, 1))
        await taking
        return is_waiting

    assert asyncio.run(run())


def test_a_model_that_keeps_dying_is_started_less_and_less_often() -> None:
    waits = [backoff_seconds(failures) for failures in range(12)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.0, 30.0)
