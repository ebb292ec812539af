"""Long texts: encoded in parts, with the pieces of the whole, in bounded memory."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from litebert import rng
from litebert.tokenizer import Tokenizer, model_file
from litebert.tokenizer.added import Trace
from litebert.tokenizer.tokenizer import LONG
from tests.memory import run_in_child

SENTENCE = (
    "Anna walked\n to the house, there she  found 1,024 red balls; Zoë said: no! "
)
COPIES = LONG // len(SENTENCE) + 2
LONG_TEXT = SENTENCE * COPIES


@pytest.fixture(params=["own", "wordpiece"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return request.getfixturevalue(request.param)


def test_a_long_text_has_the_ids_and_offsets_of_its_sentences(
    tokenizer: Tokenizer,
) -> None:
    assert len(list(tokenizer._parts(LONG_TEXT))) > 5
    sentence = tokenizer.encode(SENTENCE)
    starts = np.arange(COPIES) * len(SENTENCE)
    offsets = sentence.offset_array + starts[:, None, None]  # (copies, pieces, 2)

    encoding = tokenizer.encode(LONG_TEXT)
    assert encoding.ids == sentence.ids * COPIES
    np.testing.assert_array_equal(encoding.offset_array, offsets.reshape(-1, 2))


# ---- the beginning of a text ---------------------------------------------------------


def assert_beginning_has_the_first_ids(
    tokenizer: Tokenizer, text: str, most: int
) -> None:
    """Check that the first 512 pieces are read from at most so many characters."""
    beginning = tokenizer.beginning(text, 512)
    assert text.startswith(beginning)
    assert len(beginning) <= most < len(text)
    assert tokenizer.encode(beginning).ids[:512] == tokenizer.encode(text).ids[:512]


def test_the_beginning_of_a_long_text_has_its_first_ids(tokenizer: Tokenizer) -> None:
    assert_beginning_has_the_first_ids(tokenizer, LONG_TEXT, LONG // 2)


def test_the_beginning_of_a_long_word_has_its_first_ids(own: Tokenizer) -> None:
    letters = rng.stream(5, "letters", 0).choice([*"abcdefghijklmnop"], size=70_001)
    word = "".join(letters) * 20
    assert_beginning_has_the_first_ids(own, word, LONG)


def test_a_text_that_is_short_enough_is_its_own_beginning(
    tokenizer: Tokenizer,
) -> None:
    assert tokenizer.beginning(SENTENCE, 1) == SENTENCE
    assert tokenizer.beginning(LONG_TEXT, len(LONG_TEXT)) == LONG_TEXT


def test_a_text_is_not_cut_where_pieces_run_over_spaces(own_model: bytes) -> None:
    model = model_file.read_model(own_model, "own")
    phrase = model_file.Piece("▁to▁the▁house", -0.1, model_file.NORMAL)
    content = model_file.write_model([*model.pieces, phrase], model.charsmap)
    tokenizer = Tokenizer.from_model(content)
    ids, _ = tokenizer.encode_arrays(LONG_TEXT)
    assert np.count_nonzero(ids == tokenizer.id(phrase.text)) == COPIES


# ---- work and memory -----------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a" * 1_000_000, id="one word"),
        pytest.param("日" * 1_000_000, id="ideographs"),
        pytest.param("1," * 500_000, id="commas after digits"),
        pytest.param(" " * 100_000, id="spaces"),
    ],
)
def test_a_million_equal_characters_are_encoded(own: Tokenizer, text: str) -> None:
    """With work that grew with the square of the length, this would take hours."""
    assert len(own.encode(text).ids) <= len(text) + 2


@pytest.fixture
def encoded_lengths(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[int]]:
    """Yield a list that gets the length of each text that the vocabulary encodes."""
    lengths = list[int]()
    encode_ids = tokenizer._model.encode_ids
    trace = tokenizer._model.trace

    def counting_encode_ids(texts: list[str], **options: int) -> list[list[int]]:
        lengths.extend(map(len, texts))
        return encode_ids(texts, **options)

    def counting_trace(text: str) -> Trace:
        lengths.append(len(text))
        return trace(text)

    monkeypatch.setattr(tokenizer._model, "encode_ids", counting_encode_ids)
    monkeypatch.setattr(tokenizer._model, "trace", counting_trace)
    yield lengths


@pytest.mark.parametrize("num_times", [1, 4])
def test_the_vocabulary_reads_a_long_text_once_in_parts_of_bounded_length(
    tokenizer: Tokenizer, encoded_lengths: list[int], num_times: int
) -> None:
    """Work on a part is bounded, so the whole work grows with the number of parts."""
    text = LONG_TEXT * num_times
    encoding = tokenizer.encode(text)
    assert max(encoded_lengths) <= LONG // 4
    assert sum(encoded_lengths) <= len(text)

    encoded_lengths.clear()
    assert len(encoding.offset_array) == len(encoding.ids)
    assert max(encoded_lengths) <= LONG // 4
    assert sum(encoded_lengths) <= len(text)


FIVE_MEGABYTES = """
from litebert.tokenizer import Tokenizer

tokenizer = Tokenizer.load(sys.argv[1])
sentence = "The quick brown fox jumps over the lazy dog, naïve as ever. "

def encode(repeats):
    encoding = tokenizer.encode(sentence * repeats)
    return len(encoding.ids) == len(encoding.offset_array)

assert encode(10_000)
before = peak_memory()
assert encode(80_000)
print(peak_memory() - before)
"""


def test_long_texts_are_encoded_in_bounded_memory(
    own: Tokenizer, tmp_path: Path
) -> None:
    own.save(tmp_path)
    [size] = run_in_child(FIVE_MEGABYTES, tmp_path)
    assert int(size) < 350 << 20
