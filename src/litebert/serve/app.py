"""The application: a route per verb, made from the method of `Model`, OpenAI's
embeddings, health checks, the pages.
"""

import asyncio
import base64
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_type_hints,
)

import numpy as np
from annotated_types import Le, Len, MaxLen
from numpy.typing import NDArray
from prometheus_client import generate_latest
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)
from pydantic import create_model as make_record
from pydantic_core import PydanticCustomError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from typing_extensions import TypedDict

from litebert import answers
from litebert.inference.explain import INSIDE, Attention, Steps
from litebert.inference.model import Model, Top
from litebert.inference.verbs import CHOICES
from litebert.plugins import VERBS
from litebert.serve import Options
from litebert.serve import guard as limits
from litebert.serve.batching import Job, ServedModel, count_tokens
from litebert.serve.guard import (
    Bodies,
    Gate,
    HttpError,
    Metrics,
    digest,
    problem,
    reply,
)
from litebert.settings import expected_value

# Requests and answers as records, which validate requests and describe both in
# /openapi.json

Text = Annotated[str, MaxLen(limits.MAX_CHARACTERS)]
Short = Annotated[str, MaxLen(limits.MAX_SCORED_CHARACTERS)]
Texts = Annotated[list[Text], Len(1, limits.MAX_TEXTS)]
Inputs = Annotated[list[Text], Len(1, limits.MAX_INPUTS)]
Name = Annotated[str, MaxLen(200)]
Result = TypeVar("Result")
Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


class RequestBody(BaseModel):
    """The fields that every request may set: the model (by default the first), and how
    long to wait.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    model: Name | None = None
    timeout_ms: Annotated[int, Field(ge=1, le=limits.MAX_TIMEOUT_MS)] | None = None


class Answer(BaseModel, Generic[Result]):
    """The model that answered, the version of its files, and the result of the verb."""

    model: str
    version: str
    result: Result


class ExplainBody(RequestBody):
    """Return how much each word adds to an answer; the answer defaults to the one that
    the model gives.
    """

    verb: Annotated[
        Literal["answer", "classify", "fill", "order", "similar"],
        Field(examples=["similar"]),
    ]
    texts: Annotated[list[Short], Len(1, 2), Field(examples=[["A cat.", "A kitten."]])]
    answer: Name | None = None


PEOPLE = "Ada left at noon."
FILMS = ["A fine film.", "A dull one."]
JOINED = {"first": "She opened the door.", "second": "Then she went in."}
# for each verb, the type of its answer, and example arguments
ROUTES: dict[str, tuple[Any, Mapping[str, Any]]] = {
    "fill": (Answer[list[answers.Filling]], {"text": "The cat sat on the [MASK]."}),
    "score": (Answer[answers.Score], {"text": "The cat sat on the mat."}),
    "order": (Answer[Union[answers.Order, answers.Coherence]], JOINED),  # noqa: UP007
    "embed": (Answer[list[list[float]]], {"texts": FILMS}),
    "classify": (Answer[list[answers.Classification]], {"texts": FILMS}),
    "tag": (Answer[list[answers.Tagging]], {"texts": ["Ada lives in London."]}),
    "choose": (
        Answer[answers.Choice],
        {"question": "Who left?", "choices": ["Ada", "Bert"], "context": PEOPLE},
    ),
    "answer": (
        Answer[list[answers.SpanFound]],
        {"question": "When did Ada leave?", "context": PEOPLE},
    ),
    "steps": (Answer[Steps], {"text": "The cat sat on the mat."}),
    "attention": (Answer[Attention], {"text": "The cat sat on the mat.", "step": 1}),
    "explain": (Answer[answers.Explanation], {}),
}
# arguments that requests do not have
LEFT_OUT = ("self", "model", "progress", "max_length")
LIMITS: dict[str, Any] = {  # the type of arguments with this name
    **dict.fromkeys(("text", "first", "second", "question", "context"), Text),
    **dict.fromkeys(("texts", "pairs"), Texts),
    "choices": Annotated[list[Text], Len(2, len(CHOICES))],
    "top": Annotated[Top, Le(limits.MAX_TOP)],
}


def body_of(verb: str) -> type[RequestBody]:
    """Return the body type of a verb's route: the arguments of its function, in the
    same order, with limits.
    """
    if verb == "explain":  # its function takes each text as a separate argument
        return ExplainBody
    (_, example), function = ROUTES[verb], INSIDE.get(verb) or getattr(Model, verb)
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in LEFT_OUT:
            continue
        kind: Any = Short if verb == "score" else LIMITS.get(name, hints[name])
        if parameter.default is None:
            kind = kind | None
        shown = Field(examples=[example[name]] if name in example else None)
        is_required = parameter.default is inspect.Parameter.empty
        fields[name] = (
            Annotated[kind, shown],
            ... if is_required else parameter.default,
        )
    return make_record(
        f"{verb.capitalize()}Body",
        __base__=RequestBody,
        __doc__=function.__doc__,
        **fields,
    )


def job_of(verb: str, body: RequestBody) -> Job:
    """Return the job of a request: the rows for the verb, its options, an estimate of
    its tokens.
    """
    given = body.model_dump(exclude={"model", "timeout_ms"})
    texts = given.pop("texts", None)
    pairs = given.pop("pairs", None)
    if texts is None:
        # no more than there are names
        choices = dict(zip(CHOICES, given.pop("choices", ()), strict=False))
        roles = VERBS[verb].roles if verb in VERBS else ("text",)
        row = {
            role: text for role in roles if (text := given.pop(role, None)) is not None
        } | choices
        tokens = count_tokens(row.values())
        if choices:  # each is encoded with the question and the context
            tokens = count_tokens(
                f"{row['context']} {row['question']} {choice}"
                for choice in choices.values()
            )
        # scored once for each token
        return Job(verb, [row], given, tokens * tokens if verb == "score" else tokens)
    if pairs and len(pairs) != len(texts):
        raise invalid("pairs is not valid", "as many pairs as texts", "pairs")
    rows = [
        {"text": text, "second": pair}
        for text, pair in zip(texts, pairs or [""] * len(texts), strict=True)
    ]
    tokens = count_tokens(row["text"] + row["second"] for row in rows)
    # explanations take many passes
    return Job(verb, rows, given, 100 * tokens if verb == "explain" else tokens)


# OpenAI's embeddings route, for existing clients


def _as_texts(value: object) -> object:
    """Return one text as a list; refuse token ids, which clients send that have
    tokenized for another model.
    """
    if isinstance(value, str):
        return [value]
    first = value[0] if isinstance(value, list) and value else None
    if isinstance(first, int | list):
        raise PydanticCustomError("token_ids", "token ids")
    return value


class EmbeddingsBody(RequestBody):
    """Return vectors of length 1 for texts, as OpenAI does; with `dimensions`, of so
    many first numbers.

    Clients add fields that other services read (user, input_type): they have no effect.
    """

    model_config = ConfigDict(extra="ignore", strict=True)
    input: Annotated[
        Inputs,
        BeforeValidator(
            _as_texts,
            json_schema_input_type=Union[Text, Inputs],  # noqa: UP007
        ),
        Field(examples=["A fine film."]),
    ]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None


class Embedding(TypedDict):
    """One vector of length 1; base64 encodes little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


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


class Usage(TypedDict):
    prompt_tokens: int
    total_tokens: int


class Embeddings(TypedDict):
    """OpenAI's list of embeddings."""

    object: Literal["list"]
    model: str
    version: str
    usage: Usage
    data: list[Embedding]


# The routes


@dataclass(frozen=True)
class Service:
    """The served models and what they share; the first one answers requests that do not
    name a model.
    """

    models: Sequence[ServedModel]
    metrics: Metrics
    options: Options

    def find_model(self, name: str | None) -> ServedModel:
        for model in self.models:
            if name is None or model.name == name:
                return model
        next_step = "GET /v1/models lists them; omit model for the first one"
        raise HttpError(
            "LB-955", "no model here has this name", status=404, next=next_step
        )

    def overload(self, path: str) -> HttpError | None:
        """Return the error that refuses a request to this path if no model has room;
        the body is not known yet.
        """
        if path.removeprefix("/v1/") not in (*ROUTES, "embeddings"):
            return None
        refusals = [model.overload() for model in self.models]
        return refusals[0] if all(refusals) else None

    async def ask(
        self, request: Request, body: RequestBody, job: Job
    ) -> tuple[ServedModel, str, list[Any]]:
        """Return the model named in a body, its version and its answers, unless the
        client disconnects first.
        """
        model = self.find_model(body.model)
        verbs = [*model.facts.get("verbs", ()), *INSIDE, "explain"]
        needed = (
            job.options["verb"]
            if job.verb == "explain" and job.options["verb"] != "similar"
            else job.verb
        )
        if model.is_ready and needed not in verbs:
            what = f"this model cannot {needed}: it has no head for it"
            next_step = "GET /v1/models lists the others"
            raise HttpError(
                "LB-956",
                what,
                status=422,
                expected=f"one of {', '.join(verbs)}",
                next=next_step,
            )

        async def left() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        return model, *await model.answer(
            job, timeout_ms=body.timeout_ms or self.options.timeout_ms, left=left
        )

    async def verb(self, verb: str, request: Request, body: RequestBody) -> Response:
        """Answer POST /v1/VERB, with a list if it was given a list of texts."""
        model, version, found = await self.ask(request, body, job_of(verb, body))
        found = [vector.tolist() for vector in found] if verb == "embed" else found
        result = found if verb in ("embed", "classify", "tag") else found[0]
        return reply({"model": model.name, "version": version, "result": result})

    async def embeddings(self, request: Request, body: EmbeddingsBody) -> Response:
        """Return vectors of length 1 for texts."""
        most = limits.MAX_TEXTS * limits.MAX_CHARACTERS
        if sum(map(len, body.input)) > most:
            expected = f"at most {most:,} characters together"
            raise invalid("input is not valid", expected, "input")
        width = self.find_model(body.model).facts.get("vector_size")
        if width is not None and body.dimensions is not None:
            _require_dimensions(body.dimensions, width)

        rows = [{"text": text} for text in body.input]
        job = Job("embed", rows, {"normalize": True}, count_tokens(body.input))
        model, version, vectors = await self.ask(request, body, job)
        num_tokens = await asyncio.to_thread(model.count_pieces, body.input)

        data = list[Embedding]()
        for index, vector in enumerate(vectors):
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
                version=version,
                usage=Usage(prompt_tokens=num_tokens, total_tokens=num_tokens),
                data=data,
            )
        )

    async def list_models(self, _: Request) -> Response:
        """List the served models and what each can do."""
        common = {"object": "model", "created": 0, "owned_by": "litebert"}
        found = [
            {"id": each.name, **common, "ready": each.is_ready, **each.facts}
            for each in self.models
        ]
        return reply({"object": "list", "data": found})

    async def live(self, _: Request) -> Response:
        """Answer 200 while the server is running."""
        return reply({"live": True})

    async def ready(self, _: Request) -> Response:
        """Answer 200 when every model is loaded and passed its self-test, else 503."""
        states = {model.name: model.is_ready for model in self.models}
        return reply({"ready": states}, 200 if all(states.values()) else 503)

    async def count(self, _: Request) -> Response:
        """Return counters and timings for Prometheus."""
        text = generate_latest(self.metrics.registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


class Post(NamedTuple):
    """A route with a body: its handler, and the types of its body and answer."""

    answer: Callable[[Request, Any], Awaitable[Response]]
    body: type[RequestBody]
    result: Any


PAGES = {"/": "index.html", "/docs": "docs.html", "/favicon.ico": "icon.svg"}
SCRIPTS = (
    "look.css",
    "api.js",
    "attention.js",
    "charts.js",
    "docs.js",
    "page.js",
    "views.js",
)
PAGES |= {f"/page/{name}": name for name in SCRIPTS}
_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}


def create_app(service: Service, api_keys: Sequence[str] = ()) -> Starlette:
    """Return the application; its caller starts and stops the models. A body is read
    and validated once.
    """
    bodies = Bodies(service.options.client_seconds)
    posts = {
        f"/v1/{verb}": Post(partial(service.verb, verb), body_of(verb), ROUTES[verb][0])
        for verb in ROUTES
    }
    posts["/v1/embeddings"] = Post(service.embeddings, EmbeddingsBody, Embeddings)
    gets: dict[str, Endpoint] = {
        "/v1/models": service.list_models,
        "/live": service.live,
        "/ready": service.ready,
    }
    gets["/metrics"] = service.count

    async def answer(post: Post, request: Request) -> Response:
        body = await bodies.read(request)
        # no route has as many; an error for each would take long
        if not isinstance(body, dict) or len(body) > 64:
            raise invalid("the body is not valid", "an object with at most 64 fields")
        return await post.answer(request, post.body.model_validate(body))

    # playground or documentation; they load nothing from other hosts
    async def page(request: Request) -> Response:
        name = PAGES[request.url.path]
        data = (files("litebert.serve") / "page" / name).read_bytes()
        kind = _TYPES[name.rpartition(".")[2]]
        return Response(data, media_type=kind, headers={"Cache-Control": "no-cache"})

    schema = cache(lambda: openapi(posts, gets))

    async def document(_: Request) -> Response:
        return reply(schema())

    answered = gets | dict.fromkeys(PAGES, page) | {"/openapi.json": document}
    routes = [
        Route(path, partial(answer, post), methods=["POST"])
        for path, post in posts.items()
    ]
    routes += [Route(path, shown, methods=["GET"]) for path, shown in answered.items()]

    # Middleware around all routes
    paths = {*posts, *answered}
    keys = [digest(key) for key in api_keys]
    around = [
        Middleware(
            Gate,
            paths=paths,
            metrics=service.metrics,
            keys=keys,
            overload=service.overload,
        )
    ]
    if origins := service.options.cors_origins:
        may: dict[str, Any] = {
            "allow_methods": ["GET", "POST"],
            "allow_headers": ["Authorization", "Content-Type"],
        }
        around.insert(
            0,
            Middleware(
                CORSMiddleware,
                allow_origins=origins,
                expose_headers=["Retry-After"],
                **may,
            ),
        )
    kinds = (HttpError, ValidationError, HTTPException, ClientDisconnect, Exception)
    app = Starlette(
        routes=routes,
        middleware=around,
        exception_handlers=dict.fromkeys(kinds, _answer_error),
    )
    app.router.redirect_slashes = False  # /v1/fill/ is no route
    return app


# Errors, and the description of the interface


async def _answer_error(_: Request, error: Exception) -> Response:
    """Turn an exception into a response; async, or starlette would run it in a thread,
    which waits for the model.
    """
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)  # for the metrics; no client receives it
    headers: Mapping[str, str] = {}
    if isinstance(error, ValidationError):
        error = _as_http_error(error)
    elif isinstance(error, HTTPException):
        what = "no route has this address and method"
        headers = error.headers or {}
        error = HttpError(
            "LB-961", what, status=error.status_code, next="GET /docs lists every route"
        )
    elif not isinstance(error, HttpError):  # the traceback is in the server's log
        next_step = "report it with the lines of the server's log"
        error = HttpError(
            "LB-968", "the server failed on this request", status=500, next=next_step
        )
    response = problem(error)
    response.headers.update(headers)
    return response


_SHOW_FIELDS = "/docs shows every field and an example"
_SEND_TEXT = (
    "have the client send text: in LangChain,"
    " OpenAIEmbeddings(check_embedding_ctx_length=False)"
)


def invalid(
    what: str, expected: str, field: str = "", next_step: str = _SHOW_FIELDS
) -> HttpError:
    """Return the error for an invalid field."""
    return HttpError(
        "LB-954", what, status=422, expected=expected, next=next_step, param=field
    )


def _as_http_error(error: ValidationError) -> HttpError:
    """Return an error with the field and what it should be, but never its value or an
    unknown key.
    """
    found = error.errors(include_url=False, include_input=False)
    if missing := [str(each["loc"][-1]) for each in found if each["type"] == "missing"]:
        # A field name that belongs to another route may be repeated; anything else
        # could be part of the input.
        given = [
            str(each["loc"][-1]) for each in found if each["type"] == "extra_forbidden"
        ]
        ours = [
            name
            for name in given
            if name in ("text", "texts", "first", "second", "question", "context")
        ]
        what = f"{' and '.join(missing)} is missing" + (
            f"; {ours[0]} was sent" if ours else ""
        )
        return invalid(what, f"the field {missing[0]}", missing[0])
    first = found[0]
    if first["type"] == "token_ids":
        expected = "a text, or a list of texts, not token ids"
        return invalid("input is not valid", expected, "input", _SEND_TEXT)
    location = first["loc"]
    expected = expected_value(first)
    if first["type"] == "extra_forbidden":
        # the last part is the unknown name, which is not repeated
        location = location[:-1]
        expected = "only the fields that /docs lists"
    field = ".".join(map(str, location))
    return invalid(f"{field or 'the body'} is not valid", expected, field)


class Problem(TypedDict):
    """What is wrong, what is expected, what to do; `code` is stable
    (docs/errors.md).
    """

    message: str
    type: str
    param: str | None
    code: str


ABOUT = f"""Answers of ALBERT models: the verbs of `litebert`, with the same names.

Limits: bodies of {limits.MAX_BODY_BYTES:,} bytes, {limits.MAX_TEXTS} texts per request, {limits.MAX_CHARACTERS:,}
characters per text. Every error has a stable code, listed in docs/errors.md."""  # noqa: E501


def openapi(posts: Mapping[str, Post], gets: Mapping[str, Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI document: bodies and answers from their types, descriptions
    from the starts of docstrings.
    """
    kinds: list[tuple[str, Literal["validation", "serialization"], TypeAdapter[Any]]]
    kinds = [
        (path, "validation", TypeAdapter(post.body)) for path, post in posts.items()
    ]
    kinds += [
        (path, "serialization", TypeAdapter(post.result))
        for path, post in posts.items()
    ]
    kinds += [
        ("problem", "serialization", TypeAdapter(dict[Literal["error"], Problem]))
    ]
    schemas, named = TypeAdapter.json_schemas(
        kinds, ref_template="#/components/schemas/{model}"
    )

    def content(
        about: str, name: str, mode: Literal["validation", "serialization"]
    ) -> dict[str, Any]:
        return {
            "description": about,
            "content": {"application/json": {"schema": schemas[name, mode]}},
        }

    why = "Refused; the message says why, and docs/errors.md lists the stable code."
    refusal = content(why, "problem", "serialization")
    paths: dict[str, Any] = {}
    for path, post in posts.items():
        body = content("Strict JSON in UTF-8.", path, "validation") | {"required": True}
        responses = {
            "200": content("The answer.", path, "serialization"),
            "default": refusal,
        }
        about = inspect.cleandoc(post.body.__doc__ or "").partition("\n\n")[0]
        own = {
            "operationId": path.rpartition("/")[2],
            "description": about,
            "security": [{"key": []}],
        }
        paths[path] = {"post": {**own, "requestBody": body, "responses": responses}}
    for path, answer in gets.items():
        answered = {"200": {"description": "The answer."}}
        paths[path] = {
            "get": {"description": inspect.getdoc(answer), "responses": answered}
        }
    paths["/ready"]["get"]["responses"]["503"] = {
        "description": "A model is loading or not available."
    }
    components = {
        "schemas": named["$defs"],
        "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
    }
    info = {"title": "litebert", "version": "1", "description": ABOUT}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}
