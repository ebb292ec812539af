"""The application: its routes in order, and how each error is answered."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from litebert.config.allowed import wanted
from litebert.serve import embeddings, health, pages, verbs
from litebert.serve.bodies import Bodies
from litebert.serve.gate import Gate
from litebert.serve.limits import MAX_BODY_BYTES, MAX_CHARACTERS, MAX_TEXTS, ServerSettings
from litebert.serve.metrics import Metrics
from litebert.serve.models import Models
from litebert.serve.refusals import ClientLeftError, HttpError, body_of
from litebert.serve.strict_json import encode

_DESCRIPTION = f"""Answers of ALBERT models: the verbs of `litebert`, in the same words.

Limits: bodies of {MAX_BODY_BYTES:,} bytes, {MAX_TEXTS} texts per request, {MAX_CHARACTERS:,}
characters per text. Every error has a stable code, listed in docs/errors.md."""


def create_app(models: Models, settings: ServerSettings, metrics: Metrics) -> FastAPI:
    """Return the application; its runner starts and stops the models."""
    app = FastAPI(
        title="litebert",
        version="1",
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    app.state.models, app.state.settings, app.state.metrics = models, settings, metrics
    app.state.bodies = Bodies(settings.client_seconds)
    for part in (verbs, embeddings, health, pages):
        app.include_router(part.router)
    app.add_exception_handler(HttpError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _not_routed)
    app.add_exception_handler(ClientLeftError, _client_left)
    app.add_exception_handler(Exception, _failed)
    app.add_middleware(Gate, metrics=metrics, api_keys=settings.api_keys)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


def problem(error: HttpError, *, param: str | None = None) -> Response:
    """Return an error as a response."""
    return Response(
        encode(body_of(error, param=param)), error.status, headers=error.headers, media_type="application/json"
    )


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HttpError)
    return problem(error)


def _client_left(_: Request, __: Exception) -> Response:
    return Response(status_code=499)  # for the metrics; no client receives it


def _invalid(_: Request, error: Exception) -> Response:
    """Name the field and what it should be, but never its value or an unknown key."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    is_unknown = first["type"] == "extra_forbidden"
    path = [str(part) for part in first["loc"][1:]]
    field = ".".join(path[:-1] if is_unknown else path) or None
    refusal = HttpError(
        "LB-954",
        f"{field or 'the body'} is not valid",
        status=422,
        expected="only the fields that /docs lists" if is_unknown else wanted(first),
        next="/docs shows every field and an example",
    )
    return problem(refusal, param=field)


def _not_routed(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    refusal = HttpError(
        "LB-961",
        "no route has this address and method",
        status=error.status_code,
        expected="a route and method that /docs lists",
        next="GET /docs",
    )
    response = problem(refusal)
    response.headers.update(error.headers or {})
    return response


def _failed(_: Request, __: Exception) -> Response:
    """Answer with status 500; the server writes the traceback to its log."""
    return problem(
        HttpError(
            "LB-968",
            "the server failed on this request",
            status=500,
            expected="an answer; the server's log has the reason",
            next="report it with the log's lines",
        )
    )
