"""Texts of more than a million characters: in parts, with the ids and places of the whole."""

from pathlib import Path

import numpy as np
import pytest

from litebert import rng
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.modelfile import NORMAL, Piece, read_model, write_model
from litebert.tokenizer.parts import LONG, parts_of

SENTENCE = "Anna walked\n to the house, there she  found 1,024 red balls; Zoë said: no! "


@pytest.fixture(scope="module")
def text() -> str:
    return SENTENCE * (LONG // len(SENTENCE) + 2)


@pytest.fixture(params=["unigram", "wordpiece"])
def tokenizer(request: pytest.FixtureRequest, own: Tokenizer, tmp_path: Path) -> Tokenizer:
    if request.param == "unigram":
        return own
    words = "anna walked to the house there she found 1 024 red ball ##s zoe said no , ; : !"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words.split()]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    return Tokenizer.load(tmp_path)


def test_a_long_text_has_the_ids_and_offsets_of_its_sentences(tokenizer: Tokenizer, text: str) -> None:
    one = tokenizer.encode(SENTENCE)
    copies = len(text) // len(SENTENCE)
    long = tokenizer.encode(text)
    assert len(list(parts_of(text))) > 5
    assert long.ids == one.ids * copies
    steps = np.arange(copies)[:, None, None] * len(SENTENCE)
    wanted = (one.offset_array + steps).reshape(-1, 2)
    assert np.array_equal(long.offset_array, wanted)
    ids, offsets = tokenizer.encode_arrays(text)
    assert ids.tolist() == long.ids
    assert np.array_equal(offsets, wanted)


def test_the_beginning_of_a_long_text_has_its_first_ids(tokenizer: Tokenizer, text: str) -> None:
    beginning = tokenizer.beginning(text, 512)
    assert len(beginning) < LONG // 2
    assert text.startswith(beginning)
    ids = tokenizer.encode(beginning).ids
    assert len(ids) >= 512
    assert ids == tokenizer.encode(text).ids[: len(ids)]
    assert tokenizer.beginning(SENTENCE, 1) == SENTENCE
    assert tokenizer.beginning(text, len(text)) == text


def test_a_text_without_any_space_has_a_beginning_too(own: Tokenizer) -> None:
    draw = rng.stream(5, "letters", 0)
    text = "".join(draw.choice(list("abcdefghijklmnopqrstuvwxyz"), size=70_001)) * 20
    assert len(text) > LONG
    beginning = own.beginning(text, 512)
    assert len(beginning) <= LONG
    assert own.encode(beginning).ids[:512] == own.encode(text).ids[:512]


def test_a_text_is_not_cut_where_pieces_run_over_spaces(own_model: bytes, text: str) -> None:
    found = read_model(own_model, "the model")
    phrase = Piece("▁to▁the▁house", -0.1, NORMAL)
    tokenizer = Tokenizer.from_model(write_model([*found.pieces, phrase], found.charsmap))
    ids, _ = tokenizer.encode_arrays(text)
    assert np.count_nonzero(ids == tokenizer.id(phrase.text)) == len(text) // len(SENTENCE)
