"""A comma after a digit is a piece of its own (official tokenization.py L53-88)."""

import time
from collections.abc import Callable
from itertools import chain

import pytest

from litebert.tokenizer import Tokenizer
from litebert.tokenizer.modelfile import ends_in_number_comma, read_model
from litebert.tokenizer.unigram import UNIGRAM_SPECIAL

Maker = Callable[[dict[str, float]], bytes]
LETTERS = {"▁": -3.0, ",": -4.0, "1": -5.0, "5": -5.0, "a": -5.0}


@pytest.mark.parametrize(
    ("extra", "text", "pieces"),
    [
        ({"▁15,": -1.0, "▁15": -6.0}, "15, a", ["▁15", ",", "▁", "a"]),
        ({"5,": -1.0}, "15,", ["▁", "1", "5", ","]),
        ({"5,": -1.0, "▁5": -2.0}, "15,", ["▁", "1", "5", ","]),
        ({"a5,": -1.0, "▁a": -2.0}, "1a5,5", ["▁", "1", "a", "5", ",", "5"]),
        # The rule looks at each piece once, as the official code does.
        ({"1,5,": -1.0, "1,": -2.0}, "a1,5,", ["▁", "a", "1,", "5", ","]),
        ({"a,": -1.0}, "a,", ["▁", "a,"]),
    ],
)
def test_the_comma_is_split_off_and_no_space_appears(
    make_model: Maker, extra: dict[str, float], text: str, pieces: list[str]
) -> None:
    tokenizer = Tokenizer.from_model(make_model(LETTERS | extra))
    encoding = tokenizer.encode(text)
    assert encoding.pieces == pieces
    assert encoding.ids == [tokenizer.id(piece) for piece in pieces]
    assert [text[s:e] for s, e in encoding.offsets] == [piece.strip("▁") for piece in pieces]


def test_unknown_runs_are_split_where_the_vocabulary_has_no_comma(make_model: Maker) -> None:
    tokenizer = Tokenizer.from_model(make_model({"▁": -3.0, "a": -5.0}))
    encoding = tokenizer.encode("a 15, <unk>,")
    assert encoding.pieces == ["▁", "a", "▁", "15", ",", "▁", "<unk>,"]
    assert encoding.ids == [tokenizer.id(piece) for piece in encoding.pieces]
    assert tokenizer.encode_ids(["a 15, <unk>,"] * 20) == [encoding.ids] * 20


def test_a_trained_vocabulary_leaves_nothing_to_split(own: Tokenizer, own_model: bytes) -> None:
    pieces = read_model(own_model, "own").pieces
    demoted = {piece.text: piece.score for piece in pieces if ends_in_number_comma(piece.text)}
    assert demoted
    assert all(score < -100 for score in demoted.values())
    numbers = [f"{n:,}, {n}," for n in range(0, 100_000, 7)]
    used = set(chain.from_iterable(own.encode_ids(numbers)))
    assert used.isdisjoint(map(own.id, demoted))


def test_special_names_are_the_official_ones() -> None:
    assert list(UNIGRAM_SPECIAL) == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]


def test_time_grows_with_the_length_of_the_text(make_model: Maker) -> None:
    """Eight times the text takes about eight times as long; 64 times where pieces are inserted."""
    tokenizer = Tokenizer.from_model(make_model(LETTERS | {"▁15,": -1.0, "▁15": -6.0}))

    def seconds(num_words: int) -> float:
        text, begin = "15, " * num_words, time.process_time()
        tokenizer.encode_ids([text], num_threads=1)
        return time.process_time() - begin

    short, long = (min(seconds(size) for _ in range(3)) for size in (25_000, 200_000))
    assert long < 24 * short
