"""Offsets: in order, inside the text, and slicing out what each piece spells."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from litebert.tokenizer import Tokenizer
from litebert.tokenizer.normalize import Normalizer

ANY_TEXT = st.text(st.characters(exclude_categories=()))
WORDS = st.text("abcdefgmnorstuvwéüÖşñç ,.()-'\"0123456789\t\n\u0301日", max_size=60)


@given(ANY_TEXT)
@example("½ №  ﬁ\u0301 \u200b\u200bx\x01y\x00 e\u0301\u0301\t, \u1112\u1161\u11ab \u3000")
@settings(max_examples=300, deadline=None)
def test_offsets_are_ordered_and_inside_the_text(own: Tokenizer, text: str) -> None:
    offsets = own.encode(text).offsets
    assert all(0 <= start <= end <= len(text) for start, end in offsets)
    assert offsets == sorted(offsets)
    assert [end for _, end in offsets] == sorted(end for _, end in offsets)


@given(WORDS)
@example("In 2010, it was 1,905, and 5,")
@example("Jürgen\u0301  cafe\u0301.")
@settings(max_examples=500, deadline=None)
def test_ordinary_text_slices_to_the_pieces(own: Tokenizer, text: str) -> None:
    encoding, end = own.encode(text), 0
    for piece, (start, stop) in zip(encoding.pieces, encoding.offsets, strict=True):
        assert Normalizer().normalize(text[start:stop]) == piece.removeprefix("▁")
        assert start >= end
        end = stop


def test_a_word_is_sliced_without_the_space_before_it(own: Tokenizer) -> None:
    text = "the  miller\n weighed"
    encoding = own.encode(text)
    words = [
        text[s:e]
        for p, (s, e) in zip(encoding.pieces, encoding.offsets, strict=True)
        if p[0] == "▁" != p
    ]
    assert all(word and not word[0].isspace() for word in words)


def test_a_lone_space_piece_has_an_empty_span_before_its_word(own: Tokenizer) -> None:
    encoding = own.encode("boats 日本")
    assert encoding.pieces[-2:] == ["▁", "日本"]
    assert encoding.offsets[-2:] == [(6, 6), (6, 8)]


def test_pieces_of_one_character_share_its_span(own: Tokenizer) -> None:
    encoding = own.encode("x½")
    assert {
        span
        for piece, span in zip(encoding.pieces, encoding.offsets, strict=True)
        if piece in "12⁄"
    } == {(1, 2)}


def test_the_second_text_has_offsets_of_its_own(own: Tokenizer) -> None:
    encoding = own.encode("boats", "boats")
    half = len(encoding) // 2
    assert encoding.offsets[1:half] == encoding.offsets[half + 1 : -1]
    assert encoding.offsets[0] == encoding.offsets[half] == encoding.offsets[-1] == (0, 0)


def test_special_names_shift_what_follows(own: Tokenizer) -> None:
    text = "the [MASK] boats"
    encoding = own.encode(text, special_tokens=True)
    assert "".join(text[s:e] for s, e in encoding.offsets) == "the[MASK]boats"


def test_real_paragraphs_slice_to_words(official: Tokenizer, paragraphs: list[str]) -> None:
    for text in paragraphs[:300]:
        encoding = official.encode(text)
        spelled = "".join(Normalizer().normalize(text[s:e]) for s, e in encoding.offsets)
        assert spelled == "".join(encoding.pieces).replace("▁", "")
