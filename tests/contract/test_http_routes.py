"""Every route over HTTP: what it answers, what it refuses, and that batches answer as texts alone do."""

import base64
import json
import signal
import socket
import time
from array import array
from concurrent.futures import ThreadPoolExecutor

import pytest

from .served import JSON, MODELS, Server, serve
from .shell import litebert, near
from .tiny import Desk

TEXTS = ["Anna found a red ball.", "At night the river was quiet again.", "No"]
CANARY = "canary-7319"
CALLS = {
    "fill": ("base", {"text": "Anna saw the [MASK].", "top": 3}, ["fill", "Anna saw the [MASK].", "--top", 3]),
    "order": ("base", {"first": TEXTS[0], "second": TEXTS[1]}, ["order", *TEXTS[:2]]),
    "order-joins": ("base", {"first": " ".join(TEXTS[:2])}, ["order", " ".join(TEXTS[:2])]),
    "score": ("base", {"text": TEXTS[0]}, ["score", TEXTS[0]]),
    "embed": ("base", {"texts": TEXTS}, ["embed", *TEXTS]),
    "classify": ("classify", {"texts": TEXTS}, ["classify", *TEXTS]),
    "tag": ("tag", {"texts": TEXTS}, ["tag", *TEXTS]),
    "choose": (
        "choose",
        {"question": "Who?", "choices": ["Ada", "Bert"], "context": TEXTS[0]},
        ["choose", "Who?", "Ada", "Bert", "--context", TEXTS[0]],
    ),
    "answer": ("answer", {"question": "Who?", "context": TEXTS[0]}, ["answer", "Who?", "--context", TEXTS[0]]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_route_answers_as_the_shell_does(server: Server, desk: Desk, name: str) -> None:
    model, body, words = CALLS[name]
    reply = server.ask(f"/v1/{words[0]}", {"model": model, **body})
    assert reply.status == 200, reply.body
    assert reply.json["model"] == model and reply.json["version"]
    expected = litebert(*words, "--model", getattr(desk, MODELS[model]), "--json").json
    expected = expected[0] if name == "score" else expected  # the shell takes several texts, the route takes one
    assert reply.json["result"] == near({"joins": expected} if name == "order-joins" else expected)


def test_a_batch_answers_as_each_of_its_texts_alone(server: Server) -> None:
    for route, model in (("embed", "base"), ("classify", "classify"), ("tag", "tag")):
        together = server.ask(f"/v1/{route}", {"model": model, "texts": TEXTS * 4}).json["result"]
        alone = [server.ask(f"/v1/{route}", {"model": model, "texts": [text]}).json["result"][0] for text in TEXTS]
        assert together == near(alone * 4)


def test_requests_at_once_get_their_own_answers(server: Server) -> None:
    def ask(number: int) -> object:
        return server.ask("/v1/embed", {"texts": [f"Anna walked {number} times to the market."]}).json["result"]

    alone = [ask(number) for number in range(24)]
    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(ask, range(24))) == near(alone)


def test_embeddings_have_the_form_of_openai(server: Server) -> None:
    plain = server.ask("/v1/embeddings", {"model": "base", "input": TEXTS, "encoding_format": "float"}).json
    assert (plain["object"], plain["model"]) == ("list", "base")
    assert [(each["object"], each["index"]) for each in plain["data"]] == [("embedding", n) for n in range(3)]
    assert plain["usage"]["prompt_tokens"] == plain["usage"]["total_tokens"] > 6
    vectors = [each["embedding"] for each in plain["data"]]
    assert [sum(x * x for x in vector) for vector in vectors] == [pytest.approx(1, abs=1e-5)] * 3
    packed = server.ask("/v1/embeddings", {"model": "base", "input": TEXTS[0], "encoding_format": "base64"}).json
    assert list(array("f", base64.b64decode(packed["data"][0]["embedding"]))) == near(vectors[0])
    many = server.ask("/v1/embeddings", {"model": "base", "input": ["a"] * 300}).json
    assert [each["index"] for each in many["data"]] == list(range(300))


def test_steps_and_attention_show_the_inside(server: Server) -> None:
    steps = server.ask("/v1/steps", {"text": "Anna walked home. " * 30}).json["result"]
    assert len(steps["l2"]) == len(steps["cosine"]) == 3
    heads = server.ask("/v1/attention", {"text": "Anna walked home.", "step": 2}).json["result"]
    assert all(sum(row) == pytest.approx(1, abs=0.01) for head in heads["heads"] for row in head)
    assert len(heads["pieces"]) == len(heads["heads"][0])


def test_an_explanation_adds_up(server: Server) -> None:
    body = {"model": "classify", "verb": "classify", "texts": TEXTS[:1], "answer": "good"}
    reply = server.ask("/v1/explain", body)
    assert reply.status == 200, reply.body
    found = reply.json["result"]
    assert sum(word["attribution"] for word in found["words"]) == pytest.approx(
        found["score"] - found["blank"], abs=1e-3
    )


def test_models_health_metrics_and_pages_are_told(server: Server) -> None:
    models = server.ask("/v1/models").json["data"]
    assert [model["id"] for model in models] == list(MODELS)
    assert server.ask("/live").json == {"live": True}
    assert server.ask("/ready").status == 200
    assert server.metric("litebert_ready") == 5
    before = server.metric("litebert_requests_total")
    server.ask("/v1/fill", {"text": "[MASK]"})
    assert server.metric("litebert_requests_total") == before + 2  # and that of /metrics
    for path in ("/", "/docs"):
        reply = server.ask(path)
        assert reply.status == 200
        assert "default-src 'self'" in reply.headers["content-security-policy"]
    routes = server.ask("/openapi.json").json["paths"]
    assert {f"/v1/{words[0]}" for _, _, words in CALLS.values()} <= set(routes)


WHOLE = {"text": "[MASK]"}
MALFORMED: dict[str, tuple[int, str, object]] = {
    **{
        f"not JSON: {raw[:20]!r}": (400, "/v1/fill", raw)
        for raw in (
            b"", b"{", b"[", b"nul", b"'a'", b"a=1", b"<a/>", b"\x00", b"\xfe\xff", b'{"text": NaN}',
            b'{"text": Infinity}', b'{"text": 1e999}', b'{"text": "\xff"}', b'{"text": "\\ud800"}',
            b'{"text": "a", "text": "b"}', b'{"text": 01}', b'{"text": "[MASK]"}{"text": "[MASK]"}',
            b'{"text": "[MASK]",}', b"[" * 100_000, b'{"a":' * 500, b'{"text": [[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}',
        )
    },
    **{f"not an object: {raw!r}": (422, "/v1/fill", raw) for raw in (b"[]", b"1", b'"a"', b"null", b"true")},
    "nothing": (422, "/v1/fill", {}),
    "a number as text": (422, "/v1/fill", {"text": 1}),
    "null as text": (422, "/v1/fill", {"text": None}),
    "a text as number": (422, "/v1/fill", {**WHOLE, "top": "3"}),
    "too many": (422, "/v1/fill", {**WHOLE, "top": 51}),
    "none": (422, "/v1/fill", {**WHOLE, "top": 0}),
    "an unknown field": (422, "/v1/fill", {**WHOLE, CANARY: 1}),
    "no blank": (422, "/v1/fill", {"text": CANARY}),
    "no texts": (422, "/v1/embed", {"texts": []}),
    "a text for texts": (422, "/v1/embed", {"texts": CANARY}),
    "too many texts": (422, "/v1/embed", {"texts": ["a"] * 33}),
    "a long text": (422, "/v1/embed", {"texts": ["a" * 10_001]}),
    "an unknown pooling": (422, "/v1/embed", {"texts": ["a"], "pooling": CANARY}),
    "fewer pairs": (422, "/v1/classify", {"model": "classify", "texts": ["a", "b"], "pairs": ["c"]}),
    "one choice": (422, "/v1/choose", {"model": "choose", "question": "a", "choices": ["b"]}),
    "no context": (422, "/v1/answer", {"model": "answer", "question": "a"}),
    "no head": (422, "/v1/classify", {"texts": [CANARY]}),
    "one sentence": (422, "/v1/order", {"first": CANARY}),
    "a long text to score": (422, "/v1/score", {"text": "a" * 1_001}),
    "a step too far": (422, "/v1/attention", {"text": "a", "step": 99}),
    "token ids": (422, "/v1/embeddings", {"model": "base", "input": [1, 2]}),
    "too many inputs": (422, "/v1/embeddings", {"model": "base", "input": ["a"] * 2_049}),
    "an unknown encoding": (422, "/v1/embeddings", {"model": "base", "input": "a", "encoding_format": CANARY}),
    "no such model": (404, "/v1/fill", {**WHOLE, "model": CANARY}),
    "no such route": (404, f"/v1/{CANARY}", {}),
    "a body too large": (413, "/v1/embed", {"texts": ["a" * 2_000_001]}),
}  # fmt: skip


@pytest.mark.parametrize(("status", "path", "body"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_request_is_refused_in_json_without_an_echo(
    server: Server, status: int, path: str, body: object
) -> None:
    reply = server.ask(path, raw=body) if isinstance(body, bytes) else server.ask(path, body)
    assert reply.status == status, reply.body
    assert set(reply.json["error"]) == {"message", "type", "param", "code"}
    assert reply.json["error"]["code"].startswith("LB-")
    assert CANARY.encode() not in reply.body and b"Traceback" not in reply.body
    assert not [line for line in server.lines if "Traceback" in line]
    assert server.ask("/v1/fill", WHOLE).status == 200


def test_only_plain_json_by_post_is_read(server: Server) -> None:
    for headers in ({"Content-Type": "text/plain"}, {**JSON, "Content-Encoding": "gzip"}, {}):
        assert server.ask("/v1/fill", raw=b'{"text": "[MASK]"}', headers=headers).status == 415
    reply = server.ask("/v1/fill", method="GET")
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    reply = server.ask("/v1/fill", method="OPTIONS", headers={"Origin": "http://elsewhere"})
    assert "access-control-allow-origin" not in reply.headers
    assert server.ask("/live", headers={"A": "a" * 17_000}).status == 431
    assert server.ask("/v1/embed", {"texts": ["a" * 10_000] * 32}).status == 200


KEYS = dict.fromkeys(("", "Bearer ", "Bearer wrong", "Bearer KEY-ONE", "Basic key-one", "key-one", None), 401)
KEYS |= {"Bearer # of the laboratory": 401, "bearer key-one": 200, "BEARER key-one": 200, "Bearer key-two": 200}


@pytest.mark.parametrize("key", KEYS)
def test_without_a_key_only_health_and_pages_are_open(guarded: Server, key: str | None) -> None:
    headers = JSON if key is None else {**JSON, "Authorization": key}
    for reply in (
        guarded.ask("/v1/embed", {"texts": ["a"]}, headers=headers),
        guarded.ask("/v1/models", headers=headers),
    ):
        assert reply.status == KEYS[key]
        assert KEYS[key] == 200 or reply.headers["www-authenticate"] == "Bearer"
    assert guarded.ask("/live", headers=headers).status == 200


def test_a_slow_client_is_closed_and_slows_nobody(guarded: Server) -> None:
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=20) as link:
        link.sendall(b"POST /v1/embed HTTP/1.1\r\nHost: a\r\n")
        started = time.monotonic()
        assert guarded.ask("/live").status == 200
        assert link.recv(4_096) == b""
        assert time.monotonic() - started < 15


def test_sigterm_answers_what_was_accepted_and_exits_with_zero(desk: Desk) -> None:
    body = {"texts": ["word " * 200] * 8}
    with serve(f"base={desk.base}") as server, ThreadPoolExecutor(4) as pool:
        server.wait_for("base is ready")
        asked = [pool.submit(server.ask, "/v1/embed", body) for _ in range(4)]
        server.wait_until(lambda: server.metric("litebert_queue_requests") >= 2 or any(each.done() for each in asked))
        server.process.send_signal(signal.SIGTERM)
        assert [each.result().status for each in asked] == [200] * 4
        assert server.process.wait(60) == 0


@pytest.mark.parametrize(
    "words", [["--client-seconds", "nan"], ["--client-seconds", "inf"], ["--api-keys", "k.txt"]], ids=" ".join
)
def test_settings_that_guard_nothing_are_refused(tmp_path, words: list[str]) -> None:
    (tmp_path / "k.txt").write_text("# only a comment\n")
    done = litebert("serve", "nowhere", *words, cwd=tmp_path)
    assert done.code in (1, 2)
    assert words[0] in done.stderr.partition("received: serve")[0] or words[1] in done.stderr.splitlines()[0]


@pytest.mark.parametrize(
    ("route", "body", "missing", "sent"),
    [("fill", {"texts": ["[MASK]"]}, "text", "texts"), ("embed", {"text": "a"}, "texts", "text")],
)
def test_a_missing_field_is_named_beside_the_one_that_was_sent(
    server: Server, route: str, body: dict, missing: str, sent: str
) -> None:
    message = json.dumps(server.ask(f"/v1/{route}", body).json["error"])
    assert "missing" in message or "needs" in message
    assert {missing, sent} <= set(message.replace('"', " ").replace(":", " ").replace(",", " ").split())
