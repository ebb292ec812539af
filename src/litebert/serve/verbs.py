"""Our own routes: POST /v1/VERB with a verb's arguments gives its result."""

from __future__ import annotations

import base64
from array import array
from functools import partial
from typing import Annotated, cast

from fastapi import APIRouter, Body, Depends, Request, Response
from fastapi.security import HTTPBearer

from litebert import answers
from litebert.files import Json
from litebert.serve import schemas
from litebert.serve.models import Models
from litebert.serve.queueing import Job, count_tokens
from litebert.serve.refusals import HttpError
from litebert.serve.served import ServedModel
from litebert.serve.strict_json import encode
from litebert.serve.strict_route import StrictRoute

PROBLEMS = {
    status: {"model": schemas.ProblemOut, "description": text}
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
"""The errors of every route that takes a body."""

_OF_EVERY_MODEL = ("steps", "attention", "explain")

router = APIRouter(
    prefix="/v1",
    route_class=StrictRoute,
    tags=["verbs"],
    responses=PROBLEMS,  # type: ignore[arg-type]
    dependencies=[Depends(HTTPBearer(auto_error=False))],  # for the documentation; Gate checks
)


@router.post("/fill", response_model=schemas.Answer[list[answers.Filling]])
async def fill(request: Request, body: Annotated[schemas.FillBody, Body()]) -> Response:
    """Fill every [MASK] of a text, best first."""
    return await _answered(request, "fill", body)


@router.post("/order", response_model=schemas.Answer[answers.Order | answers.Coherence])
async def order(request: Request, body: Annotated[schemas.OrderBody, Body()]) -> Response:
    """Say whether the first sentence comes before the second; given one text, where it breaks."""
    return await _answered(request, "order", body)


@router.post("/score", response_model=schemas.Answer[answers.Score])
async def score(request: Request, body: Annotated[schemas.ScoreBody, Body()]) -> Response:
    """Say how likely a text and each of its words are."""
    return await _answered(request, "score", body)


@router.post("/embed", response_model=schemas.Answer[list[list[float]]])
async def embed(request: Request, body: Annotated[schemas.EmbedBody, Body()]) -> Response:
    """Turn each text into a vector."""
    return await _answered(request, "embed", body)


@router.post("/classify", response_model=schemas.Answer[list[answers.Classification]])
async def classify(request: Request, body: Annotated[schemas.ClassifyBody, Body()]) -> Response:
    """Say which label each text has."""
    return await _answered(request, "classify", body)


@router.post("/tag", response_model=schemas.Answer[list[list[answers.Tagged]]])
async def tag(request: Request, body: Annotated[schemas.TagBody, Body()]) -> Response:
    """Tag every word of each text."""
    return await _answered(request, "tag", body)


@router.post("/choose", response_model=schemas.Answer[answers.Choice])
async def choose(request: Request, body: Annotated[schemas.ChooseBody, Body()]) -> Response:
    """Choose the answer to a question."""
    return await _answered(request, "choose", body)


@router.post("/answer", response_model=schemas.Answer[list[answers.SpanFound]])
async def answer(request: Request, body: Annotated[schemas.AnswerBody, Body()]) -> Response:
    """Answer a question with spans of a context, best first."""
    return await _answered(request, "answer", body)


@router.post("/steps", response_model=schemas.Answer[schemas.StepsOut])
async def steps(request: Request, body: Annotated[schemas.StepsBody, Body()]) -> Response:
    """Show how the hidden states of a text move from step to step."""
    return await _answered(request, "steps", body)


@router.post("/attention", response_model=schemas.Answer[schemas.AttentionOut])
async def attention(request: Request, body: Annotated[schemas.AttentionBody, Body()]) -> Response:
    """Show what each head attends to in one step."""
    return await _answered(request, "attention", body)


@router.post("/explain", response_model=schemas.Answer[answers.Explanation])
async def explain(request: Request, body: Annotated[schemas.ExplainBody, Body()]) -> Response:
    """Say how much each word of the texts adds to the score of an answer."""
    model = cast(Models, request.app.state.models).named(body.model)
    _require_verb(model, "embed" if body.verb == "similar" else body.verb)
    return await _answered(request, "explain", body)


async def _answered(request: Request, verb: str, body: schemas.Body) -> Response:
    model = cast(Models, request.app.state.models).named(body.model)
    found = await ask(
        request,
        model,
        verb,
        cast(dict[str, Json], body.arguments),
        tokens=count_tokens(body.texts_read),
        timeout_ms=body.timeout_ms,
    )
    if verb == "embed":
        found["result"] = [floats(row) for row in rows_of(found)]
    return Response(encode({"model": model.name, **found}), media_type="application/json")


async def ask(
    request: Request, model: ServedModel, verb: str, arguments: dict[str, Json], *, tokens: int, timeout_ms: int | None
) -> dict[str, Json]:
    """Queue a verb for a model and wait for the answer, as long as the client does."""
    _require_verb(model, verb)
    job = Job(verb, arguments, tokens)
    default = request.app.state.settings.timeout_ms
    found = await model.answer(job, timeout_ms=timeout_ms or default, left=partial(_departure, request))
    return cast(dict[str, Json], found)


def _require_verb(model: ServedModel, verb: str) -> None:
    verbs = [*cast(list[str], model.facts.get("verbs", [])), *_OF_EVERY_MODEL]
    if model.is_ready and verb not in verbs:
        raise HttpError(
            "LB-956",
            f"this model cannot {verb}: it has no head for that",
            status=422,
            expected=f"one of {', '.join(verbs)}",
            next="GET /v1/models says what each model can do",
        )


def rows_of(found: dict[str, Json]) -> list[dict[str, Json]]:
    """Return the embeddings as the model process sent them."""
    return cast(list[dict[str, Json]], found["result"])


def floats(row: dict[str, Json]) -> list[Json]:
    """Return the numbers of one embedding."""
    vector = array("f", base64.b64decode(str(row["vector"])))
    return cast(list[Json], vector.tolist())


async def _departure(request: Request) -> None:
    """Wait until the client hangs up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
