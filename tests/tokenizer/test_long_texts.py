"""Long texts: encoded in parts, with the pieces of the whole, in bounded memory."""

from pathlib import Path

import numpy as np
import pytest

from litebert import rng
from litebert.tokenizer import Tokenizer, model_file
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


# ---- time and memory -----------------------------------------------------------------


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
    assert len(own.encode(text).ids) <= len(text) + 2


FIVE_MEGABYTES = """
import time
from litebert.tokenizer import Tokenizer

tokenizer = Tokenizer.load(sys.argv[1])

def seconds(repeats):
    text = "The quick brown fox jumps over the lazy dog, naïve as ever. " * repeats
    begin = time.process_time()
    assert len(tokenizer.encode(text).offset_array)
    return time.process_time() - begin

short = min(seconds(10_000) for _ in range(3))
before = peak_memory()
long = seconds(80_000)
print(long / short / 8, peak_memory() - before)
"""


def test_long_texts_are_encoded_in_bounded_memory_and_linear_time(
    own: Tokenizer, tmp_path: Path
) -> None:
    own.save(tmp_path)
    ratio, size = map(float, run_in_child(FIVE_MEGABYTES, tmp_path))
    assert ratio < 3  # 8 if time grew with the square of the length
    assert size < 350 << 20
