"""Routes for operators: /live, /ready and Prometheus's /metrics."""

from __future__ import annotations

from typing import cast

from fastapi import APIRouter, Request, Response

from litebert.files import Json
from litebert.serve.metrics import Metrics
from litebert.serve.models import Models
from litebert.serve.strict_json import encode

router = APIRouter(tags=["health"])


@router.get("/live")
async def live() -> Response:
    """Answer 200 as long as the server runs."""
    return Response(encode({"live": True}), media_type="application/json")


@router.get("/ready", responses={503: {"description": "A model is loading, or gone."}})
async def ready(request: Request) -> Response:
    """Answer 200 when every model is loaded and passed its self-test, else 503."""
    models = cast(Models, request.app.state.models)
    states: dict[str, Json] = {model.name: model.is_ready for model in models.all}
    status = 200 if models.are_ready else 503
    return Response(encode({"ready": states}), status, media_type="application/json")


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Return counters and times for Prometheus."""
    text = cast(Metrics, request.app.state.metrics).text()
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
