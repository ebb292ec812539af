"""The pages: the playground at /, the documentation at /docs; nothing is loaded from elsewhere."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, Response

router = APIRouter(include_in_schema=False)
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_NAMES = {
    "/": "index.html",
    "/docs": "docs.html",
    **{
        f"/page/{name}": name
        for name in ("look.css", "api.js", "attention.js", "charts.js", "docs.js", "page.js", "views.js")
    },
    "/favicon.ico": "icon.svg",
}


def page(address: str) -> Response:
    """Return the file behind an address."""
    name = _NAMES[address]
    data = (files("litebert.serve") / "page" / name).read_bytes()
    kind = _TYPES[name.rpartition(".")[2]]
    return Response(data, media_type=kind, headers={"Cache-Control": "no-cache"})


def _add(address: str) -> None:
    async def give() -> Response:
        return page(address)

    router.add_api_route(address, give, methods=["GET"])


for _address in _NAMES:
    _add(_address)
