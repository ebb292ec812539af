"""Routes that read their body themselves: bounded in size and time, strict JSON."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, cast

from fastapi import Request, Response
from fastapi.routing import APIRoute

from litebert.files import Json
from litebert.serve import strict_json
from litebert.serve.bodies import Bodies
from litebert.serve.refusals import HttpError


class ReadRequest(Request):
    """A request whose body has been read and decoded."""

    _decoded: Json = None

    async def json(self) -> Json:
        """Return the decoded body."""
        return self._decoded


class StrictRoute(APIRoute):
    """A route whose JSON body is read by `Bodies` and `strict_json`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Read and decode the body, then let FastAPI validate it."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def read_first(request: Request) -> Response:
            _require_json(request)
            body = await cast(Bodies, request.app.state.bodies).read(request)
            read = ReadRequest(request.scope, request.receive)
            read._body, read._decoded = body, strict_json.decode(body)
            return await handle(read)

        return read_first


def _require_json(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if kind == "application/json" and encoding == "identity":
        return
    raise HttpError(
        "LB-953",
        "the body is not plain JSON",
        status=415,
        expected="Content-Type: application/json, and no Content-Encoding",
        next="send the body uncompressed, with that header",
    )
