"""Preprocessing is the official recipe on every string, and knows where characters came from."""

import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from litebert.errors import LitebertError
from litebert.tokenizer.normalize import Normalizer, replace_surrogates

ANY_TEXT = st.text(st.characters(exclude_categories=()))
SETTINGS = [Normalizer(), Normalizer(lowercase=False), Normalizer(keep_accents=True)]


def official(text: str) -> str:
    text = unicodedata.normalize("NFKD", " ".join(text.strip().split()))
    return "".join(c for c in text if not unicodedata.combining(c)).lower()


@given(ANY_TEXT)
@example("ΟΔΟΣ Σ\u0301 ΑΣ’Α \u0301")
@example("e\u0316\u0301 \u1e9b\u0323 가각 \u0344")
@settings(max_examples=300, deadline=None)
def test_normalizing_is_the_official_recipe(text: str) -> None:
    assert Normalizer().normalize(text) == official(replace_surrogates(text))


def test_every_character_normalizes_as_officially() -> None:
    characters = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]
    text = " x".join(characters)
    assert Normalizer().normalize(text) == official(text)


@pytest.mark.parametrize("normalizer", SETTINGS)
@given(ANY_TEXT)
@example("İ \u0301x \x1c ½")
@settings(max_examples=100, deadline=None)
def test_alignment_has_the_same_text_and_an_origin_for_each_character(normalizer: Normalizer, text: str) -> None:
    aligned = normalizer.align(text)
    assert aligned.text == normalizer.normalize(text)
    assert len(aligned.starts) == len(aligned.ends) == len(aligned.text)
    assert sorted(aligned.starts) == list(aligned.starts)
    assert sorted(aligned.ends) == list(aligned.ends)
    assert all(0 <= s < e <= len(text) for s, e in zip(aligned.starts, aligned.ends, strict=True))


def test_a_dropped_mark_belongs_to_its_base() -> None:
    aligned = Normalizer().align("  cafe\u0301\u0301  ﬁn")
    assert aligned.text == "cafe fin"
    places = np.array([3, 4, 5, 6, 7])
    expected = [[5, 8], [8, 10], [10, 11], [10, 11], [11, 12]]
    assert aligned.spans(places, places + 1).tolist() == expected


def test_an_empty_span_lies_where_its_character_would() -> None:
    aligned = Normalizer().align(" ab")
    places = np.array([0, 1, 2])
    assert aligned.spans(places, places).tolist() == [[1, 1], [2, 2], [3, 3]]
    assert Normalizer().align("  ").spans(places[:1], places[:1]).tolist() == [[0, 0]]


def test_lone_surrogates_become_replacement_characters() -> None:
    assert replace_surrogates("a\ud800\udc00é") == "a\ufffd\ufffdé"


def test_what_is_not_text_is_refused() -> None:
    with pytest.raises(LitebertError, match="LB-210"):
        Normalizer().normalize(b"bytes")  # type: ignore[arg-type]
