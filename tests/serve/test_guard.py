"""Parts of the server that no client can test separately, and routes that the
contract's tests leave out.
"""

import asyncio
import base64
import shutil
import socket
from functools import partial
from pathlib import Path

import numpy as np
import openai
import pytest
import torch
import uvicorn
from pydantic_core import to_jsonable_python
from safetensors.torch import load_file, save_file
from starlette.requests import Request
from uvicorn.server import ServerState

import litebert
from litebert.errors import DamagedError, LitebertError
from litebert.inference.verb import Verb
from litebert.plugins import VERBS
from litebert.serve import Options, guard, serve
from litebert.serve.app import Service, create_app
from litebert.serve.batching import Job, answer_together, load
from litebert.serve.guard import Bodies, HttpError
from litebert.serve.server import _listen
from tests.contract.golden import near
from tests.contract.served import JSON


def test_a_body_that_arrives_too_slowly_is_refused_and_its_bytes_are_released() -> None:
    async def drip() -> dict[str, object]:
        await asyncio.sleep(0.05)
        return {"type": "http.request", "body": b" ", "more_body": True}

    bodies = Bodies(0.5)
    scope = {
        "type": "http",
        "method": "POST",
        "headers": [(b"content-type", b"application/json")],
    }
    # and at once if the server holds as much as it may
    for held, code in {0: "LB-963", 64 << 20: "LB-966"}.items():
        bodies.held = held
        with pytest.raises(HttpError, match=code):
            asyncio.run(bodies.read(Request(scope, drip)))
        assert bodies.held == held


def test_a_connection_beyond_the_limit_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "MAX_CONNECTIONS", 1)

    async def connect() -> None:
        config = uvicorn.Config(asyncio.Future)
        state = ServerState()
        config.load()
        made = partial(guard.PatientConnection, config, state, {})
        loop = asyncio.get_running_loop()
        async with await loop.create_server(made, "127.0.0.1", 0) as listener:
            address = listener.sockets[0].getsockname()
            _, first = await asyncio.open_connection(*address)
            reader, second = await asyncio.open_connection(*address)
            assert await reader.read() == b""  # the second one is closed at once
            assert len(state.connections) == 1
            first.close()
            second.close()

    asyncio.run(connect())


async def answer_and_read(read_every: float | None) -> int:
    """Answer a client with 16 MiB; it reads 1 MiB at a time, or nothing (None). Return
    the number of bytes that it got.
    """
    body = bytes(16 << 20)

    async def app(scope: object, receive: object, send: object) -> None:
        length = str(len(body)).encode()
        headers = [(b"content-length", length)]
        start = {"type": "http.response.start", "status": 200, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(app, lifespan="off")
    config.load()
    state = ServerState()
    made = partial(guard.PatientConnection, config, state, {})
    loop = asyncio.get_running_loop()
    async with await loop.create_server(made, "127.0.0.1", 0) as listener:
        address = listener.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(*address, limit=1 << 16)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        num_read = 0
        while state.connections or not num_read:
            if read_every is None:
                num_read = 1
                await asyncio.sleep(0.05)
            else:
                num_read += len(await reader.read(1 << 20))
                await asyncio.sleep(read_every)
                if num_read > len(body):
                    break
        writer.close()
    return num_read


def test_a_client_that_does_not_read_its_answer_is_closed_and_a_slow_one_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard.PatientConnection, "header_seconds", 0.5)
    assert asyncio.run(asyncio.wait_for(answer_and_read(None), 60)) == 1
    assert asyncio.run(asyncio.wait_for(answer_and_read(0.01), 60)) > 16 << 20


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_headers() -> None:
    """asyncio turns Nagle's algorithm off only if the protocol of the listener is
    given.
    """
    with _listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_a_model_has_the_name_that_is_given_or_that_of_its_run_or_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = dict[str, str]()
    monkeypatch.setattr(
        "litebert.serve.server.serve", lambda named, _: served.update(named)
    )
    paths = {
        "sst2": "runs/sst2/model",
        "mine": "models/mine",
        "model": "/model",
        "x=1": "runs/x=1",
        "en": "models/a",
    }
    serve(*list(paths.values())[:-1], "en=models/a", options=Options())
    assert served == paths
    with pytest.raises(LitebertError, match="LB-950"):
        serve("runs/a/model", "runs/a/best", options=Options())


WHO = {
    "question": "Who?",
    "context": "Anna left.",
    "choice1": "Anna",
    "choice2": "Bert",
}
ROWS = {  # for each verb, of several shapes
    "order": (
        [
            {"first": "Anna left.", "second": "Bert came."},
            {"first": "It rained. Anna left."},
        ]
        * 2
    ),
    "choose": [
        WHO,
        WHO,
        {"question": "What?", "choice1": "a", "choice2": "b", "choice3": "c"},
    ],
    "answer": [
        {"question": "Who?", "context": "Anna left the house. " * 20},
        {"question": "a", "context": "b"},
    ],
    "classify": (
        [{"text": "Anna left."}, {"text": "Anna left.", "second": "Bert came."}] * 2
    ),
}


@pytest.mark.parametrize("verb", ROWS)
def test_requests_of_a_verb_share_passes_and_equal_single_ones(
    folders: dict[str, Path], verb: str
) -> None:
    rows = ROWS[verb]
    model = litebert.load(folders["base" if verb == "order" else verb])
    passes = list[int]()
    model.network.albert.register_forward_hook(lambda *arguments: passes.append(1))
    together = VERBS[verb].answer(model, rows)
    shared = len(passes)
    alone = [VERBS[verb].answer(model, [row])[0] for row in rows]
    assert shared < len(passes) - shared
    for one, other in zip(together, alone, strict=True):
        assert to_jsonable_python(one) == near(to_jsonable_python(other), 1e-5)
    if verb == "answer":  # a request that makes the model fail costs only itself
        jobs = [Job(verb, [row], {}, 1, None) for row in (rows[0], {})]
        assert [
            getattr(outcome, "status", 200) for outcome in answer_together(model, jobs)
        ] == [200, 500]


def test_a_verb_that_fails_after_its_first_answer_costs_only_its_request(
    folders: dict[str, Path],
) -> None:
    """The thread of a model must not end: nothing else answers its requests."""

    def shout(model, texts):
        for text in texts:
            if text == "mumble":
                raise ValueError("nothing to shout")
            if text != "skip":
                yield text.upper()

    VERBS.add(
        "shout",
        Verb("shout", shout, "say it loud", str, example={"texts": ["It rains."]}),
    )
    model = litebert.load(folders["base"])
    for bad in ("mumble", "skip"):
        rows = [{"text": "hello"}, {"text": bad}]
        jobs = [Job("shout", [row], {}, 1, None) for row in rows]
        first, second = answer_together(model, jobs)
        assert first == ["HELLO"]
        assert isinstance(second, HttpError) and second.status == 500


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_model_that_gives_all_texts_one_vector_is_not_served(
    folders, tmp_path: Path, value: float
) -> None:
    folder = shutil.copytree(folders["base"], tmp_path / "model")
    assert load(str(folder), Options())
    weights = load_file(folder / "model.safetensors")
    of_encoder = {
        name: torch.full_like(tensor, value)
        for name, tensor in weights.items()
        if name[:7] == "albert."
    }
    save_file(weights | of_encoder, folder / "model.safetensors")
    with pytest.raises(DamagedError, match="LB-967"):
        load(str(folder), Options())


# ---- routes --------------------------------------------------------------------------

TEXTS = ["Anna found a red ball.", "At night the river was quiet again.", "No"]


def test_openai_clients_work_unchanged(server, folders: dict[str, Path]) -> None:
    with openai.OpenAI(
        base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none"
    ) as client:
        assert [model.id for model in client.models.list()] == list(folders)
        packed = client.embeddings.create(model="base", input=TEXTS * 100)
        plain = client.embeddings.create(
            model="base", input=TEXTS[0], encoding_format="float"
        )
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="nobody", input="a")
    assert [vector.index for vector in packed.data] == list(
        range(300)
    ) and packed.version == plain.version
    assert packed.usage.prompt_tokens == packed.usage.total_tokens > 600
    assert packed.data[297].embedding == pytest.approx(
        plain.data[0].embedding, abs=1e-6
    )
    ours = server.ask("/v1/embed", {"texts": TEXTS}).json["result"][0]
    length = sum(x * x for x in ours) ** 0.5
    assert plain.data[0].embedding == pytest.approx(
        [x / length for x in ours], abs=1e-6
    )


# what clients of OpenAI's route put next to model and input
CLIENT_FIELDS = {
    "null": {"encoding_format": None, "dimensions": None, "user": None},
    "of the user": {"user": "someone " * 100, "encoding_format": "float"},
    "of other services": {"input_type": "query", "truncate": "END", "timeout": 600},
    "nested": {"metadata": {"a": [1, 2]}, "extra_body": {}, "extra_headers": None},
}


@pytest.mark.parametrize("fields", CLIENT_FIELDS.values(), ids=CLIENT_FIELDS)
def test_fields_that_clients_add_do_not_change_vectors(
    server, fields: dict[str, object]
) -> None:
    body = {"model": "base", "input": TEXTS}
    plain = server.ask("/v1/embeddings", body)
    extended = server.ask("/v1/embeddings", body | fields)
    assert (plain.status, extended.status) == (200, 200), extended.body
    assert extended.json == plain.json


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_a_client_gets_as_many_dimensions_as_it_wants(server, encoding: str) -> None:
    with openai.OpenAI(
        base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none"
    ) as client:
        ask = partial(client.embeddings.create, model="base", encoding_format=encoding)
        whole = ask(input=TEXTS)
        width = len(vectors_of(whole)[0])
        assert vectors_of(ask(input=TEXTS, dimensions=width)) == vectors_of(whole)
        for dimensions in (1, 3, width - 1):
            shortened = vectors_of(ask(input=TEXTS, dimensions=dimensions))
            for vector, longer in zip(shortened, vectors_of(whole), strict=True):
                first = np.array(longer[:dimensions])
                assert vector == pytest.approx(first / np.linalg.norm(first), abs=1e-6)
        with pytest.raises(openai.UnprocessableEntityError, match=f"at most {width}"):
            ask(input=TEXTS, dimensions=width + 1)


def vectors_of(reply: openai.types.CreateEmbeddingResponse) -> list[list[float]]:
    """Return the vectors in a reply, decoded from base64 if need be."""
    vectors = []
    for entry in reply.data:
        vector = entry.embedding
        if isinstance(vector, str):
            vector = np.frombuffer(base64.b64decode(vector), "<f4").tolist()
        vectors.append(vector)
    return vectors


def test_a_model_in_bf16_has_a_note_on_its_distance_from_fp32(
    folders: dict[str, Path],
) -> None:
    assert load(str(folders["base"]), Options()).facts["notes"] == []
    (note,) = load(str(folders["base"]), Options(precision="bf16")).facts["notes"]
    assert 0 < float(note.rpartition(" ")[2].removesuffix("%")) < 3


@pytest.mark.parametrize(
    ("host", "is_site"),
    [
        ("a.org", True),
        ("a.org:8000", True),
        ("127.0.0.1.a.org", True),
        ("localhost.a.org.", True),
        ("[::1.a", True),
        ("127.0.0.1:8000", False),
        ("[::ffff:127.0.0.1]:80", False),
        ("192.168.1.2", False),
        ("LOCALHOST:8000", False),
        ("a.localhost.", False),
        ("litebert", False),
        ("", False),
    ],
)
def test_a_name_with_a_dot_is_that_of_a_site(host: str, is_site: bool) -> None:
    assert guard.is_name_of_a_site(host) == is_site


def test_a_server_of_its_own_machine_refuses_requests_to_the_name_of_a_site(
    server, small_server
) -> None:
    """A page whose name leads to 127.0.0.1 would read the answers as its own."""
    other_site = {**JSON, "Host": f"a.org:{server.port}"}
    for path, body in [("/", None), ("/v1/models", None), ("/v1/fill", {})]:
        refused = server.ask(path, body, headers=other_site)
        assert (refused.status, refused.code) == (421, "LB-978")
    same_machine = {**JSON, "Host": f"localhost:{server.port}"}
    assert server.ask("/v1/models", headers=same_machine).status == 200
    with_key = {**other_site, "Authorization": f"Bearer {small_server.key}"}
    assert small_server.ask("/v1/models", headers=with_key).status == 200


@pytest.mark.parametrize(
    ("options", "is_answered"),
    [
        (Options(), False),
        (Options(host="localhost"), False),
        (Options(host="::1"), False),
        (Options(cors_origins=("https://b.org",)), False),
        (Options(cors_origins=("https://a.org:444",)), True),
        (Options(cors_origins=("*",)), True),
        (Options(host="0.0.0.0"), True),
    ],
)
def test_a_server_that_others_may_use_answers_to_its_name(
    options: Options, is_answered: bool
) -> None:
    app = create_app(Service([], guard.Metrics(), options))
    status = 0

    async def receive() -> dict:
        return {"type": "http.request", "body": b""}

    async def send(message: dict) -> None:
        nonlocal status
        status = message.get("status", status)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/live",
        "headers": [(b"host", b"a.org")],
    }
    asyncio.run(app(scope, receive, send))
    assert status == (200 if is_answered else 421)
