"""One served model: requests wait in a bounded queue, and one thread computes them as
ragged batches.

PyTorch releases the interpreter lock while it computes, so the event loop can answer
/live and refuse requests then.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from starlette.requests import ClientDisconnect

from litebert.errors import DamagedError, LitebertError
from litebert.hub import hash_model
from litebert.inference.model import Model
from litebert.inference.verb import Row
from litebert.nn import depth_plan
from litebert.plugins import VERBS
from litebert.serve import Options
from litebert.serve.guard import MAX_SCORED_TOKENS, HttpError, Metrics

log = logging.getLogger("litebert.serve")

# the connection is watched only after this long; most answers are ready by then
UNWATCHED_SECONDS = 0.05
_SHORT = "The sun rises in the east."
_LONG = "In the evening it sets in the west. " * 8


@dataclass(eq=False)
class Job:
    """One request: rows for a verb, with options; its future is done when it is
    answered, refused or abandoned.
    """

    verb: str
    rows: Sequence[Row]
    options: Mapping[str, Any]
    tokens: int
    done: asyncio.Future[Any] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self.done.done()


@dataclass(frozen=True)
class Answered:
    """The answers to the rows of a job, and the version of the model that gave them."""

    version: str
    answers: list[Any]


@dataclass(frozen=True)
class Loaded:
    """A model that has passed its self-test, with its description for clients.

    Both are replaced together, so that a batch never has the answers of one model and
    the version of another.
    """

    model: Model
    facts: dict[str, Any]


def count_tokens(texts: Iterable[str]) -> int:
    """Estimate tokens without a tokenizer: one per four bytes, as in English.

    >>> count_tokens(["The cat sat on the mat."])
    7
    """
    return sum(2 + len(text.encode()) // 4 for text in texts)


class ServedModel:
    """A model with its queue and its thread; requests of one verb share a batch (one of
    two verbs was no faster).
    """

    def __init__(
        self, name: str, path: str | None, options: Options, metrics: Metrics
    ) -> None:
        self.name = name
        self._path = path
        self._options = options
        self._metrics = metrics
        self._loaded: Loaded | None = None
        self._jobs: deque[Job] = deque()
        self._arrived = threading.Condition()
        self._loading = threading.Lock()  # held while files are being loaded
        self._is_stopping = False
        self._tokens_per_second = 1_000.0
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(
            target=self.work, name=f"model {name}", daemon=True
        )
        metrics.ready.labels(name).set_function(lambda: self.is_ready)
        metrics.waiting.labels(name).set_function(lambda: len(self._jobs))

    @property
    def is_ready(self) -> bool:
        return self._loaded is not None

    @property
    def facts(self) -> dict[str, Any]:
        return {} if self._loaded is None else self._loaded.facts

    def count_pieces(self, texts: Sequence[str]) -> int:
        """Count the tokens that the model reads of texts, with [CLS] and [SEP]."""
        assert self._loaded is not None, "texts that it has read are counted"
        model = self._loaded.model
        longest = model.network.config.max_position_embeddings
        num_tokens = 0
        for ids in model.tokenizer.encode_ids(texts):
            num_tokens += min(len(ids) + 2, longest)
        return num_tokens

    async def start(self) -> None:
        """Load the model and start its thread; a later call replaces the model between
        two batches.
        """
        self._loaded = await asyncio.to_thread(self._load)
        self._metrics.loads.labels(self.name).inc()
        if not self._thread.is_alive():
            self._thread.start()

    def _load(self) -> Loaded:
        with self._loading:
            return load(self._path, self._options)

    async def reload(self) -> None:
        try:
            await self.start()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the new files, the old model stays
            log.error(
                "%s: the running model stays; the new one failed to load: %s",
                self.name,
                error,
            )
        else:
            log.info("%s: reloaded, version %s", self.name, self.facts["version"])

    async def stop(self) -> bool:
        """Let the thread finish its batch and end; return whether it ends within a
        second, and nothing is loading.
        """
        with self._arrived:
            self._is_stopping = True
            self._arrived.notify()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, 1)
        return not self._thread.is_alive() and not self._loading.locked()

    async def answer(
        self, job: Job, *, timeout_ms: int, left: Callable[[], Awaitable[None]]
    ) -> Answered:
        """Queue a job and wait for its answer, its deadline, or the client to
        disconnect (`left` returns).
        """
        if not self.is_ready:
            raise _unavailable()
        self._queue(job)
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return await self._wait(job, left)
        except TimeoutError as error:
            self._metrics.abandoned.labels(self.name, "deadline").inc()
            raise HttpError(
                "LB-958",
                f"no answer within the deadline of {timeout_ms} ms",
                status=504,
                next="send less, or allow a longer timeout_ms",
            ) from error
        except asyncio.CancelledError:
            # the server is stopping and cannot wait any longer
            raise _unavailable() from None
        finally:
            job.done.cancel()
            with self._arrived:
                if job in self._jobs:
                    self._jobs.remove(job)

    def _queue(self, job: Job) -> None:
        with self._arrived:
            refusal = self.overload()
            if refusal is not None:
                raise refusal
            self._jobs.append(job)
            self._arrived.notify()

    async def _wait(self, job: Job, left: Callable[[], Awaitable[None]]) -> Answered:
        """Wait for the answer to a job, or for the client to disconnect."""
        # most answers arrive before it is worth watching the connection
        await asyncio.wait([job.done], timeout=UNWATCHED_SECONDS)
        if not job.done.done():
            watching = asyncio.ensure_future(left())
            try:
                await asyncio.wait(
                    [job.done, watching], return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                watching.cancel()
        if not job.done.done():
            self._metrics.abandoned.labels(self.name, "client left").inc()
            raise ClientDisconnect
        answered: Answered = job.done.result()
        return answered

    def overload(self) -> HttpError | None:
        """Return the error that refuses any new request if the queue is full."""
        with self._arrived:
            if len(self._jobs) < self._options.queue:
                return None
            waiting = count_all(self._jobs)
        seconds = min(30, 1 + int(waiting / max(self._tokens_per_second, 1.0)))
        return HttpError(
            "LB-957",
            f"{self._options.queue} requests are waiting: the queue is full",
            status=429,
            next=f"try again in {seconds} s",
            retry=seconds,
        )

    def work(self) -> None:
        """Answer jobs in the model's thread until it is stopped."""
        while jobs := self._take():
            present = [job for job in jobs if not job.is_abandoned]
            if present:
                self._answer_all(present)

    def _take(self) -> list[Job]:
        """Wait for jobs; return the oldest, and as many of the next ones as fit the
        budget of tokens. None are left if the model is being stopped.
        """
        with self._arrived:
            self._arrived.wait_for(lambda: self._jobs or self._is_stopping)
            if not self._jobs:
                return []
            taken = [self._jobs.popleft()]
            room = self._options.batch_tokens - taken[0].tokens
            while self._jobs and self._jobs[0].tokens <= room:
                room -= self._jobs[0].tokens
                taken.append(self._jobs.popleft())
            return taken

    def _answer_all(self, jobs: Sequence[Job]) -> None:
        """Compute jobs of one verb with the same options together, others apart."""
        loaded = self._loaded
        assert loaded is not None, "the thread starts when the model is loaded"
        version = loaded.facts["version"]
        started = time.monotonic()
        groups = dict[object, list[Job]]()
        for job in jobs:
            groups.setdefault(_shared(job), []).append(job)
        for group in groups.values():
            answers = answer_together(loaded.model, group)
            self._metrics.tokens.labels(self.name).inc(count_all(group))
            self._loop.call_soon_threadsafe(_settle, group, answers, version)
        seconds = time.monotonic() - started
        self._metrics.batches.labels(self.name).observe(len(jobs))
        self._metrics.batch_seconds.labels(self.name).observe(seconds)
        # a running mean over about the last ten batches
        pace = count_all(jobs) / max(seconds, 1e-6)
        self._tokens_per_second += 0.1 * (pace - self._tokens_per_second)


def _unavailable() -> HttpError:
    return HttpError(
        "LB-959",
        "the model is not available at the moment; see GET /ready",
        status=503,
        next="try again in 2 s",
        retry=2,
    )


def count_all(jobs: Iterable[Job]) -> int:
    """Count the tokens of several jobs."""
    return sum(job.tokens for job in jobs)


def _shared(job: Job) -> object:
    """Return what jobs have in common that are computed together: the verb and its
    options. Views, explanations and streams are computed alone.
    """
    if job.verb not in VERBS or VERBS[job.verb].is_stream:
        return job
    return job.verb, tuple(sorted(job.options.items()))


def _require_short(model: Model, verb: str, rows: Sequence[Row]) -> None:
    """Raise if texts are too long for a verb that takes a pass for each token, or a
    hundred passes.
    """
    if verb != "explain" and not (verb in VERBS and VERBS[verb].is_slow):
        return
    texts = [" ".join(row.values()) for row in rows]
    sizes = [len(ids) for ids in model.tokenizer.encode_ids(texts)]
    num_tokens = sum(sizes) if verb == "explain" else max(sizes)
    if num_tokens > MAX_SCORED_TOKENS:
        raise LitebertError(
            "LB-973",
            f"{num_tokens} tokens are too many for a server to score or explain",
            expected=f"at most {MAX_SCORED_TOKENS} tokens",
            next="send its sentences one by one, or use litebert score and litebert"
            " explain",
        )


def _settle(
    jobs: Sequence[Job], answers: Sequence[list[Any] | HttpError], version: str
) -> None:
    for job, answer in zip(jobs, answers, strict=True):
        if job.is_abandoned:
            continue
        if isinstance(answer, HttpError):
            job.done.set_exception(answer)
        else:
            job.done.set_result(Answered(version, answer))


def answer_together(model: Model, jobs: Sequence[Job]) -> list[list[Any] | HttpError]:
    """Return the answers to the rows of each job, or its error; all jobs are of one
    verb and share batches.
    """
    rows = list[Row]()
    for job in jobs:
        rows += job.rows
    first = jobs[0]
    try:
        answers = iter(_answers(model, first.verb, rows, dict(first.options)))
        return [list(islice(answers, len(job.rows))) for job in jobs]
    except LitebertError as error:
        if len(jobs) == 1:
            return [_as_refusal(error)]
    except Exception:
        if len(jobs) == 1:
            log.exception("%s failed", first.verb)
            return [_failure()]
    # One request is faulty: computed alone, only that one gets an error.
    results = list[list[Any] | HttpError]()
    for job in jobs:
        results += answer_together(model, [job])
    return results


def _answers(
    model: Model, verb: str, rows: Sequence[Row], options: dict[str, Any]
) -> Iterable[Any]:
    """Return the answers to rows; an explanation reads a single request and has a
    single answer.
    """
    _require_short(model, verb, rows)
    if verb == "explain":
        texts = [row["text"] for row in rows]
        return [model.explain(options["verb"], *texts, answer=options["answer"])]
    # a verb of a plug-in may yield its answers, and fail at any of them
    answers = list(VERBS[verb].answer(model, rows, **options))
    if len(answers) != len(rows):
        raise ValueError(f"{verb} gave {len(answers)} answers to {len(rows)} rows")
    return answers


def _failure() -> HttpError:
    return HttpError(
        "LB-965",
        "the model failed on this request",
        status=500,
        next="report it with the lines of the server's log",
    )


def _as_refusal(error: LitebertError) -> HttpError:
    """Turn a mistake in a request into an answer; advice for a shell or for Python
    helps nobody here.
    """
    advice = error.next
    if advice.startswith(("litebert ", "model.")):
        advice = "/docs shows an example of each request"
    return HttpError(
        error.code,
        error.what,
        status=422,
        expected=error.expected or "",
        next=advice,
    )


# ---- loading -------------------------------------------------------------------------


def load(path: str | None, options: Options) -> Loaded:
    """Load and test a model; return it with its description."""
    model = Model.load(
        path,
        device=options.device,
        precision=options.precision,
        backend=options.backend,
    )
    model.remark = None  # clients do not see the server's log
    self_test(model)
    notes = [*model.notes]
    if model.precision != "fp32":
        notes.append(_note_of_precision(model, path))
    config = model.network.config
    head = getattr(model.network, "head_config", None)
    compares_texts = None if head is None else head.compares_texts
    facts = {
        "verbs": [*model.verbs],
        "version": hash_model(Path(model.source)),
        "hidden_size": config.hidden_size,
        "vector_size": model.num_dimensions,
        "num_steps": config.num_steps,
        "num_blocks": len(set(depth_plan(config))),
        "max_tokens": config.max_position_embeddings,
        "compares_texts": compares_texts,
        "notes": notes,
    }
    return Loaded(model, facts)


def _note_of_precision(model: Model, path: str | None) -> str:
    """Say how far the vectors of a model are from those in fp32."""
    on_cpu = Model.load(path, device="cpu", precision="fp32")
    exact = on_cpu.embed([_SHORT, _LONG])  # (2, hidden)
    rounded = model.embed([_SHORT, _LONG])
    difference = float(np.linalg.norm(rounded - exact) / np.linalg.norm(exact))
    return (
        f"computed in {model.precision}; vectors differ from those in fp32 by"
        f" {difference:.2%}"
    )


def self_test(model: Model) -> None:
    """Check that vectors are finite, differ between texts, and do not depend on the
    batch.
    """
    together = model.embed([_SHORT, _LONG, _SHORT])  # (3, hidden)
    alone = model.embed(_SHORT)  # (hidden,)
    scale = float(np.abs(alone).max())
    is_finite = bool(np.isfinite(together).all())
    is_alike = bool(np.allclose(together[0], together[1], atol=1e-6 * scale))
    is_stable = bool(np.allclose(together[::2], alone, rtol=0, atol=0.05 * scale))
    if is_finite and is_stable and not is_alike:
        return
    raise DamagedError(
        "LB-967",
        "the model failed its self-test",
        received=f"finite: {is_finite}, texts differ: {not is_alike}, batch equals"
        f" alone: {is_stable}",
        next="fetch or export the model again",
    )
