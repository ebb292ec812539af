"""Encoding any string, alone or in batches, framed or not; offsets; and decoding."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from litebert.errors import LitebertError
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.text import Normalizer

# ---- any string ----------------------------------------------------------------------

ANY_TEXT = st.text(st.characters(exclude_categories=()))


def assert_is_encoded_in_order(tokenizer: Tokenizer, text: str) -> None:
    """Check that all ways to encode a text agree, and that the offsets of its pieces
    ascend inside of it.
    """
    encoding = tokenizer.encode(text)
    ids, offsets = tokenizer.encode_arrays(text)
    assert ids.tolist() == encoding.ids
    assert tokenizer.encode_ids([text]) == [encoding.ids]
    assert [tokenizer.id(piece) for piece in encoding.pieces] == encoding.ids

    assert len(offsets) == len(encoding)
    assert encoding.offsets == [(start, stop) for start, stop in offsets.tolist()]
    assert ((offsets >= 0) & (offsets <= len(text))).all()
    starts, stops = offsets.T
    assert (starts <= stops).all()
    assert (np.diff(starts) >= 0).all()
    assert (np.diff(stops) >= 0).all()


@given(ANY_TEXT)
@example("\x00 \ud800 \ufffe \u202eabc\u200d")
@example("e" + "\u0301" * 10_000)
@example("1,2,3,٣,[MASK] <unk>▁▁ 5,")
@example(
    "½ №  ﬁ\u0301 \u200b\u200bx\x01y\x00 e\u0301\u0301\t, \u1112\u1161\u11ab \u3000"
)
@settings(max_examples=500, deadline=None)
def test_any_string_has_offsets_in_order_and_inside_the_text(
    own: Tokenizer, wordpiece: Tokenizer, text: str
) -> None:
    assert_is_encoded_in_order(own, text)
    assert_is_encoded_in_order(wordpiece, text)


@given(ANY_TEXT)
@settings(max_examples=200, deadline=None)
def test_any_string_has_no_more_pieces_than_characters(
    own: Tokenizer, text: str
) -> None:
    num_characters = len(own._model.normalizer.normalize(text))
    assert len(own.encode(text)) <= num_characters + 2


@pytest.mark.slow
@given(ANY_TEXT)
@settings(max_examples=20_000, deadline=None)
def test_twenty_thousand_strings_encode(
    own: Tokenizer, wordpiece: Tokenizer, text: str
) -> None:
    assert_is_encoded_in_order(own, text)
    assert_is_encoded_in_order(wordpiece, text)
    ids = own.encode(text).ids
    assert own.encode_ids([text, "a", text]) == [ids, own.encode("a").ids, ids]


# ---- batches and threads -------------------------------------------------------------


@pytest.fixture(scope="module")
def single(own: Tokenizer, sentences: list[str]) -> list[list[int]]:
    """Return the ids of each sentence, encoded alone."""
    return [own.encode(text).ids for text in sentences]


@pytest.mark.parametrize("num_threads", [1, 2, -1])
def test_batches_on_any_number_of_threads_equal_single_texts(
    own: Tokenizer,
    sentences: list[str],
    single: list[list[int]],
    num_threads: int,
) -> None:
    assert own.encode_ids(sentences, num_threads=num_threads) == single


def test_an_iterator_of_texts_is_encoded(
    own: Tokenizer, sentences: list[str], single: list[list[int]]
) -> None:
    assert own.encode_ids(iter(sentences)) == single


def test_a_batch_of_encodings_equals_single_texts(
    own: Tokenizer, sentences: list[str], single: list[list[int]]
) -> None:
    assert [encoding.ids for encoding in own.encode_batch(sentences)] == single


def test_threads_that_share_a_tokenizer_get_the_offsets_of_one(
    own: Tokenizer, sentences: list[str]
) -> None:
    expected = [own.encode(text).offsets for text in sentences]
    with ThreadPoolExecutor(16) as pool:
        encodings = list(pool.map(own.encode, sentences))
    assert [encoding.offsets for encoding in encodings] == expected


# ---- special pieces and frames -------------------------------------------------------

WITH_NAMES = "Jürgen [SEP]<pad> weighed [MASK]ripe <unk>"


def test_names_of_special_pieces_are_text(own: Tokenizer) -> None:
    special = {own.pad_id, own.cls_id, own.sep_id, own.mask_id}
    assert special.isdisjoint(own.encode(WITH_NAMES).ids)


def test_names_of_special_pieces_are_read_on_request(own: Tokenizer) -> None:
    encoding = own.encode(WITH_NAMES, special_tokens=True)
    special = []
    for piece, (start, stop) in zip(encoding.pieces, encoding.offsets, strict=True):
        if piece.startswith(("[", "<")):
            special.append((piece, WITH_NAMES[start:stop]))
    # those of the frame stand for no text
    assert special == [
        ("[CLS]", ""),
        ("[SEP]", "[SEP]"),
        ("<pad>", "<pad>"),
        ("[MASK]", "[MASK]"),
        ("<unk>", "<unk>"),
        ("[SEP]", ""),
    ]


def test_a_frame_can_be_forced(own: Tokenizer) -> None:
    ids = own.encode("boats").ids
    assert own.encode("boats", frame=True).ids == [own.cls_id, *ids, own.sep_id]


def test_the_frame_of_a_pair_can_be_forbidden(own: Tokenizer) -> None:
    pair = own.encode("ripe", "boats", frame=False)
    assert pair.ids == own.encode("ripe").ids + own.encode("boats").ids


# ---- decoding ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [("own", "anna walked home"), ("wordpiece", "anna wanted running")],
)
def test_the_texts_of_pieces_make_up_known_words(
    name: str, text: str, request: pytest.FixtureRequest
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(name)
    ids = tokenizer.encode(text, frame=True).ids
    assert "".join(tokenizer.texts[id_] for id_ in ids) == f" {text}"


def test_pieces_that_read_alike_share_the_first_id(
    make_model: Callable[[dict[str, float]], bytes],
) -> None:
    """fill() adds up the probabilities of pieces that show the same word."""
    model = make_model({"▁": -9.0, "man": -2.0, "▁man": -1.0, "▁cat": -1.5, ",": -3.0})
    tokenizer = Tokenizer.from_model(model)
    man = tokenizer.id("man")
    first = tokenizer.first_alike
    assert first[tokenizer.id("▁man")] == first[man] == man
    distinct = {first[tokenizer.id(piece)] for piece in ("▁", "man", "▁cat", ",")}
    assert len(distinct) == 4
    # special pieces have no text, and stay themselves
    assert [first[id_] for id_ in tokenizer.special_ids] == list(tokenizer.special_ids)


def test_decoding_marks_unknown_words(own: Tokenizer) -> None:
    assert own.decode(own.encode("boats 日本").ids) == "boats  ⁇"


def test_real_paragraphs_slice_to_words(
    official: Tokenizer, paragraphs: list[str]
) -> None:
    normalizer = Normalizer()
    for text in paragraphs[:300]:
        encoding = official.encode(text)
        spelled = ""
        for start, stop in encoding.offsets:
            spelled += normalizer.normalize(text[start:stop])
        assert spelled == "".join(encoding.pieces).replace("▁", "")


# ---- wrong calls ---------------------------------------------------------------------

WRONG: dict[str, tuple[str, Callable[[Any], object]]] = {
    "a number to encode": ("LB-210", lambda own: own.encode(7)),
    "none in a batch": ("LB-210", lambda own: own.encode_batch(["a", None])),
    "too few seconds": ("LB-215", lambda own: own.encode_batch(["a", "b"], ["c"])),
    "a text as a batch": ("LB-216", lambda own: own.encode_batch("abc")),
    "a text as texts": ("LB-216", lambda own: own.encode_ids("abc")),
    "an id too large": ("LB-217", lambda own: own.decode([0, 300])),
    "an id below zero": ("LB-217", lambda own: own.piece(-1)),
}


@pytest.mark.parametrize(("code", "call"), WRONG.values(), ids=WRONG)
def test_wrong_calls_are_refused(
    own: Tokenizer, code: str, call: Callable[[Tokenizer], object]
) -> None:
    with pytest.raises(LitebertError, match=code):
        call(own)
