"""The application: the routes of the verbs, OpenAI's embeddings, health checks, the
pages.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from prometheus_client import generate_latest
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from litebert.plugins import VERBS
from litebert.serve import Options
from litebert.serve import guard as limits
from litebert.serve.batching import Answered, Job, ServedModel, count_tokens
from litebert.serve.guard import (
    Bodies,
    Gate,
    HttpError,
    Metrics,
    digest,
    is_loopback,
    problem,
    reply,
)
from litebert.serve.routes import (
    Embedding,
    Embeddings,
    EmbeddingsBody,
    RequestBody,
    Route,
    Usage,
    forms,
    invalid,
    job_of,
    verb_routes,
)
from litebert.serve.schema import openapi
from litebert.settings import expected_value

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
Handler: TypeAlias = Callable[[Request, Any], Awaitable[Response]]
# more fields than any route has
MAX_FIELDS = 64
SCRIPTS = (
    "look.css",
    "api.js",
    "charts.js",
    "docs.js",
    "page.js",
    "views.js",
)
PAGES = {
    "/": "index.html",
    "/docs": "docs.html",
    "/favicon.ico": "icon.svg",
    **{f"/page/{name}": name for name in SCRIPTS},
}
_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}


# ---- answers -------------------------------------------------------------------------


@dataclass(frozen=True)
class Service:
    """The served models and what they share; the first one answers requests that do not
    name a model.
    """

    models: Sequence[ServedModel]
    metrics: Metrics
    options: Options
    routes: Mapping[str, Route] = field(default_factory=verb_routes)

    def find_model(self, name: str | None) -> ServedModel:
        for model in self.models:
            if name is None or model.name == name:
                return model
        raise HttpError(
            "LB-955",
            "no model here has this name",
            status=404,
            next="GET /v1/models lists them; omit model for the first one",
        )

    def overload(self, path: str) -> HttpError | None:
        """Return the error that refuses a request to this path if no model has room;
        the body is not known yet.
        """
        if path.removeprefix("/v1/") not in (*self.routes, "embeddings"):
            return None
        refusals = [model.overload() for model in self.models]
        return refusals[0] if all(refusals) else None

    async def ask(
        self, request: Request, model: ServedModel, body: RequestBody, job: Job
    ) -> Answered:
        """Return the answers of a model, unless the client disconnects first."""
        if model.is_ready:
            self._require_able(model, job)

        async def left() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        timeout_ms = body.timeout_ms or self.options.timeout_ms
        return await model.answer(job, timeout_ms=timeout_ms, left=left)

    def _require_able(self, model: ServedModel, job: Job) -> None:
        """Raise if a model lacks the head for a job."""
        able = [*model.facts.get("verbs", ()), "explain"]
        needed = job.verb
        if job.verb == "explain":
            needed = job.options["verb"]
            needed = VERBS[needed].use_of or needed
        if needed not in able:
            raise HttpError(
                "LB-956",
                f"this model cannot {needed}: it has no head for it",
                status=422,
                expected=f"one of {', '.join(able)}",
                next="GET /v1/models lists the others",
            )

    async def verb(self, name: str, request: Request, body: RequestBody) -> Response:
        """Answer POST /v1/VERB, with a list if it was given a list of texts."""
        model = self.find_model(body.model)
        answered = await self.ask(request, model, body, job_of(name, body))
        is_list = name in VERBS and VERBS[name].takes_list
        result = answered.answers if is_list else answered.answers[0]
        return reply(
            {"model": model.name, "version": answered.version, "result": result}
        )

    async def embeddings(self, request: Request, body: EmbeddingsBody) -> Response:
        """Return vectors of length 1 for texts."""
        most = limits.MAX_TEXTS * limits.MAX_CHARACTERS
        if sum(map(len, body.input)) > most:
            expected = f"at most {most:,} characters together"
            raise invalid("input is not valid", expected, "input")
        model = self.find_model(body.model)
        width = model.facts.get("vector_size")
        if width is not None and body.dimensions is not None:
            _require_dimensions(body.dimensions, width)

        rows = [{"text": text} for text in body.input]
        job = Job("embed", rows, {"normalize": True}, count_tokens(body.input))
        answered = await self.ask(request, model, body, job)
        num_tokens = await asyncio.to_thread(model.count_pieces, body.input)

        data = list[Embedding]()
        for index, vector in enumerate(answered.answers):
            shown = _shorten(vector, body.dimensions)
            embedding: list[float] | str = shown.tolist()
            if body.encoding_format == "base64":
                embedding = base64.b64encode(shown.astype("<f4").tobytes()).decode()
            entry = Embedding(object="embedding", index=index, embedding=embedding)
            data.append(entry)
        return reply(
            Embeddings(
                object="list",
                model=model.name,
                version=answered.version,
                usage=Usage(prompt_tokens=num_tokens, total_tokens=num_tokens),
                data=data,
            )
        )

    async def list_models(self, _: Request) -> Response:
        """List the served models and what each can do."""
        common = {"object": "model", "created": 0, "owned_by": "litebert"}
        data = list[dict[str, Any]]()
        for model in self.models:
            ready = {"ready": model.is_ready}
            data.append({"id": model.name, **common, **ready, **model.facts})
        return reply({"object": "list", "data": data})

    async def live(self, _: Request) -> Response:
        """Answer 200 while the server is running."""
        return reply({"live": True})

    async def ready(self, _: Request) -> Response:
        """Answer 200 when every model is loaded and passed its self-test, else 503."""
        states = {model.name: model.is_ready for model in self.models}
        status = 200 if all(states.values()) else 503
        return reply({"ready": states}, status)

    async def count(self, _: Request) -> Response:
        """Return counters and timings for Prometheus."""
        text = generate_latest(self.metrics.registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _require_dimensions(dimensions: int, width: int) -> None:
    if dimensions > width:
        expected = f"at most {width:,}, the width of this model's vectors"
        raise invalid("dimensions is not valid", expected, "dimensions")


def _shorten(
    vector: NDArray[np.float32], dimensions: int | None
) -> NDArray[np.float32]:
    """Return the first numbers of a vector of length 1, scaled to length 1 again."""
    if dimensions is None or dimensions >= len(vector):
        return vector
    first = vector[:dimensions]
    length = np.linalg.norm(first)
    shortened: NDArray[np.float32] = first / length if length > 0 else first
    return shortened


# ---- the application -----------------------------------------------------------------


@dataclass(frozen=True)
class Post:
    """A route with a body, and what answers it."""

    route: Route
    handler: Handler


def create_app(service: Service, api_keys: Sequence[str] = ()) -> Starlette:
    """Return the application; its caller starts and stops the models."""
    posts = _posts_of(service)
    gets = _gets_of(service, posts)
    bodies = Bodies(service.options.client_seconds)
    routes = list[HttpRoute]()
    for path, post in posts.items():
        answer = partial(_answer_post, bodies, post)
        routes.append(HttpRoute(path, answer, methods=["POST"]))
    for path, endpoint in gets.items():
        routes.append(HttpRoute(path, endpoint, methods=["GET"]))

    gate = Middleware(
        Gate,
        paths={*posts, *gets},
        metrics=service.metrics,
        keys=[digest(key) for key in api_keys],
        overload=service.overload,
        names=_names_of(service.options, api_keys),
    )
    errors = (HttpError, ValidationError, HTTPException, ClientDisconnect, Exception)
    app = Starlette(
        routes=routes,
        middleware=[*_for_browsers(service.options), gate],
        exception_handlers=dict.fromkeys(errors, _answer_error),
    )
    app.router.redirect_slashes = False  # /v1/fill/ is no route
    return app


def _names_of(options: Options, api_keys: Sequence[str]) -> set[str] | None:
    """Return the sites whose names requests may use; None if they may use any.

    A server for its own machine is protected by its address alone. One that listens
    elsewhere has many names, and no page knows the key of one with keys.
    """
    is_open = "*" in options.cors_origins
    if api_keys or is_open or not is_loopback(options.host):
        return None
    names = set[str]()
    for origin in options.cors_origins:
        names.add(urlsplit(origin).hostname or "")
    return names


def _posts_of(service: Service) -> dict[str, Post]:
    """Return the routes with a body, by path."""
    posts = dict[str, Post]()
    for name, route in service.routes.items():
        posts[f"/v1/{name}"] = Post(route, partial(service.verb, name))
    embeddings = Route(EmbeddingsBody, Embeddings)
    posts["/v1/embeddings"] = Post(embeddings, service.embeddings)
    return posts


def _gets_of(service: Service, posts: Mapping[str, Post]) -> dict[str, Endpoint]:
    """Return the routes without a body, by path: those of the interface, which the
    schema describes, the schema itself, and the pages.
    """
    described: dict[str, Endpoint] = {
        "/v1/models": service.list_models,
        "/live": service.live,
        "/ready": service.ready,
        "/metrics": service.count,
    }

    @cache  # made when it is first asked for
    def schema() -> dict[str, Any]:
        return openapi({path: post.route for path, post in posts.items()}, described)

    async def document(_: Request) -> Response:
        return reply(schema())

    return {
        **described,
        **dict.fromkeys(PAGES, _page),
        "/page/verbs.json": _forms,
        "/openapi.json": document,
    }


async def _answer_post(bodies: Bodies, post: Post, request: Request) -> Response:
    """Read a body, validate it once, and answer it."""
    body = await bodies.read(request)
    # an error for each of many fields would take long
    if not isinstance(body, dict) or len(body) > MAX_FIELDS:
        expected = f"an object with at most {MAX_FIELDS} fields"
        raise invalid("the body is not valid", expected)
    return await post.handler(request, post.route.body.model_validate(body))


async def _page(request: Request) -> Response:
    """Return a file of the playground or the documentation; they load nothing from
    other hosts.
    """
    name = PAGES[request.url.path]
    data = (files("litebert.serve") / "page" / name).read_bytes()
    kind = _TYPES[name.rpartition(".")[2]]
    return Response(data, media_type=kind, headers={"Cache-Control": "no-cache"})


async def _forms(_: Request) -> Response:
    """Return what the playground shows of each verb."""
    return reply(forms(), headers={"Cache-Control": "no-cache"})


def _for_browsers(options: Options) -> list[Middleware]:
    """Return what lets pages of other origins call the server, if any may."""
    if not options.cors_origins:
        return []
    cors = Middleware(
        CORSMiddleware,
        allow_origins=options.cors_origins,
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type"],
        expose_headers=["Retry-After"],
    )
    return [cors]


# ---- errors --------------------------------------------------------------------------


async def _answer_error(_: Request, error: Exception) -> Response:
    """Turn an exception into a response; async, or starlette would run it in a thread,
    which waits for the model.
    """
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)  # for the metrics; no client receives it
    headers: Mapping[str, str] = {}
    if isinstance(error, ValidationError):
        refusal = _as_http_error(error)
    elif isinstance(error, HTTPException):
        headers = error.headers or {}
        refusal = HttpError(
            "LB-961",
            "no route has this address and method",
            status=error.status_code,
            next="GET /docs lists every route",
        )
    elif isinstance(error, HttpError):
        refusal = error
    else:  # the traceback is in the server's log
        refusal = HttpError(
            "LB-968",
            "the server failed on this request",
            status=500,
            next="report it with the lines of the server's log",
        )
    response = problem(refusal)
    response.headers.update(headers)
    return response


_SEND_TEXT = (
    "have the client send text: in LangChain,"
    " OpenAIEmbeddings(check_embedding_ctx_length=False)"
)


FIELDS_OF_VERBS = ("text", "texts", "first", "second", "question", "context")


def _as_http_error(error: ValidationError) -> HttpError:
    """Return an error with the field and what it should be, but never its value or an
    unknown key.
    """
    faults = error.errors(include_url=False, include_input=False)
    missing = list[str]()
    unknown = list[str]()
    for fault in faults:
        if fault["type"] == "missing":
            missing.append(str(fault["loc"][-1]))
        elif fault["type"] == "extra_forbidden":
            unknown.append(str(fault["loc"][-1]))
    if missing:
        what = f"{' and '.join(missing)} is missing"
        # The field of another route may be repeated; anything else could be part of the
        # input.
        for name in unknown:
            if name in FIELDS_OF_VERBS:
                what += f"; {name} was sent"
                break
        return invalid(what, f"the field {missing[0]}", missing[0])
    first = faults[0]
    if first["type"] == "token_ids":
        expected = "a text, or a list of texts, not token ids"
        return invalid("input is not valid", expected, "input", _SEND_TEXT)
    location = first["loc"]
    expected = expected_value(first)
    if first["type"] == "list_type":
        expected = 'a list, such as ["one text", "another"]'
    if first["type"] == "extra_forbidden":
        # the last part is the unknown name, which is not repeated
        location = location[:-1]
        expected = "only the fields that /docs lists"
    field = ".".join(map(str, location))
    return invalid(f"{field or 'the body'} is not valid", expected, field)
