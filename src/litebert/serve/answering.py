"""Answer a batch of requests in the model process; compatible ones are computed together."""

from __future__ import annotations

import base64
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TypeAlias, cast

import numpy as np

from litebert.errors import LitebertError
from litebert.files import Json
from litebert.folder import Pooling
from litebert.inference import Model
from litebert.serve.inside import attention, steps
from litebert.serve.limits import MAX_SCORED_TOKENS

Arguments: TypeAlias = dict[str, Json]
log = logging.getLogger("litebert.serve")


@dataclass(frozen=True)
class VerbRequest:
    """A verb of `Model` with its arguments, as received."""

    verb: str
    arguments: Arguments

    @property
    def text(self) -> str:
        """The text of a verb that takes one."""
        return str(self.arguments["text"])

    @property
    def texts(self) -> list[str]:
        """The texts of a verb that takes several."""
        return cast(list[str], self.arguments["texts"])

    @property
    def group(self) -> str | None:
        """The key of requests that can be computed together; None for one that must be alone."""
        if self.verb not in ("embed", "classify", "tag"):
            return None
        others = {name: value for name, value in self.arguments.items() if name != "texts"}
        if others.get("pairs") is not None:
            others["pairs"] = "given"
        return f"{self.verb} {sorted(others.items())}"


def answer_all(model: Model, requests: Sequence[VerbRequest]) -> list[Json]:
    """Answer each request with {"result": ...} or {"error": ...}, in order."""
    answers: list[Json] = [None] * len(requests)
    for numbers in _groups(requests):
        group = [requests[number] for number in numbers]
        for number, found in zip(numbers, _answer_group(model, group), strict=True):
            answers[number] = found
    return answers


def _groups(requests: Sequence[VerbRequest]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for number, request in enumerate(requests):
        groups.setdefault(request.group or f"alone {number}", []).append(number)
    return list(groups.values())


def _answer_group(model: Model, group: Sequence[VerbRequest]) -> list[Json]:
    if len(group) == 1:
        return [_answer_one(model, group[0])]
    try:
        together = _call(model, _joined(group))
    except LitebertError:  # answer one by one, so that only the faulty request gets the error
        return [_answer_one(model, request) for request in group]
    assert isinstance(together, list)
    bounds = np.cumsum([0, *(len(request.texts) for request in group)]).tolist()
    return [{"result": together[a:b]} for a, b in pairwise(bounds)]


def _answer_one(model: Model, request: VerbRequest) -> Json:
    try:
        return {"result": _call(model, request)}
    except LitebertError as error:
        shown = {"code": error.code, "what": error.what, "next": error.next}
        return {"error": {**shown, "expected": error.expected}}
    except Exception:
        log.exception("%s failed", request.verb)
        return {"error": None}


def _joined(group: Sequence[VerbRequest]) -> VerbRequest:
    arguments = dict(group[0].arguments)
    for name in ("texts", "pairs"):
        if arguments.get(name) is not None:
            lists = [cast(list[str], request.arguments[name]) for request in group]
            arguments[name] = [text for texts in lists for text in texts]
    return VerbRequest(group[0].verb, arguments)


def _call(model: Model, request: VerbRequest) -> Json:
    """Call the verb; its arguments have the names and types of the method's."""
    if request.verb == "embed":
        return _embeddings(model, request)
    if request.verb == "steps":
        return steps(model, request.text)
    if request.verb == "attention":
        return attention(model, request.text, step=cast(int, request.arguments["step"]))
    if request.verb == "score":
        _require_short(model, [request.text])
    if request.verb == "explain":
        _require_short(model, request.texts)
        verb, answer = (cast(str, request.arguments[name]) for name in ("verb", "answer"))
        return _plain(model.explain(verb, *request.texts, answer=answer))
    return _plain(getattr(model, request.verb)(**request.arguments))


def _require_short(model: Model, texts: list[str]) -> None:
    num_tokens = sum(map(len, model.tokenizer.encode_ids(texts)))
    if num_tokens > MAX_SCORED_TOKENS:
        raise LitebertError(
            "LB-973",
            "the text is too long to be scored or explained by a server",
            received=f"{num_tokens} tokens",
            expected=f"at most {MAX_SCORED_TOKENS} tokens",
            next="send its sentences one by one, or use litebert score and litebert explain",
        )


def _embeddings(model: Model, request: VerbRequest) -> Json:
    """Return each vector as base64 of little-endian float32, with its token count if asked."""
    vectors = model.embed(
        request.texts,
        pooling=cast(Pooling | None, request.arguments.get("pooling")),
        normalize=cast(bool | None, request.arguments.get("normalize")),
    )
    rows: list[Json] = [{"vector": base64.b64encode(row.tobytes()).decode("ascii")} for row in vectors.astype("<f4")]
    if request.arguments.get("has_usage"):
        longest = model.network.config.max_position_embeddings
        for row, ids in zip(rows, model.tokenizer.encode_ids(request.texts), strict=True):
            cast(dict[str, Json], row)["tokens"] = min(len(ids) + 2, longest)
    return rows


def _plain(found: object) -> Json:
    """Return result records, and lists of them, as JSON."""
    if isinstance(found, list | tuple):
        return [_plain(item) for item in found]
    return cast(Json, asdict(found))  # type: ignore[call-overload]
