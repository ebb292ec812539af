"""The metrics for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from litebert.serve.served import ServedModel

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_COUNTS = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "litebert_requests", "Answers by route and status.", ["route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "litebert_request_seconds", "From request to answer.", ["route"], buckets=_SECONDS, registry=registry
        )
        self._abandoned = Counter(
            "litebert_abandoned", "Requests that nobody waited for any more.", ["model", "reason"], registry=registry
        )
        self._starts = Counter("litebert_model_starts", "Starts of model processes.", ["model"], registry=registry)
        self._batch_requests = Histogram(
            "litebert_batch_requests", "Requests computed together.", ["model"], buckets=_COUNTS, registry=registry
        )
        self._batch_seconds = Histogram(
            "litebert_batch_seconds", "Time of one batch.", ["model"], buckets=_SECONDS, registry=registry
        )
        self._tokens = Counter("litebert_tokens", "Estimated tokens computed.", ["model"], registry=registry)
        self._ready = Gauge("litebert_ready", "1 when the model answers.", ["model"], registry=registry)
        self._waiting = Gauge("litebert_queue_requests", "Requests that wait.", ["model"], registry=registry)

    def follow(self, model: ServedModel) -> None:
        """Report a model's state whenever metrics are read."""
        self._ready.labels(model.name).set_function(lambda: float(model.is_ready))
        self._waiting.labels(model.name).set_function(lambda: float(len(model.queue)))

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count one answer."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def batch(self, model: str, num_requests: int, num_tokens: int, seconds: float) -> None:
        """Count one batch."""
        self._batch_requests.labels(model).observe(num_requests)
        self._batch_seconds.labels(model).observe(seconds)
        self._tokens.labels(model).inc(num_tokens)

    def abandoned(self, model: str, reason: str) -> None:
        """Count a request whose client left or whose deadline passed."""
        self._abandoned.labels(model, reason).inc()

    def started(self, model: str) -> None:
        """Count a start of a model process."""
        self._starts.labels(model).inc()

    def text(self) -> bytes:
        """Return the metrics in Prometheus's text format."""
        return generate_latest(self._registry)
