"""One served model: its queue, its process, and the supervision that starts it again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import cast

from litebert.errors import LitebertError
from litebert.files import Json
from litebert.serve.entry import ModelSource
from litebert.serve.limits import ServerSettings
from litebert.serve.link import Link, ProcessDiedError
from litebert.serve.metrics import Metrics
from litebert.serve.queueing import Job, JobQueue
from litebert.serve.refusals import ClientLeftError, HttpError

log = logging.getLogger("litebert.serve")

UNWATCHED_SECONDS = 0.05
"""The connection is monitored only after this long; most answers are ready by then."""
HEALTHY_SECONDS = 30
"""After a process that ran this long, the next one starts at once."""


class ServedModel:
    """A model by its name; at most one of its batches is computed at a time."""

    def __init__(self, name: str, source: ModelSource, settings: ServerSettings, metrics: Metrics) -> None:
        self.name, self.source = name, source
        self.queue = JobQueue(settings.queue)
        self.facts: dict[str, Json] = {}
        self._settings, self._metrics = settings, metrics
        self._link: Link | None = None
        self._up = asyncio.Event()
        self._computing = asyncio.Lock()
        self._tokens_per_second = 1_000.0
        self._tasks: list[asyncio.Task[None]] = []
        metrics.follow(self)

    @property
    def is_ready(self) -> bool:
        """Whether a tested model process is running."""
        return self._link is not None

    async def start(self) -> None:
        """Load the model for the first time; from then on, keep it loaded.

        Raises:
            LitebertError: The model cannot be used.
        """
        await self._bring_up()
        self._tasks = [asyncio.create_task(self._supervise()), asyncio.create_task(self._compute())]

    async def stop(self) -> None:
        """End the process and what supervises it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._link is not None:
            await self._link.stop()

    async def reload(self) -> None:
        """Load the model's files in a second process, then switch to it."""
        try:
            link = await self._started()
        except (LitebertError, ProcessDiedError) as error:
            log.error("%s: the running model stays, the new one failed: %s", self.name, error)
            return
        async with self._computing:
            previous = self._link
            self._adopt(link)
        if previous is not None:
            await previous.stop()
        log.info("%s: reloaded, version %s", self.name, self.facts["version"])

    async def answer(self, job: Job, *, timeout_ms: int, left: Callable[[], Coroutine[None, None, None]]) -> Json:
        """Queue a job and wait for its answer, its deadline or its client's departure.

        Raises:
            HttpError: LB-957, the queue is full; LB-958, the deadline passed; LB-959, the model is
                not available; or the error of the verb.
            ClientLeftError: `left` ended first.
        """
        if not self.is_ready:
            raise _unavailable()
        self.queue.require_room(self._tokens_per_second)
        self.queue.put(job)
        leaving: asyncio.Task[None] | None = None
        try:
            # Most answers arrive before monitoring the connection would be worth its cost.
            await asyncio.wait({job.done}, timeout=min(timeout_ms / 1_000, UNWATCHED_SECONDS))
            if not job.done.done():
                leaving = asyncio.create_task(left())
                first: set[asyncio.Future[None] | asyncio.Future[Json]] = {job.done, leaving}
                await asyncio.wait(
                    first, timeout=max(0.0, timeout_ms / 1_000 - UNWATCHED_SECONDS), return_when=asyncio.FIRST_COMPLETED
                )
            if job.done.done():
                return job.done.result()
            has_left = leaving is not None and leaving.done()
            self._metrics.abandoned(self.name, "client left" if has_left else "deadline")
            if has_left:
                raise ClientLeftError
            raise HttpError(
                "LB-958",
                "the deadline passed before the answer was ready",
                status=504,
                expected=f"an answer within {timeout_ms} ms",
                next="send less at once, allow a longer timeout_ms, or try again later",
            )
        finally:
            self.queue.remove(job)
            job.done.cancel()
            if leaving is not None:
                leaving.cancel()

    async def _compute(self) -> None:
        while True:
            await self._up.wait()
            taken = await self.queue.take(self._settings.batch_tokens)
            await self._up.wait()
            async with self._computing:
                jobs = [job for job in taken if not job.done.done()]
                if jobs and self._link is not None:
                    await self._answer_batch(self._link, jobs)

    async def _answer_batch(self, link: Link, jobs: list[Job]) -> None:
        started, tokens = time.monotonic(), sum(job.tokens for job in jobs)
        try:
            answers = await link.ask([{"verb": job.verb, "body": job.body} for job in jobs])
        except ProcessDiedError:
            answers = [None] * len(jobs)
        seconds = time.monotonic() - started
        self._metrics.batch(self.name, len(jobs), tokens, seconds)
        # The mean of about the last ten batches.
        self._tokens_per_second += 0.1 * (tokens / seconds - self._tokens_per_second)
        for job, found in zip(jobs, answers, strict=True):
            if not job.done.done():
                _settle(job, cast(dict[str, Json] | None, found), version=self.facts["version"])

    async def _supervise(self) -> None:
        failures = 0
        while True:
            link = self._link
            assert link is not None
            started = time.monotonic()
            await link.closed.wait()
            if link is not self._link:
                continue  # a reload replaced it
            self._link = None
            self._up.clear()
            failures = 0 if time.monotonic() - started > HEALTHY_SECONDS else failures
            while not self.is_ready:
                seconds = backoff_seconds(failures)
                log.error("%s: the model process ended; next start in %g s", self.name, seconds)
                await asyncio.sleep(seconds)
                failures += 1
                try:
                    await self._bring_up()
                except (LitebertError, ProcessDiedError) as error:
                    log.error("%s: %s", self.name, error)
            await link.stop()

    async def _bring_up(self) -> None:
        self._adopt(await self._started())

    async def _started(self) -> Link:
        self._metrics.started(self.name)
        return await Link.start(self.source)

    def _adopt(self, link: Link) -> None:
        self._link, self.facts = link, link.facts
        self._up.set()


def backoff_seconds(failures: int) -> float:
    """Return the seconds before the next start: 0 at first, then doubling, at most 30.

    >>> [backoff_seconds(failures) for failures in (0, 1, 2, 9)]
    [0.0, 0.5, 1.0, 30.0]
    """
    return 0.0 if failures == 0 else min(30.0, 0.25 * 2.0**failures)


def _settle(job: Job, found: dict[str, Json] | None, *, version: Json) -> None:
    """Set a job's answer or its error."""
    if found is None:
        job.done.set_exception(
            HttpError(
                "LB-964",
                "the model process ended while it computed this answer",
                status=503,
                expected="a running model; it is started again at once",
                next="try again in 2 s",
                retry_after=2,
            )
        )
    elif "result" in found:
        job.done.set_result({"version": version, "result": found["result"]})
    elif (failure := cast(dict[str, str] | None, found["error"])) is None:
        job.done.set_exception(
            HttpError(
                "LB-965",
                "the model failed on this request",
                status=500,
                expected="an answer; the server's log has the reason",
                next="report it with the log's lines",
            )
        )
    else:
        error = HttpError(
            failure["code"], failure["what"], status=422, expected=failure["expected"], next=failure["next"]
        )
        job.done.set_exception(error)


def _unavailable() -> HttpError:
    return HttpError(
        "LB-959",
        "the model is not available at the moment",
        status=503,
        expected="a loaded and tested model; see GET /ready",
        next="try again in 2 s",
        retry_after=2,
    )
