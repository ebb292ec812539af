"""Objects in storage such as S3, which is reached through obstore."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from litebert.errors import RequestError, ResourceError, missing_package

ATTEMPTS = 6
# the pause before the second attempt at a request; each later one is twice as long
PAUSE = timedelta(seconds=0.5)
_OBJECT_BYTES = 16 << 20
_TIMEOUT = "30s"


def is_url(name: str) -> bool:
    """Return whether the name of an input is a URL, not a path."""
    return "://" in name


def object_size(url: str) -> int:
    """Return the bytes of an object; a missing one raises FileNotFoundError."""
    with _storage(url) as (store, path):
        return int(store.head(path)["size"])


def read_object(url: str) -> Iterator[bytes]:
    """Yield an object in pieces; a missing one raises FileNotFoundError."""
    with _storage(url) as (store, path):
        for piece in store.get(path).stream(min_chunk_size=_OBJECT_BYTES):
            yield bytes(piece)


def write_object(url: str, content: bytes | Path) -> None:
    """Upload bytes or a file as an object."""
    with _storage(url) as (store, path):
        store.put(path, content)


@contextmanager
def _storage(url: str) -> Iterator[tuple[Any, str]]:
    """Yield the store of a URL and the path in it, for a block of requests."""
    try:
        from obstore.exceptions import BaseError
    except ImportError as error:
        raise missing_package("obstore", extra="cluster", needed_for="a URL") from error
    scheme, _, place = url.partition("://")
    host, _, path = place.partition("/")
    try:
        store = _store(f"{scheme}://{host}")
    except (BaseError, ValueError) as error:
        raise unreadable_url(url, error) from error
    try:
        yield store, path
    except BaseError as error:
        raise ResourceError(
            "LB-270",
            f"object storage failed: {url}",
            received=message_of(error),
            expected=f"a response within {ATTEMPTS} attempts",
            next="check the endpoint and the network; rerun the command to resume",
        ) from error


@lru_cache(maxsize=16)
def _store(root: str) -> Any:
    """Return the store at a root such as s3://bucket; credentials and endpoint come
    from the usual variables.
    """
    from obstore.store import from_url

    backoff = {"init_backoff": PAUSE, "base": 2, "max_backoff": PAUSE * 2**ATTEMPTS}
    options: Any = {
        "client_options": {"timeout": _TIMEOUT, "allow_http": True},
        "retry_config": {"max_retries": ATTEMPTS - 1, "backoff": backoff},
    }
    return from_url(root, **options)


# ---- errors --------------------------------------------------------------------------


def unreadable_url(url: str, error: Exception) -> RequestError:
    """Return the error for a URL that cannot be read."""
    return RequestError(
        "LB-303",
        f"{url} cannot be read",
        received=message_of(error),
        next="check the URL and your credentials",
    )


def message_of(error: Exception) -> str:
    """Return what the system says, or else the first line of an error."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
