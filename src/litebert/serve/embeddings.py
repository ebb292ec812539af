"""OpenAI's routes, for existing clients: /v1/embeddings and /v1/models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, cast

from fastapi import APIRouter, Body, Depends, Request, Response
from fastapi.security import HTTPBearer

from litebert.files import Json
from litebert.serve import schemas
from litebert.serve.models import Models
from litebert.serve.queueing import count_tokens
from litebert.serve.strict_json import encode
from litebert.serve.strict_route import StrictRoute
from litebert.serve.verbs import PROBLEMS, ask, floats, rows_of

_FACTS = ("verbs", "version", "notes", "hidden_size", "num_steps", "num_blocks", "max_tokens")

ROWS_AT_ONCE = 64
"""Vectors that are encoded before the server looks at other requests: some 15 ms."""

router = APIRouter(
    prefix="/v1", route_class=StrictRoute, tags=["OpenAI"], dependencies=[Depends(HTTPBearer(auto_error=False))]
)


@router.post("/embeddings", response_model=schemas.EmbeddingsOut, responses=PROBLEMS)  # type: ignore[arg-type]
async def embeddings(request: Request, body: Annotated[schemas.EmbeddingsBody, Body()]) -> Response:
    """Turn texts into vectors of length 1."""
    model = cast(Models, request.app.state.models).named(body.model)
    found = await ask(
        request,
        model,
        "embed",
        {"texts": cast(list[Json], body.input), "normalize": True, "has_usage": True},
        tokens=count_tokens(body.input),
        timeout_ms=body.timeout_ms,
    )
    rows = rows_of(found)
    tokens = sum(cast(int, row["tokens"]) for row in rows)
    usage: Json = {"prompt_tokens": tokens, "total_tokens": tokens}
    answer = encode({"object": "list", "model": model.name, "usage": usage})
    data = b",".join([part async for part in _encoded(rows, body.encoding_format)])
    return Response(answer[:-1] + b',"data":[' + data + b"]}", media_type="application/json")


@router.get("/models", responses={401: {"model": schemas.ProblemOut}})
async def models(request: Request) -> Response:
    """List the served models and what each can do."""
    found: list[Json] = [
        {
            "id": model.name,
            "object": "model",
            "created": 0,
            "owned_by": "litebert",
            "ready": model.is_ready,
            **{name: model.facts.get(name) for name in _FACTS},
        }
        for model in cast(Models, request.app.state.models).all
    ]
    return Response(encode({"object": "list", "data": found}), media_type="application/json")


async def _encoded(rows: list[dict[str, Json]], encoding: str) -> AsyncIterator[bytes]:
    """Encode the vectors one by one; other requests get their turn in between."""
    for number, row in enumerate(rows):
        vector = _written(row, encoding)
        yield encode({"object": "embedding", "index": number, "embedding": vector})
        if number % ROWS_AT_ONCE == ROWS_AT_ONCE - 1:
            await asyncio.sleep(0)


def _written(row: dict[str, Json], encoding: str) -> Json:
    """Return a vector in the client's encoding; base64 is what the model process sent."""
    return row["vector"] if encoding == "base64" else floats(row)
