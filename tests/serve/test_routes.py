"""Every route gives what the verb of the same name gives; limits and errors are as documented."""

import base64
from array import array
from dataclasses import asdict
from functools import partial
from pathlib import Path

import openai
import pytest
import torch

import litebert
from litebert import answers
from litebert.nn import Batch
from litebert.serve.app import RESULTS, Answer, Attention
from litebert.serve.guard import MAX_BODY_BYTES, MAX_CHARACTERS, MAX_TEXTS
from litebert.serve.inside import attention

TEXTS = ["Anna found a red ball.", "At night the river was quiet again.", "No"]
CALLS = {
    "base": [
        ("fill", {"text": "Anna walked to the [MASK] with [MASK].", "top": 3}),
        ("order", {"first": "Anna left.", "second": "Then Anna came back."}),
        ("order", {"first": "Anna left. Then Anna came back. It was night."}),
        ("score", {"text": "Anna left."}),
        ("embed", {"texts": TEXTS, "pooling": "cls"}),
    ],
    "classify": [
        ("classify", {"texts": TEXTS}),
        ("explain", {"verb": "classify", "texts": TEXTS[:1], "answer": "yes"}),
        ("classify", {"texts": TEXTS, "pairs": ["Who?", "What?", "Why?"]}),
        ("embed", {"texts": TEXTS}),
    ],
    "tag": [("tag", {"texts": TEXTS})],
    "choose": [("choose", {"question": "Who?", "choices": ["Anna", "Bert"], "context": TEXTS[0]})],
    "answer": [("answer", {"question": "What?", "context": TEXTS[0], "top": 3})],
}


def _plain(found: object) -> object:
    if isinstance(found, list | tuple):
        return [_plain(item) for item in found]
    if hasattr(found, "tolist"):
        return found.tolist()
    if hasattr(found, "__dataclass_fields__"):
        return {name: _plain(value) for name, value in asdict(found).items()}
    return found


@pytest.mark.parametrize(("name", "verb", "body"), [(name, *call) for name, calls in CALLS.items() for call in calls])
def test_a_route_gives_what_the_verb_gives(server, folders, name, verb, body) -> None:
    reply = server.ask(f"/v1/{verb}", {"model": name, **body})
    assert reply.status == 200, reply.body
    method = getattr(litebert.load(folders[name]), verb)
    if verb == "explain":
        method = partial(method, body["verb"], *body["texts"], answer=body["answer"])
    expected = _plain(method() if verb == "explain" else method(**body))
    assert reply.json["result"] == _near(expected)
    assert reply.json["model"] == name
    Answer[answers.Explanation if verb == "explain" else RESULTS[verb]].model_validate(reply.json)


def _near(value: object) -> object:
    if isinstance(value, float):
        return pytest.approx(value, rel=1e-6, abs=1e-5)
    if isinstance(value, list):
        return [_near(item) for item in value]
    if isinstance(value, dict):
        return {name: _near(item) for name, item in value.items()}
    return value


def test_steps_show_a_point_for_each_step_and_token(server) -> None:
    found = server.ask("/v1/steps", {"text": "Anna walked home. " * 30}).json["result"]
    assert len(found["l2"]) == len(found["cosine"]) == 2
    assert len(found["pieces"]) == len(found["by_token"]) == 64
    assert found["pieces"][0] == "[CLS]"
    means = [sum(column) / 64 for column in zip(*found["by_token"], strict=True)]
    assert means == pytest.approx(found["l2"], rel=1e-4)
    assert all(-1 <= cosine <= 1 for cosine in found["cosine"])


def test_attention_is_a_distribution_for_each_head_and_token(server) -> None:
    text = "Anna walked home. " * 30
    first, second = (server.ask("/v1/attention", {"text": text, "step": step}).json["result"] for step in (1, 2))
    assert len(first["heads"]) == 2
    assert len(first["pieces"]) == len(first["heads"][0]) == 64
    assert all(sum(row) == pytest.approx(1, abs=0.004) for head in first["heads"] for row in head)
    assert first["heads"] != second["heads"]
    Attention.model_validate(first)


def test_attention_mixes_values_as_the_network_does(folders: dict[str, Path]) -> None:
    model = litebert.load(folders["base"])
    found = attention(model, "Anna walked home.", step=2)
    batch = Batch.from_lists([model.tokenizer.encode("Anna walked home.", frame=True).ids])
    before, after = list(model.network.albert.states(batch))[1:]
    block, feed_forward = model.network.albert.attention[0], model.network.albert.feed_forward[0]
    value = torch.unflatten(block.value(before), -1, block.heads)
    mixed = torch.einsum("hqk,khd->qhd", torch.tensor(found["heads"]), value).flatten(-2)
    expected = feed_forward(block.norm(before + block.output(mixed)))
    torch.testing.assert_close(expected, after, atol=2e-3, rtol=0)


def test_openai_clients_work_unchanged(server, folders: dict[str, Path]) -> None:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none") as client:
        assert [model.id for model in client.models.list()] == list(folders)
        packed = client.embeddings.create(model="base", input=TEXTS)
        plain = client.embeddings.create(model="base", input=TEXTS[0], encoding_format="float")
        many = client.embeddings.create(model="base", input=[f"text {n}" for n in range(1_000)])
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="nobody", input="a")
    assert packed.usage.prompt_tokens > 3 * 2
    assert [each.index for each in many.data] == list(range(1_000))
    assert packed.data[0].embedding == pytest.approx(plain.data[0].embedding, abs=1e-6)
    assert sum(x * x for x in plain.data[0].embedding) == pytest.approx(1)
    ours = server.ask("/v1/embed", {"texts": TEXTS}).json["result"][0]
    length = sum(x * x for x in ours) ** 0.5
    assert plain.data[0].embedding == pytest.approx([x / length for x in ours], abs=1e-6)


def test_base64_is_float32_little_endian(server) -> None:
    body = {"model": "base", "input": "a", "encoding_format": "base64"}
    packed = server.ask("/v1/embeddings", body).json["data"][0]["embedding"]
    assert len(array("f", base64.b64decode(packed))) == 32


LIMITS = {
    "body": (413, "LB-952", "/v1/embed", {"texts": ["a" * (MAX_BODY_BYTES + 1)]}),
    "texts": (422, "LB-954", "/v1/embed", {"texts": ["a"] * (MAX_TEXTS + 1)}),
    "no texts": (422, "LB-954", "/v1/embed", {"texts": []}),
    "characters": (422, "LB-954", "/v1/embed", {"texts": ["a" * (MAX_CHARACTERS + 1)]}),
    "top": (422, "LB-954", "/v1/fill", {"text": "[MASK]", "top": 51}),
    "one choice": (422, "LB-954", "/v1/choose", {"question": "a", "choices": ["b"]}),
    "pairs": (422, "LB-954", "/v1/classify", {"texts": ["a"], "pairs": ["b", "c"]}),
    "number as text": (422, "LB-954", "/v1/fill", {"text": 1}),
    "text as number": (422, "LB-954", "/v1/fill", {"text": "[MASK]", "top": "3"}),
    "unknown field": (422, "LB-954", "/v1/fill", {"text": "[MASK]", "secret-word": 1}),
    "score characters": (422, "LB-954", "/v1/score", {"text": "a" * 1_001}),
    "score tokens": (422, "LB-973", "/v1/score", {"text": "a 1 " * 200}),
    "attention step": (422, "LB-974", "/v1/attention", {"text": "a", "step": 3}),
    "one sentence": (422, "LB-936", "/v1/order", {"first": "secret-word"}),
    "no blank": (422, "LB-610", "/v1/fill", {"text": "secret-word"}),
    "no head": (422, "LB-956", "/v1/classify", {"texts": ["secret-word"]}),
    "no head to explain": (422, "LB-956", "/v1/explain", {"verb": "classify", "texts": ["secret-word"]}),
    "token ids": (422, "LB-954", "/v1/embeddings", {"model": "base", "input": [1, 2]}),
    "inputs": (422, "LB-954", "/v1/embeddings", {"model": "base", "input": ["a"] * 2_049}),
    "input characters": (
        422,
        "LB-954",
        "/v1/embeddings",
        {"model": "base", "input": ["a" * MAX_CHARACTERS] * (MAX_TEXTS + 1)},
    ),
    "no model": (404, "LB-955", "/v1/fill", {"text": "[MASK]", "model": "secret-word"}),
    "no route": (404, "LB-961", "/v1/secret-word", {}),
}


@pytest.mark.parametrize(("status", "code", "path", "body"), LIMITS.values(), ids=LIMITS)
def test_a_request_beyond_the_limits_is_refused_by_code(server, status, code, path, body) -> None:
    reply = server.ask(path, body)
    assert (reply.status, reply.code) == (status, code)
    assert b"secret-word" not in reply.body
    assert reply.json["error"].keys() == {"message", "type", "param", "code"}
    assert "Input should" not in reply.json["error"]["message"], "pydantic's words"


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("texts", "a list of at most 32"),
        ("no texts", "a list of at least 1"),
        ("characters", "at most 10,000 characters"),
        ("top", "at most 50"),
        ("pairs", "as many pairs as texts"),
        ("number as text", "text"),
        ("text as number", "a whole number"),
        ("token ids", "text"),
        ("inputs", "a list of at most 2,048"),
        ("input characters", "at most 320,000 characters together"),
        ("unknown field", "only the fields that /docs lists"),
    ],
)
def test_a_refusal_names_the_range(server, case: str, words: str) -> None:
    message = server.ask(*LIMITS[case][2:]).json["error"]["message"]
    assert f"expected: {words}; next" in message


def test_what_is_at_the_limit_is_answered(server) -> None:
    body = {"texts": ["a" * MAX_CHARACTERS] * MAX_TEXTS}
    assert len(server.ask("/v1/embed", body).json["result"]) == MAX_TEXTS


@pytest.mark.parametrize(
    "headers", [{"Content-Type": "text/plain"}, {"Content-Type": "application/json", "Content-Encoding": "gzip"}, {}]
)
def test_only_plain_json_is_read(server, headers) -> None:
    reply = server.ask("/v1/fill", raw=b'{"text": "[MASK]"}', headers=headers)
    assert (reply.status, reply.code) == (415, "LB-953")


def test_another_method_is_refused_with_those_allowed(server) -> None:
    reply = server.ask("/v1/fill", method="GET")
    assert (reply.status, reply.headers["allow"]) == (405, "POST")


def test_health_and_metrics_are_told(server) -> None:
    assert server.ask("/live").json == {"live": True}
    assert server.ask("/ready").status == 200
    assert server.metric("litebert_ready") == 5
    before = server.metric("litebert_requests_total")
    server.ask("/v1/fill", {"text": "[MASK]"})
    assert server.metric("litebert_requests_total") == before + 2  # and that of /metrics


def test_another_origin_gets_no_permission(server) -> None:
    headers = {"Origin": "http://elsewhere", "Access-Control-Request-Method": "POST"}
    reply = server.ask("/v1/fill", method="OPTIONS", headers=headers)
    assert reply.status == 405
    assert "access-control-allow-origin" not in reply.headers


def test_pages_forbid_everything_from_elsewhere(server) -> None:
    for path in ("/", "/docs"):
        reply = server.ask(path)
        assert reply.status == 200
        assert "default-src 'self'" in reply.headers["content-security-policy"]
        assert b"//" not in reply.body.replace(b"http://www.w3.org/2000/svg", b"")


@pytest.mark.slow
def test_without_a_limit_of_the_body_its_test_fails(run_server, folders) -> None:
    unlimited = "from litebert.serve import guard\nguard.MAX_BODY_BYTES = 1 << 30"
    with run_server(f"base={folders['base']}", without=unlimited) as server:
        server.wait_for_line("base is ready")
        with pytest.raises(AssertionError):
            test_a_request_beyond_the_limits_is_refused_by_code(server, *LIMITS["body"])
