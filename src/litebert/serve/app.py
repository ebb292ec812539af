"""The application: a route for each verb, made from the method of `Model`, OpenAI's routes, health, and the pages."""

from __future__ import annotations

import asyncio
import base64
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_type_hints

from annotated_types import Le
from fastapi import Body, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from prometheus_client import generate_latest
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, create_model
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from typing_extensions import TypedDict

from litebert import answers
from litebert.config.load import wanted
from litebert.inference.model import Model
from litebert.inference.verbs import CHOICES, VERBS, Row
from litebert.serve import Options
from litebert.serve.batching import Attention, Job, ServedModel, Steps, count_tokens
from litebert.serve.guard import (
    MAX_BODY_BYTES,
    MAX_CHARACTERS,
    MAX_INPUTS,
    MAX_SCORED_CHARACTERS,
    MAX_TEXTS,
    MAX_TIMEOUT_MS,
    MAX_TOP,
    Bodies,
    ClientLeftError,
    Gate,
    HttpError,
    Metrics,
    encode,
    problem,
    reply,
)

Text = Annotated[str, StringConstraints(max_length=MAX_CHARACTERS)]
Short = Annotated[str, StringConstraints(max_length=MAX_SCORED_CHARACTERS)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)]
Name = Annotated[str, StringConstraints(max_length=200)]
Result = TypeVar("Result")

LEFT_OUT = ("self", "progress", "max_length", "patience")  # arguments of the methods that requests do not have


class RequestBody(BaseModel):
    """What every request may set: the model (by default the first), and how long it waits."""

    model_config = ConfigDict(extra="forbid", strict=True)
    model: Name | None = None
    timeout_ms: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS)] | None = None


class Answer(BaseModel, Generic[Result]):
    """The model that answered, the version of its files, and the result of the verb."""

    model: str
    version: str
    result: Result


class Problem(TypedDict):
    """What is wrong, what is expected, what to do; `code` is stable (docs/errors.md)."""

    message: str
    type: str
    param: str | None
    code: str


class Problems(TypedDict):
    """Every error has this body."""

    error: Problem


PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problems, "description": text}
    for status, text in {
        400: "Not strict JSON.",
        401: "No valid API key.",
        404: "No such model.",
        408: "The body did not arrive in time.",
        413: "The body is too large.",
        415: "Not plain JSON.",
        422: "A field is wrong, or the model has no head for this.",
        429: "The queue is full; Retry-After says when to try again.",
        503: "The model is not available at the moment.",
        504: "The deadline passed.",
    }.items()
}


class StepsBody(RequestBody):
    """Show how the hidden states of a text move from step to step."""

    text: Annotated[Text, Field(examples=["The cat sat on the mat."])]


class AttentionBody(RequestBody):
    """Show what each head attends to in one step."""

    text: Annotated[Text, Field(examples=["The cat sat on the mat."])]
    step: Annotated[int, Field(ge=1, le=1_000, examples=[1])] = 1


class ExplainBody(RequestBody):
    """Say how much each word adds to an answer; unset, the answer is the one the model gives."""

    verb: Annotated[Literal["answer", "classify", "fill", "order", "similar"], Field(examples=["similar"])]
    texts: Annotated[list[Short], Field(min_length=1, max_length=2, examples=[["A cat.", "A kitten."]])]
    answer: Name | None = None


@dataclass(frozen=True)
class Route:
    """A verb over HTTP: what it answers, and its body or, for a method of `Model`, an example of its arguments."""

    result: Any
    example: Mapping[str, Any] = field(default_factory=dict)
    body: type[RequestBody] | None = None


PEOPLE, FILMS = "Ada left at noon.", ["A fine film.", "A dull one."]
ROUTES = {
    "fill": Route(list[answers.Filling], {"text": "The cat sat on the [MASK]."}),
    "score": Route(answers.Score, {"text": "The cat sat on the mat."}),
    "order": Route(
        Union[answers.Order, answers.Coherence],  # noqa: UP007
        {"first": "She opened the door.", "second": "Then she went in."},
    ),
    "embed": Route(list[list[float]], {"texts": FILMS}),
    "classify": Route(list[answers.Classification], {"texts": FILMS}),
    "tag": Route(list[list[answers.Tagged]], {"texts": ["Ada lives in London."]}),
    "choose": Route(answers.Choice, {"question": "Who left at noon?", "choices": ["Ada", "Bert"], "context": PEOPLE}),
    "answer": Route(list[answers.SpanFound], {"question": "When did Ada leave?", "context": PEOPLE}),
    "steps": Route(Steps, body=StepsBody),
    "attention": Route(Attention, body=AttentionBody),
    "explain": Route(answers.Explanation, body=ExplainBody),
}


def body_of(verb: str) -> type[RequestBody]:
    """Return the body of a verb's route: the arguments of the method, in their order, with limits."""
    if own := ROUTES[verb].body:
        return own
    method, example = getattr(Model, verb), ROUTES[verb].example
    hints = get_type_hints(method, include_extras=True)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(method).parameters.items():
        if name in LEFT_OUT:
            continue
        kind: Any = hints[name]
        if name in ("texts", "pairs"):
            kind = Texts
        elif name == "choices":
            kind = Annotated[list[Text], Field(min_length=2, max_length=MAX_TEXTS)]
        elif name in ("text", "first", "second", "question", "context"):
            kind = Short if verb == "score" else Text
        elif name == "top":
            kind = Annotated[kind, Le(MAX_TOP)]
        if parameter.default is None:
            kind = kind | None
        shown = Field(examples=[example[name]] if name in example else None)
        is_required = parameter.default is inspect.Parameter.empty
        fields[name] = (Annotated[kind, shown], ... if is_required else parameter.default)
    body = create_model(f"{verb.capitalize()}Body", __base__=RequestBody, __doc__=method.__doc__, **fields)
    assert issubclass(body, RequestBody)
    return body


def job_of(verb: str, body: RequestBody) -> Job:
    """Return the work of a request, with an estimate of its tokens."""
    given = body.model_dump(exclude={"model", "timeout_ms"})
    if verb == "choose":  # each choice is read with the question and the context
        choices = given.pop("choices")
        row = {**given, **dict(zip(CHOICES, choices, strict=False))}
        shared = f"{given['context']} {given['question']} "
        return Job(verb, [row], {}, count_tokens(shared + choice for choice in choices))
    if "texts" in given:
        texts, pairs = given.pop("texts"), given.pop("pairs", None)
        rows: list[Row] = [{"text": text} for text in texts]
        if pairs is not None:
            if len(pairs) != len(texts):
                expected, next_step = "as many pairs as texts", "/docs shows every field and an example"
                raise HttpError("LB-954", "pairs is not valid", status=422, expected=expected, next=next_step)
            rows = [{"text": text, "second": pair} for text, pair in zip(texts, pairs, strict=True)]
        tokens = count_tokens([*texts, *(pairs or ())])
        return Job(verb, rows, given, 100 * tokens if verb == "explain" else tokens)  # explained texts are read often
    roles = VERBS[verb].roles if verb in VERBS else ("text",)
    row = {role: given.pop(role) for role in roles if given.get(role) is not None}
    given.pop("second", None)
    tokens = count_tokens(row.values())
    return Job(verb, [row], given, tokens * tokens if verb == "score" else tokens)  # a text is read once for each token


@dataclass(frozen=True)
class Service:
    """The served models with what they share; the first one answers requests that name none."""

    models: Sequence[ServedModel]
    metrics: Metrics
    options: Options

    def named(self, name: str | None) -> ServedModel:
        """Return a model by its name."""
        for model in self.models:
            if name is None or model.name == name:
                return model
        what, next_step = "no model has this name here", "GET /v1/models lists them; omit model for the first one"
        raise HttpError("LB-955", what, status=404, next=next_step)

    def overload(self, path: str) -> HttpError | None:
        """Return the refusal of a request, of which only the path is known: if none of the models has room."""
        if path.removeprefix("/v1/") not in (*ROUTES, "embeddings"):
            return None
        refusals = [model.overload() for model in self.models]
        return refusals[0] if all(refusals) else None

    async def ask(
        self, request: Request, model: ServedModel, job: Job, timeout_ms: int | None
    ) -> tuple[str, list[Any]]:
        """Return the version of the model and its answers, as long as the client waits."""
        verbs = [*model.facts.get("verbs", ()), "steps", "attention", "explain"]
        needed = job.options["verb"] if job.verb == "explain" and job.options["verb"] != "similar" else job.verb
        if model.is_ready and needed not in verbs:
            what, expected = f"this model cannot {needed}: it has no head for that", f"one of {', '.join(verbs)}"
            next_step = "GET /v1/models says what each model can do"
            raise HttpError("LB-956", what, status=422, expected=expected, next=next_step)

        async def left() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        version, found = await model.answer(job, timeout_ms=timeout_ms or self.options.timeout_ms, left=left)
        return version, found


class StrictRoute(APIRoute):
    """A route whose JSON body is read by `Bodies`, before FastAPI validates it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def read_first(request: Request) -> Response:
            decoded = await request.app.state.bodies.read(request)
            read = Request(request.scope, request.receive)
            read._body, read._json = b"{}", decoded
            return await handle(read)

        return read_first


def _bounded(texts: list[str]) -> list[str]:
    most = MAX_TEXTS * MAX_CHARACTERS
    if sum(map(len, texts)) > most:
        raise ValueError(f"at most {most:,} characters together")
    return texts


Inputs = Annotated[list[Text], Field(min_length=1, max_length=MAX_INPUTS)]


class EmbeddingsBody(RequestBody):
    """OpenAI's request for embeddings; token ids and `dimensions` are not supported."""

    input: Annotated[
        Inputs,
        AfterValidator(_bounded),
        BeforeValidator(lambda x: [x] if isinstance(x, str) else x, json_schema_input_type=Union[Text, Inputs]),  # noqa: UP007
        Field(examples=["A fine film."]),
    ]
    model: Name
    encoding_format: Literal["float", "base64"] = "float"
    user: Name | None = None


class Embedding(TypedDict):
    """One vector of length 1; base64 is of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(TypedDict):
    """The number of tokens read."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(TypedDict):
    """OpenAI's list of embeddings."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


def _encoded(vectors: Sequence[Any], encoding: str) -> bytes:
    rows = []
    for number, vector in enumerate(vectors):
        is_text = encoding == "base64"
        shown = base64.b64encode(vector.astype("<f4").tobytes()).decode() if is_text else vector.tolist()
        rows.append(encode({"object": "embedding", "index": number, "embedding": shown}))
    return b",".join(rows)


PAGES = {"/": "index.html", "/docs": "docs.html", "/favicon.ico": "icon.svg"}
SCRIPTS = ("look.css", "api.js", "attention.js", "charts.js", "docs.js", "page.js", "views.js")
PAGES |= {f"/page/{name}": name for name in SCRIPTS}
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
KEY = [Depends(HTTPBearer(auto_error=False))]  # for the documentation; Gate checks the keys


def create_app(service: Service, api_keys: Sequence[str] = ()) -> FastAPI:
    """Return the application; its runner starts and stops the models."""
    app = FastAPI(
        title="litebert",
        version="1",
        description=f"""Answers of ALBERT models: the verbs of `litebert`, in the same words.

Limits: bodies of {MAX_BODY_BYTES:,} bytes, {MAX_TEXTS} texts per request, {MAX_CHARACTERS:,}
characters per text. Every error has a stable code, listed in docs/errors.md.""",
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    app.state.bodies, app.router.route_class = Bodies(service.options.client_seconds), StrictRoute

    # POST /v1/VERB with a verb's arguments gives its result.
    def add_verb(verb: str, kind: type[RequestBody], result: Any) -> None:
        async def answer(request: Request, body: Annotated[Any, Body()]) -> Response:
            model = service.named(body.model)
            version, found = await service.ask(request, model, job_of(verb, body), body.timeout_ms)
            plain = [VERBS[verb].plain(each) for each in found] if verb in VERBS else found
            shown = plain if verb in ("embed", "classify", "tag") else plain[0]
            if verb == "order" and isinstance(found[0], answers.Coherence):
                shown = found[0]
            return reply({"model": model.name, "version": version, "result": shown})

        answer.__annotations__["body"] = Annotated[kind, Body()]
        said = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0]
        given: dict[str, Any] = {"responses": PROBLEMS, "tags": ["verbs"], "dependencies": KEY, "description": said}
        app.post(f"/v1/{verb}", response_model=Answer[result], name=verb, **given)(answer)

    for verb, route in ROUTES.items():
        add_verb(verb, body_of(verb), route.result)

    # OpenAI's routes, for existing clients

    @app.post("/v1/embeddings", response_model=Embeddings, responses=PROBLEMS, tags=["OpenAI"], dependencies=KEY)
    async def embeddings(request: Request, body: Annotated[EmbeddingsBody, Body()]) -> Response:
        """Turn texts into vectors of length 1."""
        model, rows = service.named(body.model), [{"text": text} for text in body.input]
        tokens = count_tokens(body.input)
        _, found = await service.ask(request, model, Job("embed", rows, {"normalize": True}, tokens), body.timeout_ms)
        num_tokens = await asyncio.to_thread(model.count_pieces, body.input)
        data = await asyncio.to_thread(_encoded, found, body.encoding_format)  # others get their turn between rows
        usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
        head = encode({"object": "list", "model": model.name, "usage": usage})
        return Response(head[:-1] + b',"data":[' + data + b"]}", media_type="application/json")

    @app.get("/v1/models", responses={401: {"model": Problems}}, tags=["OpenAI"], dependencies=KEY)
    async def models() -> Response:
        """List the served models and what each can do."""
        shown = ("verbs", "version", "notes", "hidden_size", "num_steps", "num_blocks", "max_tokens")
        found = [
            {
                "id": model.name,
                "object": "model",
                "created": 0,
                "owned_by": "litebert",
                "ready": model.is_ready,
                **{name: model.facts.get(name) for name in shown},
            }
            for model in service.models
        ]
        return reply({"object": "list", "data": found})

    # Health

    @app.get("/live", tags=["health"])
    async def live() -> Response:
        """Answer 200 as long as the server runs."""
        return reply({"live": True})

    @app.get("/ready", tags=["health"], responses={503: {"description": "A model is loading, or gone."}})
    async def ready() -> Response:
        """Answer 200 when every model is loaded and passed its self-test, else 503."""
        states = {model.name: model.is_ready for model in service.models}
        return reply({"ready": states}, 200 if all(states.values()) else 503)

    @app.get("/metrics", tags=["health"])
    async def metrics() -> Response:
        """Return counters and times for Prometheus."""
        text = generate_latest(service.metrics.registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    # The playground at /, the documentation at /docs; nothing is loaded from elsewhere.
    def add_page(address: str, name: str) -> None:
        async def give() -> Response:
            data = (files("litebert.serve") / "page" / name).read_bytes()
            return Response(data, media_type=_TYPES[name.rpartition(".")[2]], headers={"Cache-Control": "no-cache"})

        app.get(address, include_in_schema=False)(give)

    for address, name in PAGES.items():
        add_page(address, name)

    # What stands around every route
    for kind in (HttpError, RequestValidationError, HTTPException, ClientLeftError, Exception):
        app.add_exception_handler(kind, _refused)
    app.add_middleware(Gate, metrics=service.metrics, api_keys=api_keys, overload=service.overload)
    if origins := service.options.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


async def _refused(_: Request, error: Exception) -> Response:
    """Turn what was raised into an answer; async, since starlette gives others a thread, which waits for the model."""
    param: str | None = None
    headers: Mapping[str, str] = {}
    if isinstance(error, ClientLeftError):
        return Response(status_code=499)  # for the metrics; no client receives it
    if isinstance(error, RequestValidationError):
        error, param = _invalid(error)
    elif isinstance(error, HTTPException):
        what, headers = "no route has this address and method", error.headers or {}
        error = HttpError("LB-961", what, status=error.status_code, next="GET /docs lists every route")
    elif not isinstance(error, HttpError):  # the server writes the traceback to its log
        next_step = "report it with the lines of the server's log"
        error = HttpError("LB-968", "the server failed on this request", status=500, next=next_step)
    response = problem(error, param=param)
    response.headers.update(headers)
    return response


def _invalid(error: RequestValidationError) -> tuple[HttpError, str | None]:
    """Name the field and what it should be, but never its value or an unknown key."""
    found = error.errors()
    missing = [str(each["loc"][-1]) for each in found if each["type"] == "missing"]
    first = next((each for each in found if each["type"] == "missing"), found[0])
    is_unknown = first["type"] == "extra_forbidden"
    path = [str(part) for part in first["loc"][1:]]
    field = ".".join(path[:-1] if is_unknown else path) or None
    what, expected = f"{field or 'the body'} is not valid", "only the fields that /docs lists"
    if missing:
        what, expected = f"{' and '.join(missing)} is missing", f"the field {missing[0]}"
        # A name of ours that another route takes may be repeated; anything else could be the input.
        given = [str(each["loc"][-1]) for each in found if each["type"] == "extra_forbidden"]
        known = [name for name in given if name in ("text", "texts", "first", "second", "question", "context")]
        what += f"; {known[0]} was sent" if known else ""
    elif not is_unknown:
        expected = wanted(first)
    next_step = "/docs shows every field and an example"
    return HttpError("LB-954", what, status=422, expected=expected, next=next_step), field
