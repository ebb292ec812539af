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
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from starlette.requests import ClientDisconnect

from litebert.errors import DamagedError, LitebertError
from litebert.hub import hash_model
from litebert.inference.inside import INSIDE
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
        # One reference, so that a batch never has the answers of one model and the
        # version of another.
        self._loaded: tuple[Model | None, dict[str, Any]] = (None, {})
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
        return self._loaded[0] is not None

    @property
    def facts(self) -> dict[str, Any]:
        return self._loaded[1]

    def count_pieces(self, texts: Sequence[str]) -> int:
        model = self._loaded[0]
        assert model is not None
        longest = model.network.config.max_position_embeddings
        return sum(
            min(len(ids) + 2, longest) for ids in model.tokenizer.encode_ids(texts)
        )

    async def start(self) -> None:
        """Load the model and start its thread; a later call replaces the model between
        two batches.
        """
        self._loaded = await asyncio.to_thread(self._load)
        self._metrics.loads.labels(self.name).inc()
        if not self._thread.is_alive():
            self._thread.start()

    def _load(self) -> tuple[Model, dict[str, Any]]:
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
    ) -> tuple[str, list[Any]]:
        """Queue a job and wait for its answer, its deadline, or the client to
        disconnect (`left` returns).
        """
        what = "the model is not available at the moment; see GET /ready"
        advice = "try again in 2 s"
        unavailable = partial(
            HttpError, "LB-959", what, status=503, next=advice, retry=2
        )
        if not self.is_ready:
            raise unavailable()
        with self._arrived:
            if refusal := self.overload():
                raise refusal
            self._jobs.append(job)
            self._arrived.notify()
        watching: asyncio.Future[None] | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                # Most answers arrive before it is worth watching the connection.
                await asyncio.wait([job.done], timeout=UNWATCHED_SECONDS)
                if not job.done.done():
                    watching = asyncio.ensure_future(left())
                    await asyncio.wait(
                        [job.done, watching], return_when=asyncio.FIRST_COMPLETED
                    )
                if not job.done.done():
                    self._metrics.abandoned.labels(self.name, "client left").inc()
                    raise ClientDisconnect
                version, found = job.done.result()
                return version, found
        except TimeoutError as error:
            self._metrics.abandoned.labels(self.name, "deadline").inc()
            what = f"no answer within the deadline of {timeout_ms} ms"
            raise HttpError(
                "LB-958",
                what,
                status=504,
                next="send less, or allow a longer timeout_ms",
            ) from error
        except asyncio.CancelledError:
            # the server is stopping and cannot wait any longer
            raise unavailable() from None
        finally:
            job.done.cancel()
            if watching:
                watching.cancel()
            with self._arrived:
                if job in self._jobs:
                    self._jobs.remove(job)

    def overload(self) -> HttpError | None:
        """Return the error that refuses any new request if the queue is full."""
        with self._arrived:
            if len(self._jobs) < self._options.queue:
                return None
            waiting = sum(each.tokens for each in self._jobs)
        seconds = min(30, 1 + int(waiting / max(self._tokens_per_second, 1.0)))
        what = f"{self._options.queue} requests are waiting: the queue is full"
        advice = f"try again in {seconds} s"
        return HttpError("LB-957", what, status=429, next=advice, retry=seconds)

    def work(self) -> None:
        """Answer jobs in the model's thread until it is stopped."""
        while True:
            with self._arrived:
                self._arrived.wait_for(lambda: self._jobs or self._is_stopping)
                if not self._jobs:
                    return
                # The oldest job, and as many of the next ones as fit the budget.
                taken = [self._jobs.popleft()]
                tokens = taken[0].tokens
                while (
                    self._jobs
                    and tokens + self._jobs[0].tokens <= self._options.batch_tokens
                ):
                    taken.append(self._jobs.popleft())
                    tokens += taken[-1].tokens
            # the others have been abandoned
            jobs = [job for job in taken if not job.done.done()]
            if not jobs:
                continue
            model, facts = self._loaded
            assert model is not None
            started = time.monotonic()
            tokens = sum(job.tokens for job in jobs)
            groups: dict[object, list[Job]] = {}
            # jobs of one verb with the same options are computed together, others
            # separately
            for job in jobs:
                groups.setdefault(_shared(job), []).append(job)
            for group in groups.values():
                answers = answer_together(model, group)
                self._metrics.tokens.labels(self.name).inc(
                    sum(job.tokens for job in group)
                )
                self._loop.call_soon_threadsafe(
                    _settle, group, answers, facts["version"]
                )
            seconds = time.monotonic() - started
            self._metrics.batches.labels(self.name).observe(len(jobs))
            self._metrics.batch_seconds.labels(self.name).observe(seconds)
            # A running mean over about the last ten batches.
            self._tokens_per_second += 0.1 * (
                tokens / max(seconds, 1e-6) - self._tokens_per_second
            )


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
    for job, found in zip(jobs, answers, strict=True):
        if job.done.done():
            continue
        if isinstance(found, HttpError):
            job.done.set_exception(found)
        else:
            job.done.set_result((version, found))


def answer_together(model: Model, jobs: Sequence[Job]) -> list[list[Any] | HttpError]:
    """Return the answers to the rows of each job, or its error; all jobs are of one
    verb and share batches.
    """
    verb = jobs[0].verb
    options = dict(jobs[0].options)
    rows = [row for job in jobs for row in job.rows]
    try:
        _require_short(model, verb, rows)
        if verb == "explain":
            texts = [row["text"] for row in rows]
            return [[model.explain(options["verb"], *texts, answer=options["answer"])]]
        if verb in INSIDE:
            return [[INSIDE[verb](model, rows[0]["text"], **options)]]
        found = iter(VERBS[verb].answer(model, rows, **options))
    except Exception as error:
        if len(jobs) > 1:  # only the faulty request gets the error
            return [answer for job in jobs for answer in answer_together(model, [job])]
        if isinstance(error, LitebertError):
            is_local = error.next.startswith(("litebert ", "model."))
            advice = (
                "/docs shows an example of each request" if is_local else error.next
            )
            return [
                HttpError(
                    error.code,
                    error.what,
                    status=422,
                    expected=error.expected or "",
                    next=advice,
                )
            ]
        log.exception("%s failed", verb)
        advice = "report it with the lines of the server's log"
        return [
            HttpError(
                "LB-965", "the model failed on this request", status=500, next=advice
            )
        ]
    return [list(islice(found, len(job.rows))) for job in jobs]


# Loading


def load(path: str | None, options: Options) -> tuple[Model, dict[str, Any]]:
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
        on_cpu = Model.load(path, device="cpu", precision="fp32")
        exact = on_cpu.embed([_SHORT, _LONG])  # (2, hidden)
        rounded = model.embed([_SHORT, _LONG])
        difference = float(np.linalg.norm(rounded - exact) / np.linalg.norm(exact))
        notes.append(
            f"computed in {model.precision}; vectors differ from those in fp32 by"
            f" {difference:.2%}"
        )
    config = model.network.config
    head = getattr(model.network, "head_config", None)
    facts = {
        "verbs": [*model.verbs],
        "version": hash_model(Path(model.source)),
        "hidden_size": config.hidden_size,
        "vector_size": model.num_dimensions,
        "num_steps": config.num_steps,
        "num_blocks": len(set(depth_plan(config))),
        "max_tokens": config.max_position_embeddings,
        "compares_texts": None if head is None else head.compares_texts,
        "notes": notes,
    }
    return model, facts


def self_test(model: Model) -> None:
    """Check that vectors are finite, differ between texts, and do not depend on the
    batch.
    """
    (one, other, again), alone = (
        model.embed([_SHORT, _LONG, _SHORT]),
        model.embed(_SHORT),
    )
    scale = float(np.abs(alone).max())
    is_finite = bool(np.isfinite([one, other, again]).all())
    is_alike = bool(np.allclose(one, other, atol=1e-6 * scale))
    is_stable = bool(np.allclose([one, again], alone, rtol=0, atol=0.05 * scale))
    if not is_finite or not is_stable or is_alike:
        found = (
            f"finite: {is_finite}, texts differ: {not is_alike}, batch equals alone:"
            f" {is_stable}"
        )
        advice = "fetch or export the model again"
        raise DamagedError(
            "LB-967", "the model failed its self-test", received=found, next=advice
        )
