"""Every HTTP route: what it answers, what it refuses, and that its answers are those of
the shell.
"""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.waiting import exit_code

from .served import JSON, MODELS, Server, serve
from .shell import assert_error, litebert, near
from .tiny import Desk

TEXTS = ["Anna found a red ball.", "At night the river was quiet again.", "No"]
CANARY = "canary-7319"
CALLS = {
    "fill": (
        "base",
        {"text": "Anna saw the [MASK].", "top": 3},
        ["fill", "Anna saw the [MASK].", "--top", 3],
    ),
    "order": ("base", {"first": TEXTS[0], "second": TEXTS[1]}, ["order", *TEXTS[:2]]),
    "order-joins": (
        "base",
        {"first": " ".join(TEXTS[:2])},
        ["order", " ".join(TEXTS[:2])],
    ),
    "score": ("base", {"text": TEXTS[0]}, ["score", TEXTS[0]]),
    "embed": ("base", {"texts": TEXTS}, ["embed", *TEXTS]),
    "classify": ("classify", {"texts": TEXTS}, ["classify", *TEXTS]),
    "tag": ("tag", {"texts": TEXTS}, ["tag", *TEXTS]),
    "choose": (
        "choose",
        {"question": "Who?", "choices": [*"abcdefghijk"], "context": TEXTS[0]},
        ["choose", "Who?", *"abcdefghijk", "--context", TEXTS[0]],
    ),
    "answer": (
        "answer",
        {"question": "Who?", "context": TEXTS[0]},
        ["answer", "Who?", "--context", TEXTS[0]],
    ),
    "explain": (
        "classify",
        {"verb": "classify", "texts": TEXTS[:1], "answer": "good"},
        ["explain", "classify", TEXTS[0], "--answer", "good"],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_route_answers_as_the_shell_does(
    server: Server, desk: Desk, name: str
) -> None:
    model, body, words = CALLS[name]
    reply = server.ask(f"/v1/{words[0]}", {"model": model, **body})
    assert reply.status == 200, reply.body
    assert reply.json["model"] == model and reply.json["version"]
    expected = litebert(*words, "--model", getattr(desk, MODELS[model]), "--json").json
    # the shell takes several texts, the route takes one
    expected = expected[0] if name == "score" else expected
    assert reply.json["result"] == near(
        {"joins": expected} if name == "order-joins" else expected
    )


def test_models_health_metrics_and_pages_are_served(server: Server) -> None:
    models = server.ask("/v1/models").json["data"]
    assert [model["id"] for model in models] == list(MODELS)
    assert server.ask("/live").json == {"live": True}
    assert (server.ask("/ready").status, server.metric("litebert_ready")) == (200, 5)
    before = server.metric("litebert_requests_total")
    server.ask("/v1/fill", {"text": "[MASK]"})
    # this request, and the one to /metrics
    assert server.metric("litebert_requests_total") == before + 2
    for path in ("/", "/docs"):
        reply = server.ask(path)
        assert (
            reply.status == 200
            and "default-src 'self'" in reply.headers["content-security-policy"]
        )
    routes = server.ask("/openapi.json").json["paths"]
    assert {f"/v1/{words[0]}" for _, _, words in CALLS.values()} <= set(routes)


WHOLE = {"text": "[MASK]"}
NOT_JSON = [
    b"",
    b"{",
    b"[",
    b"nul",
    b"'a'",
    b"a=1",
    b"<a/>",
    b"\x00",
    b"\xfe\xff",
    b"\xef\xbb\xbf{}",
    b"{} // no",
    b'"\x00"',
    b'{"text": NaN}',
    b'{"text": Infinity}',
    b'{"text": 1e999}',
    b'{"text": 01}',
    b"9" * 5_000,
    b'{"text": "\xff"}',
    b'{"text": "\\ud800"}',
    b'{"\\udc00": 1}',
    b'"\xed\xa0\x80"',
    '{"a": 1}'.encode("utf-16"),
    b'{"text": "a", "text": "b"}',
    b'[{"a": {"b": 1, "b": 2}}]',
    b'{"text": "[MASK]"}{"text": "[MASK]"}',
    b'{"text": "[MASK]",}',
    b"[" * 250_000 + b"]" * 250_000,
    b'{"a":' * 500,
]
MALFORMED: dict[str, tuple[int, str, object, str]] = {
    **{
        f"not JSON: {raw[:20]!r}": (400, "fill", raw, "one JSON value in UTF-8")
        for raw in NOT_JSON
    },
    **{
        f"not an object: {raw!r}": (422, "fill", raw, "an object")
        for raw in (b"[]", b"1", b'"a"', b"null", b"true")
    },
    "nothing": (422, "fill", {}, "expected: the field text"),
    "texts instead of text": (
        422,
        "fill",
        {"texts": ["[MASK]"]},
        "text is missing; texts was sent",
    ),
    "text instead of texts": (
        422,
        "embed",
        {"text": "a"},
        "texts is missing; text was sent",
    ),
    "a number as text": (422, "fill", {"text": 1}, "a valid string"),
    "null as text": (422, "fill", {"text": None}, "a valid string"),
    "a text as number": (422, "fill", {**WHOLE, "top": "3"}, "a valid integer"),
    "too many": (422, "fill", {**WHOLE, "top": 51}, "less than or equal to 50"),
    "an unknown field": (
        422,
        "fill",
        {**WHOLE, CANARY: 1},
        "only the fields that /docs lists",
    ),
    "100 unknown fields": (
        422,
        "fill",
        dict.fromkeys(map(str, range(100)), 1),
        "at most 64",
    ),
    "no blank": (
        422,
        "fill",
        {"text": CANARY},
        "no [MASK] in this text; next: /docs shows an example",
    ),
    "more numbers": (
        422,
        "embeddings",
        {"input": "a", "dimensions": 9_999},
        "the width of this model's vectors",
    ),
    "no numbers": (
        422,
        "embeddings",
        {"input": "a", "dimensions": 0},
        "dimensions is not valid; expected: greater than or equal to 1",
    ),
    "no texts": (422, "embed", {"texts": []}, "at least 1 item"),
    "a string as texts": (
        422,
        "embed",
        {"texts": CANARY},
        'a list, such as ["one text", "another"]',
    ),
    "too many texts": (
        422,
        "embed",
        {"texts": ["a"] * 33},
        "expected: at most 32 items",
    ),
    "a long text": (
        422,
        "embed",
        {"texts": ["a" * 10_001]},
        "at most 10000 characters",
    ),
    "fewer pairs": (
        422,
        "classify",
        {"texts": ["a", "b"], "pairs": ["c"]},
        "as many pairs as texts",
    ),
    "one choice": (
        422,
        "choose",
        {"model": "choose", "question": "a", "choices": ["b"]},
        "",
    ),
    "no context": (
        422,
        "answer",
        {"model": "answer", "question": "a"},
        "the field context",
    ),
    "no head": (422, "classify", {"texts": [CANARY]}, "one of fill, "),
    "one sentence": (422, "order", {"first": CANARY}, "next: /docs shows an example"),
    "a blank text to score": (422, "score", {"text": " "}, "blank"),
    "a long text to score": (
        422,
        "score",
        {"text": "a" * 1_001},
        "at most 1000 characters",
    ),
    "many tokens to score": (
        422,
        "score",
        {"text": "a 1 " * 200},
        "at most 128 tokens",
    ),
    **{
        f"token ids, {name}": (
            422,
            "embeddings",
            {"model": "base", "input": ids},
            "check_embedding_ctx_length=False",
        )
        for name, ids in {"one text": [1, 2], "texts": [[1, 2], [3]]}.items()
    },
    "a number among the texts": (
        422,
        "embeddings",
        {"model": "base", "input": ["a", 1]},
        "input.1 is not valid; expected: a valid string",
    ),
    "too much input": (
        422,
        "embeddings",
        {"model": "base", "input": ["a" * 10_000] * 33},
        "at most 320,000",
    ),
    "an unknown encoding": (
        422,
        "embeddings",
        {"model": "base", "input": "a", "encoding_format": CANARY},
        "",
    ),
    "no such model": (404, "fill", {**WHOLE, "model": CANARY}, ""),
    "no such route": (404, CANARY, {}, ""),
    "a slash too many": (404, "fill/", WHOLE, "no route has this address"),
    "a long wait": (
        422,
        "fill",
        {**WHOLE, "timeout_ms": 120_001},
        "less than or equal to 120000",
    ),
    "a body too large": (413, "embed", {"texts": ["a" * 2_000_001]}, ""),
}


@pytest.mark.parametrize(
    ("status", "route", "body", "said"), MALFORMED.values(), ids=MALFORMED
)
def test_a_malformed_request_is_refused_in_json_without_an_echo(
    server: Server, status: int, route: str, body: object, said: str
) -> None:
    reply = (
        server.ask(f"/v1/{route}", raw=body)
        if isinstance(body, bytes)
        else server.ask(f"/v1/{route}", body)
    )
    assert reply.status == status, reply.body
    assert set(reply.json["error"]) == {"message", "type", "param", "code"}
    assert (
        reply.json["error"]["code"].startswith("LB-")
        and said in reply.json["error"]["message"]
    ), reply.body
    assert CANARY.encode() not in reply.body and b"Traceback" not in reply.body
    assert not [line for line in server.lines if "Traceback" in line]
    assert server.ask("/v1/fill", WHOLE).status == 200


def test_only_plain_json_by_post_is_read(server: Server) -> None:
    for headers in (
        {"Content-Type": "text/plain"},
        {**JSON, "Content-Encoding": "gzip"},
        {},
    ):
        assert (
            server.ask("/v1/fill", raw=b'{"text": "[MASK]"}', headers=headers).status
            == 415
        )
    reply = server.ask("/v1/fill", method="GET")
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    reply = server.ask(
        "/v1/fill", method="OPTIONS", headers={"Origin": "http://elsewhere"}
    )
    assert "access-control-allow-origin" not in reply.headers
    assert server.ask("/v1/embed", {"texts": ["a" * 10_000] * 32}).status == 200


KEYS = dict.fromkeys(
    ("", "Bearer ", "Bearer wrong", "Bearer KEY-ONE", "Basic key-one", "key-one", None),
    401,
)
KEYS |= {
    "Bearer # of the laboratory": 401,
    "bearer key-one": 200,
    "BEARER key-one": 200,
    "Bearer key-two": 200,
}


@pytest.mark.parametrize("key", KEYS)
def test_without_a_key_only_health_and_pages_are_open(
    guarded: Server, key: str | None
) -> None:
    headers = JSON if key is None else {**JSON, "Authorization": key}
    answered = guarded.ask("/v1/embed", {"texts": ["a"]}, headers=headers)
    for reply in (answered, guarded.ask("/v1/models", headers=headers)):
        assert reply.status == KEYS[key]
        assert KEYS[key] == 200 or reply.headers["www-authenticate"] == "Bearer"
    assert guarded.ask("/live", headers=headers).status == 200


def test_sigterm_finishes_accepted_requests_and_exits_with_zero(desk: Desk) -> None:
    body = {"texts": ["word " * 1_990] * 16}
    with (
        serve(f"base={desk.base}", "--batch-tokens", 1) as server,
        ThreadPoolExecutor(4) as pool,
    ):
        server.wait_for("base is ready")
        asked = [pool.submit(server.ask, "/v1/embed", body) for _ in range(4)]
        left = lambda: max(1, 3 - sum(future.done() for future in asked))  # noqa: E731 - besides the one being computed
        server.wait_until(lambda: server.metric("litebert_queue_requests") >= left())
        server.process.send_signal(signal.SIGTERM)
        assert [future.result().status for future in asked] == [200] * 4
        assert exit_code(server.process) == 0


@pytest.mark.parametrize(
    "words", ["--cors-origin https://a.org/", "--cors-origin a.org", "--host a.invalid"]
)
def test_an_origin_or_address_that_could_not_work_is_refused(words: str) -> None:
    assert_error(litebert("serve", "nowhere", *words.split()), 1, *words.split())


@pytest.mark.parametrize(
    "text", [b"# only a comment\n", "key".encode("utf-16"), b"k\xe9y"]
)
def test_a_file_of_keys_without_a_key_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "k.txt").write_bytes(text)
    assert_error(
        litebert("serve", "nowhere", "--api-keys", "k.txt", cwd=tmp_path), 1, "k.txt"
    )
