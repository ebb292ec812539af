"""The strict decoder: what it refuses, and what it must not refuse."""

import json

import pytest

from litebert.serve.refusals import HttpError
from litebert.serve.strict_json import decode, encode

REFUSED = {
    "nothing": b"",
    "half": b'{"text": ',
    "two values": b"{} {}",
    "nan": b'{"a": NaN}',
    "infinity": b"[-Infinity]",
    "overflow": b"[1e999]",
    "duplicate keys": b'{"a": 1, "a": 1}',
    "nested duplicate keys": b'[{"a": {"b": 1, "b": 2}}]',
    "long integer": b"9" * 5_000,
    "invalid utf-8": b'"\xff"',
    "overlong utf-8": b'"\xc0\xaf"',
    "surrogate in utf-8": b'"\xed\xa0\x80"',
    "lone surrogate": rb'"\ud800"',
    "lone surrogate in a key": rb'{"\udc00": 1}',
    "byte order mark": b"\xef\xbb\xbf{}",
    "utf-16": '{"a": 1}'.encode("utf-16"),
    "control character": b'"\x00"',
    "single quotes": b"{'a': 1}",
    "comment": b"{} // no",
    "trailing comma": b"[1,]",
    "depth 17": b"[" * 17 + b"]" * 17,
    "depth 250,000": b"[" * 250_000,
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_what_is_not_strict_json_is_refused(body: bytes) -> None:
    with pytest.raises(HttpError, match="LB-951") as caught:
        decode(body)
    assert caught.value.status == 400


def test_the_usual_decoder_takes_what_this_one_refuses() -> None:
    taken = ("nan", "infinity", "overflow", "duplicate keys", "lone surrogate", "utf-16")
    for name in taken:
        json.loads(REFUSED[name])


@pytest.mark.parametrize(
    "value", [{"a": [1, -2.5e10, True, None, "é 漢 😀"]}, "[[[[[[[[[[[[[[[[[[[[", '\\"{[', [[[[]]]], 10**300]
)
def test_json_is_read_as_it_was_written(value: object) -> None:
    assert decode(json.dumps(value).encode()) == value
    assert decode(encode(value)) == value
