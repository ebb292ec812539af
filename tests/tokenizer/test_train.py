"""Training a vocabulary: the official layout, the same bytes each time, clear words otherwise."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from litebert.errors import LitebertError
from litebert.tokenizer import Tokenizer, train_tokenizer, write_tokenizer
from litebert.tokenizer.modelfile import read_model
from litebert.tokenizer.train import USER_SYMBOLS


def test_the_layout_is_the_official_one(own_model: bytes) -> None:
    pieces = read_model(own_model, "own").pieces
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert [piece.text for piece in pieces[:13]] == [*special, *USER_SYMBOLS]
    assert [piece.kind for piece in pieces[:14]] == [3, 2, 3, 3, 3, *[4] * 8, 1]
    assert len(pieces) == 300


def test_training_and_sampling_again_give_the_same_bytes(own_model: bytes, sentences: list[str]) -> None:
    assert train_tokenizer(iter(sentences), vocab_size=300) == own_model
    small = [train_tokenizer(sentences, vocab_size=120, max_sentences=200) for _ in range(2)]
    assert small[0] == small[1] != train_tokenizer(sentences, vocab_size=120)


def test_a_whole_book_in_one_string_is_read_to_its_end(sentences: list[str]) -> None:
    book = "\n".join([*sentences, "Xylophone!"])
    tokenizer = Tokenizer.from_model(train_tokenizer([book], vocab_size=150, character_coverage=1.0))
    assert all(tokenizer.unk_id not in ids for ids in tokenizer.encode_ids([*sentences, book]))


def test_a_cased_vocabulary_is_remembered_as_cased(tmp_path: Path, sentences: list[str]) -> None:
    model = train_tokenizer(sentences, vocab_size=300, lowercase=False)
    written = write_tokenizer(tmp_path, model, lowercase=False)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.encode("Jürgen").ids == written.encode("Jürgen").ids
    assert "J" in "".join(loaded.encode("Jürgen").pieces)
    assert loaded.hash == written.hash != Tokenizer.from_model(model).hash


def test_the_largest_and_the_smallest_size_are_named_and_work(sentences: list[str]) -> None:
    def size(vocab_size: int, **limit: bool) -> int:
        return len(read_model(train_tokenizer(sentences, vocab_size=vocab_size, **limit), "own").pieces)

    with pytest.raises(LitebertError, match="LB-221") as caught:
        size(8_000)
    largest = int(re.findall(r"vocab_size=(\d+)", caught.value.next)[0])
    assert size(largest) == largest
    with pytest.raises(LitebertError, match="LB-221"):
        size(largest + 1)
    assert size(300, is_limit=True) == 300 < size(8_000, is_limit=True) <= largest
    with pytest.raises(LitebertError, match="LB-222") as caught:
        size(20)
    smallest = int(re.findall(r"at least (\d+)", caught.value.expected)[0])
    assert size(smallest) == smallest


def test_what_cannot_be_trained_on_is_refused() -> None:
    for texts, code in (([], "LB-220"), (["  ", "\n"], "LB-220"), ([1], "LB-210"), ("one long text", "LB-216")):
        with pytest.raises(LitebertError, match=code):
            train_tokenizer(texts, vocab_size=50)
    for setting in ({"character_coverage": 2.0}, {"max_sentences": 50}):
        with pytest.raises(LitebertError, match="LB-223"):
            train_tokenizer(["a"] * 99, vocab_size=50, **setting)


def test_errors_of_the_reader_of_texts_come_through() -> None:
    def failing() -> Iterator[str]:
        yield "a line"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        train_tokenizer(failing(), vocab_size=100)
