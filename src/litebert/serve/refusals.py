"""Errors as HTTP answers: a status and a stable code, but never a part of the input."""

from __future__ import annotations

from litebert.errors import LitebertError
from litebert.files import Json


class HttpError(LitebertError):
    """Refuse a request with a status; `retry_after` is in seconds."""

    def __init__(
        self,
        code: str,
        what: str,
        *,
        status: int,
        received: object = "",
        expected: str,
        next: str,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(code, what, received=received, expected=expected, next=next)
        self.status, self.retry_after = status, retry_after

    @property
    def headers(self) -> dict[str, str]:
        """The headers of this status."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return headers


class ClientLeftError(Exception):
    """The client no longer waits for the answer."""


def body_of(error: LitebertError, *, param: str | None = None) -> Json:
    """Return the JSON body, in the shape that OpenAI's clients read too."""
    return {
        "error": {
            "message": f"{error.what}; expected: {error.expected}; next: {error.next}",
            "type": "litebert_error",
            "param": param,
            "code": error.code,
        }
    }
