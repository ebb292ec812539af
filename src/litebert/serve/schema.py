"""The description of the HTTP interface: /openapi.json."""

import inspect
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from litebert.serve import guard as limits
from litebert.serve.routes import Route

Mode: TypeAlias = Literal["validation", "serialization"]
Kind: TypeAlias = tuple[str, Mode, TypeAdapter[Any]]
Schemas: TypeAlias = Mapping[tuple[str, Mode], Any]
ABOUT = f"""Answers of ALBERT models: the verbs of `litebert`, with the same names.

Limits: bodies of {limits.MAX_BODY_BYTES:,} bytes, {limits.MAX_TEXTS} texts per request, {limits.MAX_CHARACTERS:,}
characters per text. Every error has a stable code, listed in docs/errors.md."""  # noqa: E501
_PROBLEM = "problem"  # the name of the schema of errors
_REFUSED = "Refused; the message says why, and docs/errors.md lists the stable code."


class Problem(TypedDict):
    """What is wrong, what is expected, what to do; `code` is stable
    (docs/errors.md).
    """

    message: str
    type: str
    param: str | None
    code: str


def openapi(posts: Mapping[str, Route], gets: Mapping[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI document of routes with a body, and of routes without: bodies
    and answers from their types, descriptions from the starts of docstrings.
    """
    kinds = list[Kind]()
    for path, route in posts.items():
        kinds.append((path, "validation", TypeAdapter(route.body)))
    for path, route in posts.items():
        kinds.append((path, "serialization", TypeAdapter(route.answer)))
    error = TypeAdapter(dict[Literal["error"], Problem])
    kinds.append((_PROBLEM, "serialization", error))
    schemas, shared = TypeAdapter.json_schemas(
        kinds, ref_template="#/components/schemas/{model}"
    )
    paths = dict[str, Any]()
    for path, route in posts.items():
        paths[path] = {"post": _post(path, route.body, schemas)}
    for path, answer in gets.items():
        paths[path] = {"get": _get(answer)}
    paths["/ready"]["get"]["responses"]["503"] = {
        "description": "A model is loading or not available."
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "litebert", "version": "1", "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": shared["$defs"],
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _post(path: str, body: type, schemas: Schemas) -> dict[str, Any]:
    """Describe a route with a body."""
    about = inspect.cleandoc(body.__doc__ or "").partition("\n\n")[0]
    request = _content("Strict JSON in UTF-8.", schemas[path, "validation"])
    return {
        "operationId": path.rpartition("/")[2],
        "description": about,
        "security": [{"key": []}],
        "requestBody": {**request, "required": True},
        "responses": {
            "200": _content("The answer.", schemas[path, "serialization"]),
            "default": _content(_REFUSED, schemas[_PROBLEM, "serialization"]),
        },
    }


def _get(answer: Any) -> dict[str, Any]:
    """Describe a route without a body."""
    return {
        "description": inspect.getdoc(answer),
        "responses": {"200": {"description": "The answer."}},
    }


def _content(about: str, schema: Any) -> dict[str, Any]:
    return {
        "description": about,
        "content": {"application/json": {"schema": schema}},
    }
