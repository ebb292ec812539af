"""The limits on a request, a client and a server; docs/serving.md lists them."""

from __future__ import annotations

from dataclasses import dataclass

MAX_BODY_BYTES = 2_000_000
MAX_BODY_DEPTH = 16
MAX_HEADER_BYTES = 16_384
MAX_TEXTS = 32
MAX_CHARACTERS = 10_000
MAX_INPUTS = 2_048
"""Texts of one request for OpenAI's embeddings, together no more characters than ours may have."""
MAX_TOP = 50
MAX_TIMEOUT_MS = 120_000
MAX_SCORED_CHARACTERS = 1_000
MAX_SCORED_TOKENS = 128
"""The longest text to score, with one pass per token, or to explain, with a hundred passes."""
MAX_ATTENTION_TOKENS = 64
"""The longest text whose attention is shown; the rest is cut off."""
MAX_CONNECTIONS = 1_024
MAX_HELD_BYTES = 64 << 20
"""The most bytes of unfinished request bodies that the server holds."""
IDLE_SECONDS = 30
"""A connection without a request is closed after this long."""
STOP_SECONDS = 8
"""Accepted requests have this long to finish after SIGTERM."""
BATCH_SECONDS = 60
"""A model process that computes longer than this on one batch is killed and started again."""


@dataclass(frozen=True)
class ServerSettings:
    """What the operator chooses; the defaults are those of `litebert serve`.

    `client_seconds` is how long a client may take for its headers, and again for its body.
    """

    queue: int = 64
    batch_tokens: int = 1_024
    timeout_ms: int = 30_000
    client_seconds: float = 10.0
    api_keys: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
