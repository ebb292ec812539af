"""The comma after a digit, which the official code splits off."""

from collections.abc import Callable

import pytest

from litebert.tokenizer import Tokenizer, model_file

Maker = Callable[[dict[str, float]], bytes]

# scores of pieces: the higher, the sooner a piece is chosen
LETTERS = {"▁": -3.0, ",": -4.0, "1": -5.0, "5": -5.0, "a": -5.0}


@pytest.mark.parametrize(
    ("scores", "text", "pieces"),
    [
        pytest.param(
            {"▁15,": -1.0, "▁15": -6.0},
            "15, a",
            ["▁15", ",", "▁", "a"],
            id="the rest is a piece",
        ),
        pytest.param(
            {"5,": -1.0}, "15,", ["▁", "1", "5", ","], id="the rest is several pieces"
        ),
        pytest.param(
            {"5,": -1.0, "▁5": -2.0},
            "15,",
            ["▁", "1", "5", ","],
            id="no piece that begins a word arises within it",
        ),
        pytest.param(
            {"a5,": -1.0, "▁a": -2.0},
            "1a5,5",
            ["▁", "1", "a", "5", ",", "5"],
            id="nor before letters",
        ),
        # as the official code does
        pytest.param(
            {"1,5,": -1.0, "1,": -2.0},
            "a1,5,",
            ["▁", "a", "1,", "5", ","],
            id="each piece is looked at once",
        ),
        pytest.param(
            {"a,": -1.0}, "a,", ["▁", "a,"], id="a comma after a letter stays"
        ),
    ],
)
def test_the_comma_after_a_digit_is_split_off(
    make_model: Maker, scores: dict[str, float], text: str, pieces: list[str]
) -> None:
    tokenizer = Tokenizer.from_model(make_model(LETTERS | scores))
    encoding = tokenizer.encode(text)
    assert encoding.pieces == pieces
    assert encoding.ids == [tokenizer.id(piece) for piece in pieces]
    spelled = [text[start:stop] for start, stop in encoding.offsets]
    assert spelled == [piece.strip("▁") for piece in pieces]


@pytest.fixture
def without_comma(make_model: Maker) -> Tokenizer:
    return Tokenizer.from_model(make_model({"▁": -3.0, "a": -5.0}))


def test_the_comma_after_unknown_digits_is_split_off(without_comma: Tokenizer) -> None:
    encoding = without_comma.encode("a 15, <unk>,")
    assert encoding.pieces == ["▁", "a", "▁", "15", ",", "▁", "<unk>,"]
    assert encoding.ids == [without_comma.id(piece) for piece in encoding.pieces]


def test_a_batch_of_unknown_digits_has_the_ids_of_one(
    without_comma: Tokenizer,
) -> None:
    text = "a 15, <unk>,"
    ids = without_comma.encode(text).ids
    assert without_comma.encode_ids([text] * 20) == [ids] * 20


def test_no_number_has_a_piece_of_digits_and_a_comma(own: Tokenizer) -> None:
    joined = set[int]()
    for piece in own.pieces:
        if model_file.ends_in_number_comma(piece):
            joined.add(own.id(piece))
    assert joined  # training made some
    numbers = [f"{number:,}, {number}," for number in range(0, 100_000, 7)]
    for ids in own.encode_ids(numbers):
        assert joined.isdisjoint(ids)
