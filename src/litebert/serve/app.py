"""The application: a route for each verb, made from the method of `Model`, OpenAI's routes, health, and the pages."""

from __future__ import annotations

import asyncio
import base64
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar, Union, get_type_hints

from annotated_types import Le
from fastapi import Body, Depends
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from prometheus_client import generate_latest
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    create_model,
)
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Address
from typing_extensions import TypedDict

from litebert import answers
from litebert.config.load import wanted
from litebert.inference.model import Model
from litebert.inference.verbs import CHOICES, VERBS
from litebert.serve import Options
from litebert.serve.batching import Attention, Job, ServedModel, Steps, attention, count_tokens, steps
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
    problem,
    reply,
)

Text = Annotated[str, StringConstraints(max_length=MAX_CHARACTERS)]
Short = Annotated[str, StringConstraints(max_length=MAX_SCORED_CHARACTERS)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)]
Name = Annotated[str, StringConstraints(max_length=200)]
Result = TypeVar("Result")
Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

LEFT_OUT = ("self", "model", "progress", "max_length", "patience")  # arguments that requests do not have
LIMITS: dict[str, Any] = {
    **dict.fromkeys(("text", "first", "second", "question", "context"), Text),
    **dict.fromkeys(("texts", "pairs"), Texts),
    "choices": Annotated[list[Text], Field(min_length=2, max_length=MAX_TEXTS)],
}
"""What an argument of this name may be."""


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


class ExplainBody(RequestBody):
    """Say how much each word adds to an answer; unset, the answer is the one the model gives."""

    verb: Annotated[Literal["answer", "classify", "fill", "order", "similar"], Field(examples=["similar"])]
    texts: Annotated[list[Short], Field(min_length=1, max_length=2, examples=[["A cat.", "A kitten."]])]
    answer: Name | None = None


@dataclass(frozen=True)
class Route:
    """A verb over HTTP: what it answers, an example of its arguments, its function if that is no method of `Model`."""

    result: Any
    example: Mapping[str, Any]
    function: Callable[..., Any] | None = None


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
    "steps": Route(Steps, {"text": "The cat sat on the mat."}, steps),
    "attention": Route(Attention, {"text": "The cat sat on the mat.", "step": 1}, attention),
    "explain": Route(answers.Explanation, {}),
}


def body_of(verb: str) -> type[RequestBody]:
    """Return the body of a verb's route: the arguments of its function, in their order, with limits."""
    if verb == "explain":  # its texts are one argument each
        return ExplainBody
    example, function = ROUTES[verb].example, ROUTES[verb].function or getattr(Model, verb)
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in LEFT_OUT:
            continue
        kind: Any = LIMITS.get(name, hints[name])
        if name == "top":
            kind = Annotated[kind, Le(MAX_TOP)]
        elif verb == "score":
            kind = Short
        if parameter.default is None:
            kind = kind | None
        shown = Field(examples=[example[name]] if name in example else None)
        is_required = parameter.default is inspect.Parameter.empty
        fields[name] = (Annotated[kind, shown], ... if is_required else parameter.default)
    body = create_model(f"{verb.capitalize()}Body", __base__=RequestBody, __doc__=function.__doc__, **fields)
    assert issubclass(body, RequestBody)
    return body


def job_of(verb: str, body: RequestBody) -> Job:
    """Return the work of a request: the rows that the verb answers, its options, an estimate of its tokens."""
    given = body.model_dump(exclude={"model", "timeout_ms"})
    texts, pairs = given.pop("texts", None), given.pop("pairs", None)
    if texts is None:
        choices = dict(zip(CHOICES, given.pop("choices", ()), strict=False))
        roles = VERBS[verb].roles if verb in VERBS else ("text",)
        row = {role: text for role in roles if (text := given.pop(role, None)) is not None} | choices
        tokens = count_tokens(row.values())
        if choices:  # each is read with the question and the context
            tokens = count_tokens(f"{row['context']} {row['question']} {choice}" for choice in choices.values())
        return Job(verb, [row], given, tokens * tokens if verb == "score" else tokens)  # scored once for each token
    if pairs is not None and len(pairs) != len(texts):
        expected, next_step = "as many pairs as texts", "/docs shows every field and an example"
        raise HttpError("LB-954", "pairs is not valid", status=422, expected=expected, next=next_step)
    rows = [{"text": text} for text in texts]
    for row, pair in zip(rows, pairs or (), strict=False):
        row["second"] = pair
    tokens = count_tokens([*texts, *(pairs or ())])
    return Job(verb, rows, given, 100 * tokens if verb == "explain" else tokens)  # explained texts are read often


@dataclass(frozen=True)
class Service:
    """The served models with what they share; the first one answers requests that name none."""

    models: Sequence[ServedModel]
    metrics: Metrics
    options: Options

    def named(self, name: str | None) -> ServedModel:
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

    async def ask(self, request: Request, body: RequestBody, job: Job) -> tuple[ServedModel, str, list[Any]]:
        """Return the model that a body names, its version and its answers, as long as the client waits."""
        model = self.named(body.model)
        verbs = [*model.facts.get("verbs", ()), "steps", "attention", "explain"]
        needed = job.options["verb"] if job.verb == "explain" and job.options["verb"] != "similar" else job.verb
        if model.is_ready and needed not in verbs:
            what, expected = f"this model cannot {needed}: it has no head for that", f"one of {', '.join(verbs)}"
            next_step = "GET /v1/models says what each model can do"
            raise HttpError("LB-956", what, status=422, expected=expected, next=next_step)

        async def left() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        return model, *await model.answer(job, timeout_ms=body.timeout_ms or self.options.timeout_ms, left=left)


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


PAGES = {"/": "index.html", "/docs": "docs.html", "/favicon.ico": "icon.svg"}
SCRIPTS = ("look.css", "api.js", "attention.js", "charts.js", "docs.js", "page.js", "views.js")
PAGES |= {f"/page/{name}": name for name in SCRIPTS}
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
KEY = [Depends(HTTPBearer(auto_error=False))]  # for the documentation; Gate checks the keys
ABOUT = f"""Answers of ALBERT models: the verbs of `litebert`, in the same words.

Limits: bodies of {MAX_BODY_BYTES:,} bytes, {MAX_TEXTS} texts per request, {MAX_CHARACTERS:,}
characters per text. Every error has a stable code, listed in docs/errors.md."""


def create_app(service: Service, api_keys: Sequence[str] = ()) -> Starlette:
    """Return the application; its runner starts and stops the models.

    Starlette runs the routes: a body is read by `Bodies` and validated once. FastAPI only describes them, for
    `/openapi.json`: run by it, each request would pass its middlewares and a second validation.
    """
    bodies, routes, described = Bodies(service.options.client_seconds), list[Address](), list[APIRoute]()

    def get(path: str, answer: Endpoint, **description: Any) -> None:
        routes.append(Address(path, answer, methods=["GET"]))
        described.append(APIRoute(path, answer, methods=["GET"], **description))

    def post(
        path: str,
        answer: Callable[[Request, Any], Awaitable[Response]],
        kind: type[RequestBody],
        result: Any,
        **description: Any,
    ) -> None:
        async def run(request: Request) -> Response:
            return await answer(request, kind.model_validate(await bodies.read(request)))

        def shown(body: Any) -> None: ...

        shown.__annotations__["body"] = Annotated[kind, Body()]
        routes.append(Address(path, run, methods=["POST"]))
        common: dict[str, Any] = {"methods": ["POST"], "response_model": result, "responses": PROBLEMS}
        described.append(APIRoute(path, shown, dependencies=KEY, **common, **description))

    # POST /v1/VERB with a verb's arguments gives its result.
    def add_verb(verb: str, kind: type[RequestBody], result: Any) -> None:
        async def answer(request: Request, body: RequestBody) -> Response:
            model, version, found = await service.ask(request, body, job_of(verb, body))
            plain = [VERBS[verb].plain(each) for each in found] if verb in VERBS else found
            shown = plain if verb in ("embed", "classify", "tag") else plain[0]
            if verb == "order" and isinstance(found[0], answers.Coherence):
                shown = found[0]
            return reply({"model": model.name, "version": version, "result": shown})

        said = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0]
        post(f"/v1/{verb}", answer, kind, Answer[result], name=verb, tags=["verbs"], description=said)

    for verb, route in ROUTES.items():
        add_verb(verb, body_of(verb), route.result)

    # OpenAI's routes, for existing clients

    async def embeddings(request: Request, body: EmbeddingsBody) -> Response:
        rows, tokens = [{"text": text} for text in body.input], count_tokens(body.input)
        model, _, found = await service.ask(request, body, Job("embed", rows, {"normalize": True}, tokens))
        num_tokens = await asyncio.to_thread(model.count_pieces, body.input)
        if body.encoding_format == "base64":
            shown = [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in found]
        else:
            shown = [vector.tolist() for vector in found]
        data = [{"object": "embedding", "index": number, "embedding": each} for number, each in enumerate(shown)]
        usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
        return reply({"object": "list", "model": model.name, "usage": usage, "data": data})

    said = "Turn texts into vectors of length 1."
    post("/v1/embeddings", embeddings, EmbeddingsBody, Embeddings, tags=["OpenAI"], description=said)

    async def models(_: Request) -> Response:
        """List the served models and what each can do."""
        names = ("verbs", "version", "notes", "hidden_size", "num_steps", "num_blocks", "max_tokens")
        common = {"object": "model", "created": 0, "owned_by": "litebert"}
        found = [
            {"id": model.name, **common, "ready": model.is_ready, **{name: model.facts.get(name) for name in names}}
            for model in service.models
        ]
        return reply({"object": "list", "data": found})

    get("/v1/models", models, responses={401: {"model": Problems}}, tags=["OpenAI"], dependencies=KEY)

    # Health

    async def live(_: Request) -> Response:
        """Answer 200 as long as the server runs."""
        return reply({"live": True})

    async def ready(_: Request) -> Response:
        """Answer 200 when every model is loaded and passed its self-test, else 503."""
        states = {model.name: model.is_ready for model in service.models}
        return reply({"ready": states}, 200 if all(states.values()) else 503)

    async def metrics(_: Request) -> Response:
        """Return counters and times for Prometheus."""
        text = generate_latest(service.metrics.registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    get("/live", live, tags=["health"])
    get("/ready", ready, tags=["health"], responses={503: {"description": "A model is loading, or gone."}})
    get("/metrics", metrics, tags=["health"])

    # The playground at /, the documentation at /docs; nothing is loaded from elsewhere.
    async def page(request: Request) -> Response:
        name = PAGES[request.url.path]
        data, kind = (files("litebert.serve") / "page" / name).read_bytes(), _TYPES[name.rpartition(".")[2]]
        return Response(data, media_type=kind, headers={"Cache-Control": "no-cache"})

    @cache
    def schema() -> Mapping[str, Any]:
        about: dict[str, Any] = {"title": "litebert", "version": "1", "description": ABOUT}
        return get_openapi(routes=described, separate_input_output_schemas=False, **about)

    async def openapi(_: Request) -> Response:
        return reply(schema())

    routes += [Address(path, page) for path in PAGES] + [Address("/openapi.json", openapi)]

    # What stands around every route
    paths = {route.path for route in routes}
    gate = Middleware(Gate, paths=paths, metrics=service.metrics, api_keys=api_keys, overload=service.overload)
    around = [gate]
    if origins := service.options.cors_origins:
        may = ["Authorization", "Content-Type"]
        cors = Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=may)
        around = [cors, gate]
    kinds = (HttpError, ValidationError, HTTPException, ClientLeftError, Exception)
    return Starlette(routes=routes, middleware=around, exception_handlers=dict.fromkeys(kinds, _refused))


async def _refused(_: Request, error: Exception) -> Response:
    """Turn what was raised into an answer; async, since starlette gives others a thread, which waits for the model."""
    param: str | None = None
    headers: Mapping[str, str] = {}
    if isinstance(error, ClientLeftError):
        return Response(status_code=499)  # for the metrics; no client receives it
    if isinstance(error, ValidationError):
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


def _invalid(error: ValidationError) -> tuple[HttpError, str | None]:
    """Name the field and what it should be, but never its value or an unknown key."""
    found = error.errors(include_url=False, include_input=False)
    missing = [str(each["loc"][-1]) for each in found if each["type"] == "missing"]
    first = next((each for each in found if each["type"] == "missing"), found[0])
    is_unknown = first["type"] == "extra_forbidden"
    path = [str(part) for part in first["loc"]]
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
