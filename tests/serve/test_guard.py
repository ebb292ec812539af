"""The parts of the server that no client can reach one by one: slow bodies, the queue, the self-test."""

import asyncio
import json
import socket
from pathlib import Path

import pytest
import torch
from pydantic_core import to_jsonable_python
from starlette.requests import Request

import litebert
from litebert.errors import DamagedError
from litebert.inference.verbs import VERBS
from litebert.serve import Options
from litebert.serve.batching import Job, ServedModel, self_test
from litebert.serve.guard import Bodies, HttpError, Metrics, decode, reply
from litebert.serve.server import _listen
from tests.contract.golden import near


@pytest.mark.parametrize("value", [{"a": [1, -2.5e10, True, None, "é 漢 😀"]}, '\\"{[', [[[[]]]], 10**300])
def test_json_is_read_as_it_was_written(value: object) -> None:
    assert decode(json.dumps(value).encode()) == value
    assert decode(bytes(reply(value).body)) == value


def test_a_dripping_client_is_given_up_and_its_bytes_are_let_go() -> None:
    async def drip() -> dict[str, object]:
        await asyncio.sleep(0.05)
        return {"type": "http.request", "body": b" ", "more_body": True}

    bodies, scope = Bodies(0.5), {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
    with pytest.raises(HttpError, match="LB-963"):
        asyncio.run(bodies.read(Request(scope, drip)))
    assert bodies.held == 0


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_headers() -> None:
    """asyncio turns Nagle's algorithm off where the protocol of the listener is named."""
    with _listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_jobs_are_computed_together_within_the_budget_and_a_full_queue_refuses(folders: dict[str, Path]) -> None:
    async def run() -> tuple[list[int], HttpError]:
        model = ServedModel("m", str(folders["base"]), Options(queue=3, batch_tokens=500), Metrics())
        seen: list[int] = []
        model._compute = lambda jobs: seen.extend([len(jobs)])
        jobs = [Job("embed", [{"text": "a"}], {}, tokens) for tokens in (300, 100, 200)]
        for job in jobs:
            model.put(job)
        with pytest.raises(HttpError, match="LB-957") as caught:
            model.put(jobs[0])
        model._is_stopping = True
        model.work()
        return seen, caught.value

    seen, refusal = asyncio.run(run())
    assert seen == [2, 1]
    assert (refusal.status, refusal.retry_after) == (429, 1)


WHO = {"question": "Who?", "context": "Anna left.", "choice1": "Anna", "choice2": "Bert"}
ROWS = {  # for each verb, of several shapes
    "order": [{"first": "Anna left.", "second": "Bert came."}, {"first": "It rained. Anna left."}] * 2,
    "choose": [WHO, WHO, {"question": "What?", "choice1": "a", "choice2": "b", "choice3": "c"}],
    "answer": [{"question": "Who?", "context": "Anna left the house. " * 20}, {"question": "a", "context": "b"}],
    "classify": [{"text": "Anna left."}, {"text": "Anna left.", "second": "Bert came."}] * 2,
}


@pytest.mark.parametrize("verb", ROWS)
def test_requests_of_a_verb_share_passes_and_are_answered_as_alone(folders: dict[str, Path], verb: str) -> None:
    rows, model, passes = ROWS[verb], litebert.load(folders["base" if verb == "order" else verb]), list[int]()
    model.network.albert.embedding.register_forward_hook(lambda *given: passes.append(1))
    together, shared = VERBS[verb].answer(model, rows), len(passes)
    alone = [VERBS[verb].answer(model, [row])[0] for row in rows]
    assert shared < len(passes) - shared
    for one, other in zip(together, alone, strict=True):
        assert to_jsonable_python(one) == near(to_jsonable_python(other), 1e-5)


def test_a_sound_model_passes_its_self_test(folders: dict[str, Path]) -> None:
    for folder in folders.values():
        self_test(litebert.load(folder))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_model_to_which_all_texts_are_alike_does_not_pass(folders: dict[str, Path], value: float) -> None:
    model = litebert.load(folders["base"])
    with torch.no_grad():
        for parameter in model.network.albert.parameters():
            parameter.fill_(value)
    with pytest.raises(DamagedError, match="LB-967"):
        self_test(model)
