"""Requests that wait for a model: a bounded queue, taken in batches of a token budget."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from litebert.files import Json
from litebert.serve.refusals import HttpError


@dataclass(eq=False)
class Job:
    """One request in the queue; its future is done when it is answered, refused or abandoned."""

    verb: str
    body: dict[str, Json]
    tokens: int
    done: asyncio.Future[Json] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


def count_tokens(texts: Iterable[str]) -> int:
    """Estimate tokens without a tokenizer: about four bytes of English each.

    >>> count_tokens(["The cat sat on the mat."])
    7
    """
    return sum(2 + len(text.encode()) // 4 for text in texts)


class JobQueue:
    """Jobs of one model that wait for its process."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._jobs: deque[Job] = deque()
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def tokens(self) -> int:
        """The estimated tokens of the waiting jobs."""
        return sum(job.tokens for job in self._jobs)

    def require_room(self, tokens_per_second: float) -> None:
        """Raise LB-957 if the queue is full, with an estimate of the seconds until it has room."""
        if len(self._jobs) < self.limit:
            return
        seconds = min(30, 1 + int(self.tokens / max(tokens_per_second, 1.0)))
        raise HttpError(
            "LB-957",
            "the queue of this model is full",
            status=429,
            expected=f"fewer than {self.limit} waiting requests",
            next=f"try again in {seconds} s",
            retry_after=seconds,
        )

    def put(self, job: Job) -> None:
        """Append a job."""
        self._jobs.append(job)
        self._arrived.set()

    def remove(self, job: Job) -> None:
        """Remove a job from the queue, unless it is already being computed."""
        if job in self._jobs:
            self._jobs.remove(job)

    async def take(self, budget: int) -> list[Job]:
        """Wait for jobs; return the oldest and as many of the next ones as fit the token budget."""
        while not self._jobs:
            self._arrived.clear()
            await self._arrived.wait()
        taken = [self._jobs.popleft()]
        left = budget - taken[0].tokens
        while self._jobs and self._jobs[0].tokens <= left:
            taken.append(self._jobs.popleft())
            left -= taken[-1].tokens
        return taken
